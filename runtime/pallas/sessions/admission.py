"""How many requests are taken at a time (SPEC 7.4, DR-19)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pallas.model import Fault, FaultType

AGAIN: float = 1.0
"""Seconds after which one that was refused does well to come again."""


class Admission:
    """Counts the requests under way; ``limit`` is asked at each. One event loop only."""

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self.active = 0

    @contextmanager
    def taken(self) -> Iterator[None]:
        """One request, from its beginning to its end.

        Raises Fault (TRANSPORT, retryable) ``Server overloaded`` where too many are under way; none waits.
        """
        limit = self._limit()
        if self.active >= limit:
            data = {"limit": limit, "active": self.active, "retry_after": AGAIN}
            raise Fault(FaultType.TRANSPORT, "Server overloaded", data=data)
        self.active += 1
        try:
            yield
        finally:
            self.active -= 1
