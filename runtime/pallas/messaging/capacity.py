"""Limits on messages handled at once, in the fleet and by one agent, and on those that wait (HC-31)."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress

from pallas.config.kinds import PumpLimits
from pallas.model import Fault, FaultType

from .frames import HandlerFrame


def overloaded(what: str) -> Fault:
    """Return the Fault for a lack of room: the sender may try again later."""
    return Fault(FaultType.TRANSPORT, f"Server overloaded: {what}")


class Slots:
    """Gives frames their turn to have a message handled: first come first served per agent, agents in turn.

    A waiting frame is an entry here and not a task. ``limits``, and ``at_once`` for how many messages one
    agent handles concurrently, are called each time: they may change.
    """

    def __init__(
        self,
        limits: Callable[[], PumpLimits],
        at_once: Callable[[str], int],
        start: Callable[[HandlerFrame], None],
    ) -> None:
        self._limits = limits
        self._at_once = at_once
        self._start = start
        self._waiting: OrderedDict[str, OrderedDict[HandlerFrame, None]] = OrderedDict()
        self._running: Counter[str] = Counter()
        self._starting = False
        self.running = 0

    def of(self, agent: str) -> int:
        """Return how many messages that agent handles now."""
        return self._running[agent]

    def want(self, frame: HandlerFrame) -> None:
        """Queue a frame that has a message to handle."""
        frame.waits = True
        self._waiting.setdefault(frame.agent, OrderedDict())[frame] = None
        self._go_on()

    def forget(self, frame: HandlerFrame) -> None:
        """Remove a frame that is over from the queue."""
        if frame.waits:
            frame.waits = False
            line = self._waiting[frame.agent]
            del line[frame]
            if not line:
                del self._waiting[frame.agent]

    def give(self, agent: str) -> None:
        """Free the slot of a handled message."""
        self.running -= 1
        self._running[agent] -= 1
        if not self._running[agent]:
            del self._running[agent]
        self._go_on()

    def _go_on(self) -> None:
        if self._starting:  # A started frame may ask for more; the loop below serves it, without recursion.
            return
        self._starting = True
        try:
            while (frame := self._next()) is not None:
                frame.waits = False
                self.running += 1
                self._running[frame.agent] += 1
                self._start(frame)
        finally:
            self._starting = False

    def _next(self) -> HandlerFrame | None:
        if self.running >= self._limits().handlers:
            return None
        for agent, line in self._waiting.items():
            if self._running[agent] < self._at_once(agent):
                frame, _ = line.popitem(last=False)
                if line:
                    self._waiting.move_to_end(agent)
                else:
                    del self._waiting[agent]
                return frame
        return None


class Pipelines:
    """Bounds concurrent runs; the others wait in order of arrival."""

    def __init__(self, limits: Callable[[], PumpLimits]) -> None:
        self._limits = limits
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.running = 0

    @property
    def waiting(self) -> int:
        """The number of waiting runs."""
        return len(self._waiting)

    async def take(self, queued: int) -> None:
        """Wait for room; ``queued`` messages wait as well. Raises Fault (TRANSPORT) when too many wait."""
        limits = self._limits()
        if self.running < limits.pipelines and not self._waiting:
            self.running += 1
            return
        if queued + len(self._waiting) >= limits.queue:
            raise overloaded("too many messages wait")
        mine = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled() and mine.exception() is None:
                self.give()  # Room came at the same time as the cancellation.
            with suppress(ValueError):
                self._waiting.remove(mine)
            raise

    def give(self) -> None:
        """Free the room of a finished run."""
        self.running -= 1
        limit = self._limits().pipelines
        while self._waiting and self.running < limit:
            first = self._waiting.popleft()
            if not first.done():
                self.running += 1
                first.set_result(None)

    def refuse(self, fault: Fault) -> None:
        """Refuse every waiting run."""
        while self._waiting:
            first = self._waiting.popleft()
            if not first.done():
                first.set_exception(fault)
