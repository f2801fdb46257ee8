"""Events that came from elsewhere, under numbers of our own that only ever grow."""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from threading import Lock
from typing import Final

from pallas.model import Event, EventBatch

CAPACITY: Final = 20_000


class EventRing:
    """The last ``capacity`` events. A number that is missing stands for an event that was lost on the way.

    The fleet elsewhere may begin to count anew; these numbers do not. Safe from any thread.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._ring: deque[Event] = deque(maxlen=capacity)
        self._seq = 0
        self._lock = Lock()

    def add(self, events: Iterable[Event], lost: int = 0) -> None:
        """Keep ``events``, before which ``lost`` others did not come."""
        with self._lock:
            self._seq += lost
            for event in events:
                self._seq += 1
                self._ring.append(replace(event, seq=self._seq))

    def since(self, seq: int, limit: int = 5_000) -> EventBatch:
        """Events with a number above ``seq``, oldest first, at most ``limit``."""
        with self._lock:
            newest = self._seq
            # From the end: who reads in time wants only what is there.
            skip = 0
            for event in reversed(self._ring):
                if event.seq <= seq:
                    break
                skip += 1
            events = tuple(islice(self._ring, len(self._ring) - skip, len(self._ring) - skip + limit))
        if not events:
            return EventBatch((), max(seq, newest), max(0, newest - seq))
        last = newest if len(events) == skip else events[-1].seq
        return EventBatch(events, last, max(0, last - seq - len(events)))
