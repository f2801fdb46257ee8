"""Loops that code of an agent blocks, or blocked."""

from collections import deque
from collections.abc import Iterable
from typing import Final

from pallas.model import Event, LoopBlocked

MAX_BLOCKS: Final = 50
PATIENCE: Final = 300.0
"""Seconds after which one whose end nobody told is taken for over."""


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
        """What is known of the last time that this agent did it, if it ever did."""
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
