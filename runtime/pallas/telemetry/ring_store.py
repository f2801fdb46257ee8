"""What is kept of the last runs, within a number of runs and of bytes: the oldest goes first."""

from collections import OrderedDict
from typing import Protocol


class RunRing(Protocol):
    """What is kept of one run, oldest first."""

    @property
    def count(self) -> int:
        """How many things there are."""
        ...

    def drop_oldest(self) -> None:
        """Forget the oldest, and tell the shelves of the bytes that are free now (``grow``)."""
        ...


class RingStore[S: RunRing]:
    """The shelves of the last ``max_runs`` runs, ``max_bytes`` in all; ``size`` is how many are taken."""

    def __init__(self, max_bytes: int, max_runs: int) -> None:
        self._runs: OrderedDict[str, S] = OrderedDict()
        self._max_bytes = max_bytes
        self._max_runs = max_runs
        self.size = 0

    def of(self, run_id: str) -> S | None:
        """What is kept of a run, None where nothing is."""
        return self._runs.get(run_id)

    def put(self, run_id: str, shelf: S) -> S:
        """A run begins; what was kept under its id goes, and the oldest where there are too many."""
        if run_id in self._runs:
            self._clear(run_id)
        self._runs[run_id] = shelf
        while len(self._runs) > self._max_runs:
            self._clear(next(iter(self._runs)))
        return shelf

    def grow(self, by: int) -> None:
        """Count what was added or taken away, and make room; the newest thing always stays."""
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
