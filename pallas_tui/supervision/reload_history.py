"""What the main screen keeps of reloads and blocked loops, for every pane and screen that shows it."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from pallas.model import Event, LoopBlocked

from ..frame import FleetFrame
from .agent_versions import Versions

MAX_BLOCKS: Final = 50
PATIENCE: Final = 300.0
"""Seconds after which one whose end no one told is taken for over."""


class Blocks:
    """The last ones, oldest first; ``open`` are those that are not over."""

    def __init__(self) -> None:
        self.last: deque[LoopBlocked] = deque(maxlen=MAX_BLOCKS)
        self._open: dict[str, LoopBlocked] = {}

    @property
    def open(self) -> tuple[LoopBlocked, ...]:
        """Those that go on, one for each agent at most."""
        return tuple(self._open.values())

    def of(self, agent: str) -> LoopBlocked | None:
        """Return the last time that this agent blocked the loop, None if it never did."""
        return next((event for event in reversed(self.last) if event.agent == agent), None)

    def absorb(self, events: Iterable[Event], now: float, lost: bool = False) -> None:
        """Take in what happened; ``lost``: events did not come, so an end may be among them."""
        if lost:
            self._open.clear()
        for event in events:
            if not isinstance(event, LoopBlocked):
                continue
            begun = self._open.pop(event.agent, None)
            if event.over and begun is not None and self.last and self.last[-1] is begun:
                self.last.pop()
            self.last.append(event)
            if not event.over:
                self._open[event.agent] = event
        late = [name for name, event in self._open.items() if now - event.at > PATIENCE]
        for name in late:
            del self._open[name]


class History:
    """``watchers`` are called after each frame, with whether anything in here is different."""

    def __init__(self) -> None:
        self.versions = Versions()
        self.blocks = Blocks()
        self.watchers: list[Callable[[bool], None]] = []
        self.frame: FleetFrame | None = None

    def absorb(self, frame: FleetFrame) -> None:
        """Take in a frame, before anybody shows it."""
        self.frame = frame
        before = self.blocks.open
        live = {agent.name: agent.version for agent in frame.snapshot.agents}
        changed = self.versions.absorb(frame.events, live)
        self.blocks.absorb(frame.events, frame.now, bool(frame.dropped))
        for watcher in tuple(self.watchers):
            watcher(changed or self.blocks.open != before)
