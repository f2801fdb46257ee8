"""How often a server is asked again for a stream of events that it keeps closing.

The SDK asks again one second after each end, or at once if the server says ``retry: 0``, without end.
"""

from collections import OrderedDict
from time import monotonic
from typing import Final

LONG_SECONDS: Final = 30.0
"""A stream that lasts so long was worth asking for."""
LONGEST_PAUSE: Final = 15.0
MAX_UNCHANGED: Final = 5
"""How often in a row a stream may end at the event that it began after."""
_FREE: Final = 3
_MAX_STREAMS: Final = 100


class StreamPauses:
    """The streams that one connection, or one call, has asked for."""

    def __init__(self) -> None:
        self._asked: OrderedDict[str, int] = OrderedDict()
        self._short = 0
        self._next = 0.0

    def before(self, event: str) -> float | None:
        """Return how long to wait before the next stream, which begins after ``event``; None for too often.

        The first three that end soon need no wait; the others need twice the wait of the one before.
        """
        now = monotonic()
        self._short = 1 if now > self._next + LONG_SECONDS else self._short + 1
        pause = min(2.0 ** (self._short - _FREE - 1), LONGEST_PAUSE) if self._short > _FREE else 0.0
        self._next = now + pause
        times = self._asked[event] = self._asked.pop(event, 0) + 1
        if len(self._asked) > _MAX_STREAMS:
            self._asked.popitem(last=False)
        return None if event and times > MAX_UNCHANGED else pause
