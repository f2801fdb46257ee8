"""A store for the last runs, bounded by a number of runs and of bytes; the oldest is dropped first."""

from collections import OrderedDict
from typing import Protocol


class RunRing(Protocol):
    """The entries of one run, oldest first."""

    @property
    def count(self) -> int:
        """The number of entries."""
        ...

    def drop_oldest(self) -> None:
        """Drop the oldest entry, and subtract its bytes from the store (``grow``)."""
        ...


class RingStore[S: RunRing]:
    """The rings of the last ``max_runs`` runs, together at most ``max_bytes``; ``size`` is the current number
    of bytes.
    """

    def __init__(self, max_bytes: int, max_runs: int) -> None:
        self._runs: OrderedDict[str, S] = OrderedDict()
        self._max_bytes = max_bytes
        self._max_runs = max_runs
        self.size = 0

    def of(self, run_id: str) -> S | None:
        """The ring of a run, None if there is none."""
        return self._runs.get(run_id)

    def put(self, run_id: str, shelf: S) -> S:
        """Add the ring of a run; replaces one of the same id, and drops the oldest runs if there are too
        many.
        """
        if run_id in self._runs:
            self._clear(run_id)
        self._runs[run_id] = shelf
        while len(self._runs) > self._max_runs:
            self._clear(next(iter(self._runs)))
        return shelf

    def grow(self, by: int) -> None:
        """Add ``by`` bytes to the size, and make room. The newest entry always stays."""
        self.size += by
        if by <= 0:
            return
        while self.size > self._max_bytes:
            run_id, oldest = next(iter(self._runs.items()))
            if oldest.count and (len(self._runs) > 1 or oldest.count > 1):
                oldest.drop_oldest()
            elif len(self._runs) > 1:
                del self._runs[run_id]
            else:
                return

    def _clear(self, run_id: str) -> None:
        shelf = self._runs.pop(run_id)
        while shelf.count:
            shelf.drop_oldest()
