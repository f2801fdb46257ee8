"""The event hub: numbers every event and holds the last ones in a ring that never waits for a reader."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from threading import Lock

from pallas.model import Event, EventBatch

CAPACITY = 20_000


class EventHub:
    """A ring of the last ``capacity`` events. Publishing and reading are safe from any thread.

    A slow reader loses the oldest events; ``EventBatch.dropped`` counts them.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._ring: deque[Event] = deque(maxlen=capacity)
        self._seq = 0
        self._lock = Lock()
        self._listeners: tuple[Callable[[Event], None], ...] = ()

    @property
    def seq(self) -> int:
        """The number of the newest event, 0 if there was none."""
        return self._seq

    def publish(self, event: Event) -> Event:
        """Number the event, store it, and call the listeners; returns the numbered event.

        That is the given event itself, unless it has a number already; then it is copied.
        """
        with self._lock:
            self._seq += 1
            if event.seq:
                event = replace(event, seq=self._seq)
            else:
                # A copy, for each piece of streamed text, takes six times as long as everything else here.
                object.__setattr__(event, "seq", self._seq)
            self._ring.append(event)
        for listener in self._listeners:
            listener(event)
        return event

    def listen(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call ``listener`` for each event on the publisher's thread; it must return at once.

        Returns a function that stops that.
        """
        self._listeners = (*self._listeners, listener)

        def stop() -> None:
            self._listeners = tuple(other for other in self._listeners if other is not listener)

        return stop

    def since(self, seq: int, limit: int = 5_000) -> EventBatch:
        """Events with a number above ``seq``, oldest first, at most ``limit``."""
        with self._lock:
            if not self._ring or seq >= self._seq:
                return EventBatch((), max(seq, self._seq) if self._seq else 0)
            first = self._ring[0].seq
            dropped = max(0, first - 1 - seq)
            start = max(0, seq + 1 - first)
            events = tuple(islice(self._ring, start, start + limit))
        return EventBatch(events, events[-1].seq, dropped)
