"""Limits how often one address may send a wrong token."""

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Final

BURST: Final = 10
"""Wrong tokens that one address may send at once; one more is allowed with each second after that."""

_ADDRESSES: Final = 1_024


class Attempts:
    """Wrong tokens by address: after the first few, an address may try once a second.

    Keeps at most 1,024 addresses and drops the one that failed longest ago.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, address: str) -> float:
        """Return the seconds until that address may try again; 0 if it may now."""
        return max(0.0, 1.0 - self._now(address))

    def failed(self, address: str) -> None:
        """Count a wrong token."""
        left = self._now(address) - 1.0
        self._left[address] = (max(0.0, left), self._clock())
        self._left.move_to_end(address)
        while len(self._left) > _ADDRESSES:
            self._left.popitem(last=False)

    def _now(self, address: str) -> float:
        left, at = self._left.get(address, (float(BURST), self._clock()))
        return min(float(BURST), left + self._clock() - at)
