"""The lines between runs of the feed: new versions, verdicts, blocked loops, crash loops, lost servers."""

from dataclasses import dataclass

from pallas.model import AgentChanged, AgentState, Event, LoopBlocked, Notice, Reloaded, VerdictReached
from pallas.model.verdict import verdict_text

from ..supervision.reload_words import blocked, crash_loop, name_of, sentence

LiveVersions = dict[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class FeedRemark:
    """One line of the feed that is no run; ``about`` is the event, ``key`` identifies it."""

    key: str
    at: float
    agent: str
    text: str
    about: Event

    @property
    def words(self) -> str:
        """The text that a filter searches."""
        return f"{self.agent} {self.text}".lower()


def remark_of(event: Event, versions: LiveVersions) -> FeedRemark | None:
    """Return the line of an event in the feed, None for most; ``versions`` are the live ones, by agent."""
    match event:
        case Reloaded(outcome="live" | "failed" | "held"):
            name = name_of(event)
            text = sentence(event, versions.get(event.agent, 0)).removeprefix(name).lstrip(": ")
            return FeedRemark(f"version {event.seq} {event.at}", event.at, name, text, event)
        case VerdictReached():
            about = ", ".join(event.files[:3]) or ", ".join(event.agents[:3])
            text = f"{event.cause} {about}: {verdict_text(event)}"
            return FeedRemark(f"verdict {event.seq} {event.at}", event.at, "verdict", text, event)
        case LoopBlocked():
            # The end replaces the beginning.
            name = event.agent or "something"
            return FeedRemark(f"block {name}", event.at, name, blocked(event).removeprefix(f"{name} "), event)
        case AgentChanged(state=AgentState.CRASH_LOOP):
            text = crash_loop(event.agent, event.detail).removeprefix(f"{event.agent} ")
            return FeedRemark(f"crash {event.seq} {event.at}", event.at, event.agent, text, event)
        case Notice(agent=name, server=server, text=text) if name and server:
            return FeedRemark(f"server {event.seq} {event.at}", event.at, name, text, event)
    return None
