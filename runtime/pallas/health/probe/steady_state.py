"""What is said of something that is looked at again and again, without flapping."""

from collections.abc import Hashable
from typing import Final

CONFIRMATIONS: Final = 2


class Steady[T]:
    """Keeps the value that is shown while looks come in one after the other.

    The first look counts at once, and so does one that is bad beyond doubt. Any other change of ``state``,
    for the worse or for the better, is shown when ``CONFIRMATIONS`` looks in a row say the same; with
    ``recovers_at_once`` one good look is enough.
    """

    def __init__(self, *, recovers_at_once: bool = False) -> None:
        self._shown: tuple[Hashable, T] | None = None
        self._pending: Hashable = None
        self._count = 0
        self._recovers_at_once = recovers_at_once

    @property
    def unconfirmed(self) -> bool:
        """Whether the last look differed from what is shown: look again soon."""
        return self._count > 0

    def take(self, value: T, state: Hashable, *, good: bool, certain: bool) -> T:
        """The value to show after this look. ``state`` is what two looks are compared by."""
        if self._shown is not None and not self._counts(state, good, certain):
            return self._shown[1]
        self._shown, self._pending, self._count = (state, value), None, 0
        return value

    def _counts(self, state: Hashable, good: bool, certain: bool) -> bool:
        assert self._shown is not None
        if state == self._shown[0] or (self._recovers_at_once if good else certain):
            return True
        self._count = self._count + 1 if state == self._pending else 1
        self._pending = state
        return self._count >= CONFIRMATIONS
