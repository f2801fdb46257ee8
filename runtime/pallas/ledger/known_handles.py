"""Which handles of callers the threads of a ledger have: for most new ones no look into it is needed."""

from collections.abc import Iterable, Iterator
from typing import Final

MOST: Final = 200_000
"""Stored handles that are read; where there are more, each handle is looked for."""
_BITS: Final = 1 << 21
_PLACES: Final = 4
_HASH: Final = (1 << 64) - 1


class HandleFilter:
    """A set of handles that says of one handle in a hundred, at ``MOST``, that it has it though it does not.

    It never says that it does not have one that was added. It takes 256 KiB, however many there are.
    """

    def __init__(self, handles: Iterable[str] = ()) -> None:
        self._bits = bytearray(_BITS // 8)
        for handle in handles:
            self.add(handle)

    def add(self, handle: str) -> None:
        """Add a handle."""
        for place in _places(handle):
            self._bits[place >> 3] |= 1 << (place & 7)

    def __contains__(self, handle: str) -> bool:
        return all(self._bits[place >> 3] & 1 << (place & 7) for place in _places(handle))


class KnownHandles:
    """The handles of all threads: those that are added, and once they are read, those that were stored."""

    def __init__(self) -> None:
        self._added = HandleFilter()
        self._stored: HandleFilter | None = None

    def add(self, handle: str) -> None:
        """Add the handle of a thread that is going to be written."""
        self._added.add(handle)

    def are(self, stored: HandleFilter) -> None:
        """Set those that the ledger had."""
        self._stored = stored

    def may_have(self, handle: str) -> bool:
        """Whether a thread may have that handle; of one that no thread has, this is seldom true."""
        return self._stored is None or handle in self._added or handle in self._stored


def _places(handle: str) -> Iterator[int]:
    first = hash(handle) & _HASH
    step = first >> 32 | 1
    return ((first + number * step) % _BITS for number in range(_PLACES))
