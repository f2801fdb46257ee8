"""What the shell shows of the fleet, made of snapshots and events; nothing of the screen in here."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Final, Literal
from urllib.parse import urlsplit

from pallas.model import (
    FAILED_STATES,
    AgentChanged,
    AgentSnapshot,
    AgentState,
    Attachment,
    Event,
    FleetChanged,
    FleetSnapshot,
    FleetState,
    HealthChanged,
    HealthStatus,
    LoopBlocked,
    Notice,
    Reloaded,
    ReloadOutcome,
    RunFinished,
    ServerSnapshot,
    TokenScope,
)

from .frame import FleetFrame
from .supervision.reload_words import blocked, crash_loop, sentence
from .text import count, duration, moment, since

Level = Literal["info", "warning", "error"]
Item = AgentSnapshot | ServerSnapshot
"""What the list of agents holds: agents, and the project's own servers below them."""


class Tone(StrEnum):
    """How something is, in the one vocabulary that shapes and colours are chosen from.

    ``backoff``: it failed and is started again in a moment; ``crash-loop``: no more by itself.
    """

    OK = "ok"
    DEGRADED = "degraded"
    ERROR = "error"
    BACKOFF = "backoff"
    CRASH_LOOP = "crash-loop"
    STARTING = "starting"
    STOPPED = "stopped"


_STARTING: Final = frozenset({AgentState.WAITING, AgentState.IMPORTING, AgentState.CONNECTING})
_FAILED: Final = {AgentState.BACKOFF: Tone.BACKOFF, AgentState.CRASH_LOOP: Tone.CRASH_LOOP}
TONE_OF_HEALTH: Final = {
    HealthStatus.OK: Tone.OK,
    HealthStatus.DEGRADED: Tone.DEGRADED,
    HealthStatus.ERROR: Tone.ERROR,
}


def tone_of(item: Item) -> Tone:
    """One tone: the state while there is no health to speak of, then an agent's health (PI-17)."""
    if item.state in _STARTING:
        return Tone.STARTING
    if item.state in FAILED_STATES:
        return _FAILED.get(item.state, Tone.ERROR)
    if item.state is AgentState.READY:
        return TONE_OF_HEALTH[item.health.status] if isinstance(item, AgentSnapshot) else Tone.OK
    return Tone.STOPPED


FAILED_TONES: Final = frozenset({Tone.ERROR, Tone.BACKOFF, Tone.CRASH_LOOP})
"""Those of what cannot answer because something went wrong."""


def again_in(item: Item, now: float) -> str:
    """``again in 4 s`` for what waits to be started again, empty for anything else."""
    if item.state is not AgentState.BACKOFF or item.restart_at is None:
        return ""
    return f"again in {min(999, max(0, ceil(item.restart_at - now)))} s"


def stages_of(agent: AgentSnapshot) -> str:
    """Return the stages reached and the first one missing, such as ``booted, not ready``."""
    found = (("booted", agent.booted), ("ready", agent.ready), ("healthy", agent.healthy))
    held = [word for word, holds in found if holds]
    missing = [f"not {word}" for word, holds in found if not holds]
    return ", ".join((*held, *missing[:1]))


def version_of(agent: AgentSnapshot, rolled_back: bool = False) -> str:
    """``v3``, ``v3 (rolled back)``."""
    return f"v{agent.version}" + (" (rolled back)" if rolled_back else "")


def can_answer(agent: AgentSnapshot) -> bool:
    """Whether a message to it has a chance: ready, and not in error (PI-17)."""
    return agent.state is AgentState.READY and agent.health.status is not HealthStatus.ERROR


def reason_of(item: Item) -> str:
    """Why it is not simply well, in one line; empty when it is."""
    if item.error and item.state in FAILED_STATES:
        return next((line.strip() for line in item.error.splitlines() if line.strip()), "")
    if isinstance(item, AgentSnapshot) and item.state is AgentState.READY:
        return "" if item.health.status is HealthStatus.OK else item.health.message
    return ""


def state_text(item: Item) -> str:
    """Everything that is known about how an agent or a server is, as text to read and to copy."""
    if isinstance(item, AgentSnapshot):
        return _agent_state_text(item)
    parts = [f"{item.name}: {item.state.value}", f"a server of the project at {item.url}"]
    if item.restarts or item.crashes:
        parts.append(f"{count(item.restarts, 'restart')}, {count(item.crashes, 'crash', 'crashes')}")
    if item.state is AgentState.CRASH_LOOP:
        parts.append(CRASH_LOOP_HELP)
    if item.error:
        parts.append(item.error.rstrip())
    return "\n\n".join(parts)


