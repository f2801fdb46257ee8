"""The clock of the simulation: events in the order of their time."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final, Protocol

NEVER: Final = 1e18


class Process(Protocol):
    """What has events of its own. They are dropped when it is dead, and wait while it is stopped."""

    is_dead: bool
    stopped_until: float


class EventQueue:
    """Events by time, those of the same time in the order in which they were added."""

    __slots__ = ("_heap", "_number", "done", "now")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Process | None, Callable[[Any], None], Any]] = []
        self._number = 0
        self.now = 0.0
        self.done = 0
        """Events that happened."""

    def after(self, seconds: float, process: Process | None, do: Callable[[Any], None], what: Any) -> None:
        """Have ``do(what)`` happen then, as an event of that process."""
        self._number += 1
        heappush(self._heap, (self.now + seconds, self._number, process, do, what))

    def run(self, steps: int, until: float = NEVER) -> None:
        """Let ``steps`` events happen, or those before that time."""
        heap = self._heap
        last = self.done + steps
        done = self.done
        while heap and done < last:
            event = heappop(heap)
            at, number, process, do, what = event
            if at > until:
                heappush(heap, event)
                break
            if process is not None:
                if process.is_dead:
                    continue
                if process.stopped_until > at:
                    heappush(heap, (process.stopped_until, number, process, do, what))
                    continue
            self.now = at
            done += 1
            do(what)
        self.done = done
