"""Verbs in progress by agent: start, stop, restart, reload."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pallas.model import FAILED_STATES, AgentChanged, AgentSnapshot, AgentState, Event, Notice, Reloaded, Verb

from ..supervision.reload_words import what_failed

PATIENCE: Final = 120.0
"""Seconds after which something that was asked for is no longer waited for."""

DOING: Final[dict[Verb, str]] = {
    "start": "starting",
    "stop": "stopping",
    "restart": "restarting",
    "reload": "reloading",
    "rollback": "rolling back",
}
_DONE: Final[dict[Verb, frozenset[AgentState]]] = {
    "start": FAILED_STATES | {AgentState.READY},
    "stop": FAILED_STATES | {AgentState.STOPPED},
    "restart": FAILED_STATES | {AgentState.READY},
    "reload": FAILED_STATES | {AgentState.READY},
    "rollback": FAILED_STATES | {AgentState.READY},
}


@dataclass(frozen=True, slots=True)
class VerbRequest:
    """A verb requested for one agent, and when (Unix seconds, the frames' clock)."""

    verb: Verb
    at: float


class UnderWay:
    """Verbs in progress by agent. The agent's state or a notice from the fleet ends one."""

    def __init__(self) -> None:
        self._asked: dict[str, VerbRequest] = {}
        self._last: dict[str, VerbRequest] = {}
        self._failures: dict[str, str] = {}
        self._unreported: list[str] = []

    def ask(self, agent: str, verb: Verb, now: float) -> None:
        """Record a verb. It replaces an earlier one and its outcome."""
        self._asked[agent] = self._last[agent] = VerbRequest(verb, now)
        self._failures.pop(agent, None)

    def take(self, events: Iterable[Event], now: float) -> list[str]:
        """Take what happened in; returns the agents whose outcome no one told within ``PATIENCE``."""
        if not self._last:
            return []
        for event in events:
            if isinstance(event, Notice) and event.level == "error":
                last = self._last.get(event.agent)
                if last is not None and event.at >= last.at - 1.0:
                    self._failures[event.agent] = event.text
                    self._unreported.append(event.text)
            if isinstance(event, Reloaded) and event.outcome == "failed" and event.agent in self._asked:
                self._failures[event.agent] = f"{event.agent}: {what_failed(event)}"
                self._unreported.append(self._failures[event.agent])
            if isinstance(event, AgentChanged | Notice | Reloaded):
                asked = self._asked.get(event.agent)
                if asked is not None and event.at >= asked.at - 1.0 and _ends(event, asked.verb):
                    del self._asked[event.agent]
        late = [name for name, asked in self._asked.items() if now - asked.at > PATIENCE]
        for name in late:
            del self._asked[name]
        return late

    def verb(self, agent: str) -> Verb | None:
        """Return the verb in progress for an agent."""
        asked = self._asked.get(agent)
        return asked.verb if asked is not None else None

    def doing(self, agent: str) -> str:
        """The same as a word for the screen, empty when nothing is."""
        verb = self.verb(agent)
        return DOING[verb] if verb is not None else ""

    def failure(self, agent: str) -> str:
        """Why the last thing that was asked of an agent failed; empty when it did not, or not yet."""
        return self._failures.get(agent, "")

    def take_failures(self) -> list[str]:
        """What failed since this was asked for the last time, one line each."""
        failures, self._unreported = self._unreported, []
        return failures

    def forget(self, agent: str) -> None:
        """It was refused."""
        self._asked.pop(agent, None)
        self._last.pop(agent, None)


def _ends(event: AgentChanged | Notice | Reloaded, verb: Verb) -> bool:
    if isinstance(event, Reloaded):
        return verb in ("reload", "rollback")
    if isinstance(event, AgentChanged):
        return event.state in _DONE[verb]
    # A reload that failed leaves the state as it was: only the notice tells of it.
    return verb == "reload" or event.level == "error"


def can(verb: Verb, agent: AgentSnapshot) -> bool:
    """Whether that would do anything to an agent that is as it is now."""
    state = agent.state
    if verb == "rollback":
        return agent.previous > 0
    if verb == "start":
        return state is AgentState.STOPPED or state in FAILED_STATES
    if verb == "stop":
        return state not in (AgentState.STOPPED, AgentState.STOPPING)
    return verb == "restart" or state is AgentState.READY or state in FAILED_STATES
