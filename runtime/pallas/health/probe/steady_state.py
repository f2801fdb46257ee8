"""Debounces repeated observations, so that a shown state does not flap."""

from collections.abc import Hashable
from typing import Final

CONFIRMATIONS: Final = 2


class Steady[T]:
    """The value to show while observations arrive.

    The first observation counts at once, and so does a bad one that is certain. Any other change of
    ``state``, for worse or better, is shown after ``CONFIRMATIONS`` equal observations in a row; with
    ``recovers_at_once`` one good observation is enough.
    """

    def __init__(self, *, recovers_at_once: bool = False) -> None:
        self._shown: tuple[Hashable, T] | None = None
        self._pending: Hashable = None
        self._count = 0
        self._recovers_at_once = recovers_at_once

    @property
    def unconfirmed(self) -> bool:
        """Whether the last observation differs from the shown value; if so, observe again soon."""
        return self._count > 0

    def take(self, value: T, state: Hashable, *, good: bool, certain: bool) -> T:
        """Take an observation; returns the value to show. Two observations are compared by ``state``."""
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
