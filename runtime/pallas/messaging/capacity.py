"""How many messages are handled at once, in the fleet and by one agent, and how many wait (HC-31)."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress

from pallas.config.kinds import PumpLimits
from pallas.model import Fault, FaultType

from .frames import HandlerFrame


def overloaded(what: str) -> Fault:
    """What is told where there is no room (SPEC 7.3): try again later."""
    return Fault(FaultType.TRANSPORT, f"Server overloaded: {what}")


class Slots:
    """Gives frames their turn to have a message handled: by agent in the order of arrival, agents in turn.

    A frame that waits is an entry here and no task. ``limits``, and ``at_once`` for how many messages one
    agent handles at a time, are asked each time: they may change.
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
        """How many messages that agent handles now."""
        return self._running[agent]

    def want(self, frame: HandlerFrame) -> None:
        """A message waits in this frame."""
        frame.waits = True
        self._waiting.setdefault(frame.agent, OrderedDict())[frame] = None
        self._go_on()

    def forget(self, frame: HandlerFrame) -> None:
        """It waits no more: it is over."""
        if frame.waits:
            frame.waits = False
            line = self._waiting[frame.agent]
            del line[frame]
            if not line:
                del self._waiting[frame.agent]

    def give(self, agent: str) -> None:
        """A message was handled."""
        self.running -= 1
        self._running[agent] -= 1
        if not self._running[agent]:
            del self._running[agent]
        self._go_on()

    def _go_on(self) -> None:
        if self._starting:  # what is started may ask for more: no need to go deeper for that
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
    """Room for so many runs at once; the others wait in the order in which they came."""

    def __init__(self, limits: Callable[[], PumpLimits]) -> None:
        self._limits = limits
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.running = 0

    @property
    def waiting(self) -> int:
        """Runs that wait."""
        return len(self._waiting)

    async def take(self, queued: int) -> None:
        """Wait for room; ``queued`` messages wait besides. Raises Fault (TRANSPORT) where too many do."""
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
                self.give()  # the room came, and so did the end of who waited
            with suppress(ValueError):
                self._waiting.remove(mine)
            raise

    def give(self) -> None:
        """A run is over."""
        self.running -= 1
        limit = self._limits().pipelines
        while self._waiting and self.running < limit:
            first = self._waiting.popleft()
            if not first.done():
                self.running += 1
                first.set_result(None)

    def refuse(self, fault: Fault) -> None:
        """Nobody who waits gets room any more."""
        while self._waiting:
            first = self._waiting.popleft()
            if not first.done():
                first.set_exception(fault)
