"""The last known state of a remote fleet, and whether it is current. Safe from any thread."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from threading import Lock
from time import time
from typing import Final, Literal

from pallas.model import Event, EventBatch, FleetChanged, FleetSnapshot, FleetState, Notice
from pallas.safe_text import one_line

CAPACITY: Final = 20_000


class EventRing:
    """The last ``capacity`` events. A missing number is an event that was lost on the way.

    The remote fleet may count from 1 again; these numbers only grow. Safe from any thread.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._ring: deque[Event] = deque(maxlen=capacity)
        self._seq = 0
        self._lock = Lock()

    def add(self, events: Iterable[Event], lost: int = 0) -> None:
        """Add ``events``; ``lost`` others before them did not arrive."""
        with self._lock:
            self._seq += lost
            for event in events:
                self._seq += 1
                self._ring.append(replace(event, seq=self._seq))

    def since(self, seq: int, limit: int = 5_000) -> EventBatch:
        """Events with a number above ``seq``, oldest first, at most ``limit``."""
        with self._lock:
            newest = self._seq
            # From the end: a reader in time wants only the last ones.
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
    """The last snapshot of the fleet, its events, and the state of the connection to it."""

    def __init__(self, name: str) -> None:
        self._snapshot = FleetSnapshot(name, FleetState.STARTING, time(), "")
        self._ring = EventRing()
        self._lock = Lock()
        self._listeners: tuple[Callable[[], None], ...] = ()
        self.can_control = False

    def snapshot(self) -> FleetSnapshot:
        """The fleet as it was last seen; ``stale`` says so when that is some time ago."""
        return self._snapshot

    def since(self, seq: int, limit: int) -> EventBatch:
        """Events of the fleet and of the connection."""
        return self._ring.since(seq, limit)

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake``, on any thread, when something of it is new; returns a function that stops that."""
        self._listeners = (*self._listeners, wake)

        def stop() -> None:
            self._listeners = tuple(other for other in self._listeners if other is not wake)

        return stop

    def set_snapshot(self, snapshot: FleetSnapshot) -> None:
        """Replace the snapshot."""
        with self._lock:
            is_new, self._snapshot = snapshot != self._snapshot, snapshot
        if is_new:
            self._wake()

    def add_events(self, events: Iterable[Event], lost: int = 0) -> None:
        """Add events of the fleet; ``lost`` others before them did not arrive."""
        self._ring.add(events, lost)
        self._wake()

    def _wake(self) -> None:
        for wake in self._listeners:
            wake()

    def connection_lost(self, reason: str, *, report_again: bool = False) -> None:
        """Mark the snapshot as stale; reported once for each loss, or each time by request."""
        with self._lock:
            before, stale = self._snapshot.stale, one_line(reason, 200)
            # Why it ended says more than that nothing answers.
            if before and (before == stale or not report_again):
                return
            self._snapshot = replace(self._snapshot, stale=stale)
        self.notify("error", reason)

    def fail(self, error: str) -> None:
        """Mark the fleet as failed: another try would not help."""
        with self._lock:
            self._snapshot = replace(
                self._snapshot, state=FleetState.FAILED, error=error, stale="could not be attached"
            )
        self.add_events([FleetChanged(state=FleetState.FAILED, detail=one_line(error, 200))])

    def notify(self, level: Literal["info", "warning", "error"], text: str) -> None:
        """Publish a Notice."""
        self.add_events([Notice(level=level, text=one_line(text, 300))])