CRASH_LOOP_HELP: Final = (
    "It failed too often in too short a time and is not restarted automatically. "
    "Fix its files and save them, or start it again in the list of agents."
)


def _agent_state_text(agent: AgentSnapshot) -> str:
    parts = [f"{agent.name}: {agent.state.value}, health {agent.health.status.value}"]
    if agent.health.message:
        parts.append(agent.health.message)
    if agent.state is AgentState.CRASH_LOOP:
        parts.append(CRASH_LOOP_HELP)
    trouble = [
        f"{one.name} ({one.transport} {one.target}): {one.reach.value}"
        + (f": {one.detail}" if one.detail else "")
        + (f"; last call: {one.last_call.detail}" if one.last_call and not one.last_call.ok else "")
        for one in agent.downstreams
    ]
    if trouble:
        parts.append("Downstreams:\n" + "\n".join(f"  {line}" for line in trouble))
    if agent.error and agent.error.strip() != agent.health.message.strip():
        parts.append(agent.error.rstrip())
    return "\n\n".join(parts)


_SUMMARISED: Final = frozenset(
    {AgentChanged, FleetChanged, HealthChanged, LoopBlocked, Notice, Reloaded, RunFinished}
)


_LEVELS_OF_RELOADS: Final[Mapping[ReloadOutcome, Level]] = {"failed": "error", "held": "warning"}


@dataclass(frozen=True, slots=True)
class EventSummary:
    """The last thing worth a glance."""

    at: float
    text: str
    level: Level = "info"


def event_summary(event: Event, snapshot: FleetSnapshot) -> EventSummary | None:
    """What an event says to the user who does not look at any pane; None when that is nothing."""
    match event:
        case AgentChanged(agent=name, state=AgentState.READY):
            agent = snapshot.agent(name)
            took = f" in {duration(agent.started_in)}" if agent and agent.started_in is not None else ""
            return EventSummary(event.at, f"{name} ready{took}")
        case AgentChanged(agent=name, state=AgentState.ERROR, detail=detail):
            return EventSummary(event.at, f"{name} failed: {detail}" if detail else f"{name} failed", "error")
        case AgentChanged(agent=name, state=AgentState.BACKOFF, detail=detail):
            again = f"{name} starts again soon"
            return EventSummary(event.at, f"{again}: {detail}" if detail else again, "warning")
        case AgentChanged(agent=name, state=AgentState.CRASH_LOOP, detail=detail):
            return EventSummary(event.at, crash_loop(name, detail), "error")
        case AgentChanged(agent=name, state=state):
            return EventSummary(event.at, f"{name} {state.value}")
        case HealthChanged(agent=name, health=health):
            level: Level = {"ok": "info", "degraded": "warning", "error": "error"}[health.status.value]  # type: ignore[assignment]
            text = f"{name} is {'in error' if level == 'error' else health.status.value}"
            return EventSummary(event.at, f"{text}: {health.message}" if health.message else text, level)
        case RunFinished(agent=name, outcome="error", fault=fault):
            return EventSummary(event.at, f"{name} could not answer: {fault}", "error")
        case RunFinished(agent=name, outcome="cancelled"):
            return EventSummary(event.at, f"{name} was cancelled", "warning")
        case RunFinished(agent=name, seconds=seconds):
            return EventSummary(event.at, f"{name} answered in {duration(seconds)}")
        case Reloaded(agent=name, outcome=outcome):
            agent = snapshot.agent(name)
            text = sentence(event, agent.version if agent is not None else 0)
            return EventSummary(event.at, text, _LEVELS_OF_RELOADS.get(outcome, "info"))
        case LoopBlocked(over=over):
            return EventSummary(event.at, blocked(event), "info" if over else "error")
        case Notice(level=level, text=text, agent=name):
            named = not name or text.startswith(f"{name}: ")
            return EventSummary(event.at, text if named else f"{name}: {text}", level)
        case FleetChanged(state=state, detail=detail):
            return EventSummary(
                event.at,
                f"fleet {state.value}" + (f": {detail}" if detail else ""),
                "error" if state is FleetState.FAILED else "info",
            )
    return None


