"""What is known of a fleet elsewhere, and whether that is still true; safe from any thread."""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from threading import Lock
from time import time
from typing import Final, Literal

from pallas.model import Event, EventBatch, FleetChanged, FleetSnapshot, FleetState, Notice
from pallas.model.safe_text import one_line

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


class FleetMirror:
    """The last snapshot of the fleet, its events, and what became of the connection to it."""

    def __init__(self, name: str) -> None:
        self._snapshot = FleetSnapshot(name, FleetState.STARTING, time(), "")
        self._ring = EventRing()
        self._lock = Lock()
        self.can_control = False

    def snapshot(self) -> FleetSnapshot:
        """The fleet as it was last seen; ``stale`` says so when that is some time ago."""
        return self._snapshot

    def since(self, seq: int, limit: int) -> EventBatch:
        """Events that came, and what is said about the connection."""
        return self._ring.since(seq, limit)

    def seen(self, snapshot: FleetSnapshot) -> None:
        """The fleet is like this now."""
        with self._lock:
            self._snapshot = snapshot

    def heard(self, events: Iterable[Event], lost: int = 0) -> None:
        """This happened in the fleet; ``lost`` other events before it did not come."""
        self._ring.add(events, lost)

    def lost(self, reason: str, *, news: bool = False) -> None:
        """Nothing comes any more; told once for each loss, and again when a try brings ``news``."""
        with self._lock:
            before, stale = self._snapshot.stale, one_line(reason, 200)
            if before and (before == stale or not news):  # that nothing answers says less than why it ended
                return
            self._snapshot = replace(self._snapshot, stale=stale)
        self.tell("error", reason)

    def failed(self, error: str) -> None:
        """The fleet cannot be looked at, and trying again by itself would not help."""
        with self._lock:
            self._snapshot = replace(
                self._snapshot, state=FleetState.FAILED, error=error, stale="could not be attached"
            )
        self.heard([FleetChanged(state=FleetState.FAILED, detail=one_line(error, 200))])

    def tell(self, level: Literal["info", "warning", "error"], text: str) -> None:
        """Say something to whoever looks."""
        self.heard([Notice(level=level, text=one_line(text, 300))])
