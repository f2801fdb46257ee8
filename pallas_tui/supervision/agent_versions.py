"""The attempts at new versions, by agent: the outcome of each, and which edit is broken now."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pallas.model import AgentChanged, AgentState, Event, Reloaded

from .reload_words import failed_version, is_open

MAX_ATTEMPTS: Final = 50
"""Attempts that are kept of one agent."""
MAX_AGENTS: Final = 200
MAX_TEXT: Final = 8_000_000
"""Characters of differences and stories that are kept in all; the oldest go first."""


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """The outcome of an edit, and the version that ``answers`` if it is open (0: not known)."""

    event: Reloaded
    answers: int = 0

    @property
    def version(self) -> int:
        """The one that was made, or would have been; 0 where that is not known."""
        return failed_version(self.event, self.answers) if is_open(self.event) else self.event.version


class Versions:
    """What ``Reloaded`` events told. ``count`` grows with each of them."""

    def __init__(self) -> None:
        self._attempts: dict[str, deque[Attempt]] = {}
        self._order: deque[Attempt] = deque()
        self._broken: dict[str, Attempt] = {}
        self._text = 0
        self.count = 0

    def absorb(self, events: Iterable[Event], live: Mapping[str, int]) -> bool:
        """Take in what happened; ``live`` has the version of each agent of the fleet that answers.

        Returns whether anything is different now.
        """
        before, broken = self.count, dict(self._broken)
        for event in events:
            if isinstance(event, Reloaded):
                self._take(event, live.get(event.agent, 0))
            elif isinstance(event, AgentChanged) and event.state is AgentState.READY:
                # Started from what its files say now: the edit that failed before is no longer open.
                failed = self._broken.get(event.agent)
                if failed is not None and event.at > failed.event.at and not _still_held(failed, live):
                    del self._broken[event.agent]
        known = {"", *live}
        for gone in [name for name in self._broken if name not in known]:
            del self._broken[gone]
        return self.count != before or broken != self._broken

    def of(self, agent: str = "") -> tuple[Attempt, ...]:
        """The attempts at an agent, the newest first; without a name those at all of them."""
        return tuple(reversed(self._attempts.get(agent, ()) if agent else self._order))

    def broken(self, agent: str) -> Attempt | None:
        """The last attempt, if it failed or is held back; an empty name is the project itself."""
        return self._broken.get(agent)

    @property
    def all_broken(self) -> tuple[Attempt, ...]:
        """Those of all agents and of the project, the newest first."""
        return tuple(sorted(self._broken.values(), key=lambda one: one.event.at, reverse=True))

    def rolled_back(self, agent: str, version: int) -> bool:
        """Whether it is by a rollback that ``version`` answers."""
        live = (one.event for one in self.of(agent) if agent and one.event.outcome == "live")
        last = next(live, None)
        return last is not None and last.rolled_back and last.version == version

    def _take(self, event: Reloaded, answers: int) -> None:
        attempt = Attempt(event, answers)
        self.count += 1
        attempts = self._attempts.setdefault(event.agent, deque())
        attempts.append(attempt)
        self._order.append(attempt)
        self._text += _size(event)
        if len(attempts) > MAX_ATTEMPTS:
            self._drop(attempts[0])
        while self._text > MAX_TEXT and len(self._order) > 1:
            self._drop(self._order[0])
        if len(self._attempts) > MAX_AGENTS:
            eldest = min(self._attempts, key=lambda name: self._attempts[name][-1].event.at)
            for one in tuple(self._attempts[eldest]):
                self._drop(one)
        if is_open(event):
            if event.agent or event.place:  # else agents failed, which tell it themselves
                self._broken[event.agent] = attempt
            return
        self._broken.pop(event.agent, None)
        # A mistake in a file of the project is fixed by any change of the fixed file.
        project = self._broken.get("")
        if project is not None and not set(project.event.files).isdisjoint(event.files):
            del self._broken[""]

    def _drop(self, attempt: Attempt) -> None:
        """An attempt that is the only one an agent has left may go too."""
        agent = attempt.event.agent
        self._order = deque(_without(self._order, attempt))
        left = deque(_without(self._attempts[agent], attempt))
        if left:
            self._attempts[agent] = left
        else:
            del self._attempts[agent]
        self._text -= _size(attempt.event)


def _still_held(attempt: Attempt, live: Mapping[str, int]) -> bool:
    """Whether an agent that was started again has the version that it had: a crash leaves it so."""
    event = attempt.event
    return event.outcome == "held" and live.get(event.agent) == event.version


def _without(attempts: Iterable[Attempt], gone: Attempt) -> Iterator[Attempt]:
    return (one for one in attempts if one is not gone)


def _size(event: Reloaded) -> int:
    """Characters of what may be long in it."""
    texts = (len(one.before) + len(one.after) + len(one.diff) + len(one.name) for one in event.changes)
    return len(event.story) + sum(texts) + sum(map(len, event.files))