@dataclass(frozen=True, slots=True)
class Summary:
    """The fleet in one sentence, for the top line. ``tones`` has every tone that occurs, in a fixed order.

    ``paused``: no one looks after the files now; ``waiting`` are those that changed and nothing was done
    about; ``reloading`` are agents whose next version is being made, ``testing`` those whose next version
    waits for tests; ``raised`` counts todos that are due, ``asked`` the open questions to people.
    ``has_faults``: faults are injected into calls of models, tools and agents.
    """

    name: str
    state: FleetState
    agents: int
    tones: tuple[tuple[Tone, int], ...]
    runs: int
    queued: int
    registry_port: int | None
    last_event: EventSummary | None
    stale: str = ""
    paused: bool = False
    waiting: tuple[str, ...] = ()
    reloading: tuple[str, ...] = ()
    testing: tuple[str, ...] = ()
    raised: int = 0
    asked: int = 0
    attachment: Attachment | None = None
    has_faults: bool = False

    @property
    def runs_text(self) -> str:
        """``2 runs``, with the waiting ones."""
        return count(self.runs, "run") + (f" +{self.queued} waiting" if self.queued else "")

    @property
    def watch_text(self) -> str:
        """``watch paused, 3 files waiting``, empty while the files are looked after or no one does."""
        if not self.paused:
            return ""
        files = f"{count(len(self.waiting), 'file')} waiting" if self.waiting else ""
        return ", ".join(part for part in ("watch paused", files) if part)

    @property
    def saving(self) -> str:
        """The agents that reload or whose tests run, else the saved files that wait, in words; else empty."""
        if self.paused:
            return ""
        if self.reloading:
            return f"reloading {', '.join(self.reloading)}"
        if self.testing:
            return f"testing {', '.join(self.testing)}"
        files = [path.rpartition("/")[2] for path in self.waiting]
        return f"saved {', '.join(files)}" if files else ""


def summarise(
    frame: FleetFrame, before: EventSummary | None = None, raised: int = 0, asked: int = 0
) -> Summary:
    """Return the summary of a frame; ``before`` stays the headline until there is a newer one."""
    last_event = before
    for event in reversed(frame.events):
        if type(event) in _SUMMARISED and (newer := event_summary(event, frame.snapshot)) is not None:
            last_event = newer
            break
    agents = frame.snapshot.agents
    tones = [tone_of(agent) for agent in agents]
    watch = frame.snapshot.watch
    return Summary(
        name=frame.snapshot.name,
        state=frame.snapshot.state,
        agents=len(agents),
        tones=tuple((tone, tones.count(tone)) for tone in Tone if tone in tones),
        runs=sum(agent.runs_active for agent in agents),
        queued=sum(agent.runs_queued for agent in agents),
        registry_port=port_of(frame.snapshot.registry_url),
        last_event=last_event,
        stale=frame.snapshot.stale,
        paused=watch is not None and watch.mode == "paused",
        waiting=watch.waiting if watch is not None else (),
        reloading=watch.reloading if watch is not None else (),
        testing=watch.testing if watch is not None else (),
        raised=raised,
        asked=asked,
        attachment=frame.attachment,
        has_faults=bool(frame.snapshot.faults),
    )


_ACCESS: Final = {TokenScope.FULL: ", full access", TokenScope.TEXTS: ", with texts", TokenScope.READ: ""}
"""What stands beside the name of a fleet that may only be looked at is not repeated."""


def attached_words(attachment: Attachment, now: float) -> tuple[str, ...]:
    """Whose the fleet is, in words: all that is known first, then shorter forms."""
    place = f"attached to {attachment.place}"
    if attachment.lost_at:
        lost = f"no contact since {moment(attachment.lost_at, now)}"
        return f"{place}, {lost}", lost
    access = _ACCESS[attachment.access]
    return f"{place} since {since(attachment.since, now)}{access}", f"{place}{access}", "attached"


def behind(attachment: Attachment) -> str:
    """How old the picture of an attached fleet is; empty while it is current."""
    return f"{attachment.late} s behind" if attachment.late else ""


def port_of(url: str) -> int | None:
    """The port of a URL; None where it has none or is no URL."""
    try:
        return urlsplit(url).port
    except ValueError:
        return None
