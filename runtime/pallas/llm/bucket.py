"""Tokens a minute, as a bucket that fills by itself (HC-29).

Who takes is told how long to wait and then goes on: the order of asking is the order of going, nobody small
overtakes somebody large, the wait is known before it begins, and what turned out larger than it was estimated
is owed. Limiters that only say "not yet" know none of it.
"""

from collections.abc import Callable
from typing import Final

MINUTE: Final = 60.0


class TokenBucket:
    """``capacity`` tokens, filled within a minute; 0 for any number. ``clock`` counts seconds."""

    def __init__(self, capacity: int, clock: Callable[[], float]) -> None:
        self.capacity = capacity
        self._clock = clock
        self._level = float(capacity)
        self._filled = clock()

    @property
    def level(self) -> float:
        """Tokens that may be taken at once; below 0 where they are promised already."""
        self._fill()
        return self._level

    def holds(self, amount: int) -> bool:
        """Whether so many could ever be taken (X9)."""
        return not self.capacity or amount <= self.capacity

    def wait_for(self, amount: int) -> float:
        """Seconds until so many may be used, after all that were promised before."""
        if not self.capacity:
            return 0.0
        return max(0.0, amount - self.level) * MINUTE / self.capacity

    def take(self, amount: int) -> float:
        """Take so many, now or as they come: seconds to wait before they are used."""
        wait = self.wait_for(amount)
        if self.capacity:
            self._level -= amount
        return wait

    def settle(self, taken: int, used: int) -> None:
        """It turned out to be ``used``: the rest comes back; what was more is owed, up to a minute of it."""
        if not self.capacity:
            return
        self._fill()
        more = used - taken
        if more > 0:
            # Those that wait were promised their time: what one answer was too long delays those that come.
            self._level = max(self._level - more, min(self._level, -float(self.capacity)))
        else:
            self._level = min(float(self.capacity), self._level - more)

    def _fill(self) -> None:
        now = self._clock()
        gained = (now - self._filled) * self.capacity / MINUTE
        self._level = min(float(self.capacity), self._level + gained)
        self._filled = now
