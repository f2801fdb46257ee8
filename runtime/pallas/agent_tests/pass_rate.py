"""How often a test passes when it is repeated, and how sure that is."""

from math import sqrt
from typing import Final

_Z: Final = 1.959963984540054
"""Of the normal distribution, for 95 %."""


def interval(passed: int, of: int) -> tuple[float, float]:
    """The 95 % interval of Wilson (1927) for the rate of a test that passed so often.

    https://doi.org/10.1080/01621459.1927.10502953
    """
    if not of:
        return 0.0, 1.0
    rate, square = passed / of, _Z * _Z
    centre = rate + square / (2 * of)
    spread = _Z * sqrt(rate * (1 - rate) / of + square / (4 * of * of))
    below, above = ((centre + sign * spread) / (1 + square / of) for sign in (-1, 1))
    return max(0.0, below), min(1.0, above)


def all_of(passed: int, of: int) -> float:
    """The chance that as many further repetitions all pass, at this rate (pass^N)."""
    return (passed / of) ** of if of else 0.0
