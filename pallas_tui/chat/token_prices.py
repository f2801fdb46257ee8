"""The cost of an answer, where the user's settings name the price of its model."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

_PER: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """The prices of a million input and output tokens, in the currency of the settings."""

    input: float
    output: float

    def cost(self, tokens_in: int, tokens_out: int) -> float:
        """Return the cost of that many tokens."""
        return (tokens_in * self.input + tokens_out * self.output) / _PER


def price_of(model: str, prices: Any) -> TokenPrice | None:
    """Return the price of ``model`` in ``prices: {pattern: {input: 3.0, output: 15.0}}``; None if unknown.

    Patterns have ``*`` and ``?`` and ignore case; of several that match, the one with most letters wins. An
    invalid price is skipped: the reader of the settings reports it.
    """
    if not model or not isinstance(prices, Mapping):
        return None
    fitting = [
        (len(str(pattern).replace("*", "").replace("?", "")), price)
        for pattern, entry in prices.items()
        if fnmatchcase(model.lower(), str(pattern).lower()) and (price := _price(entry)) is not None
    ]
    return max(fitting, key=lambda each: each[0])[1] if fitting else None


def tokens(number: int) -> str:
    """Return ``812``, ``1.2k`` or ``3.4M``."""
    if number < 1_000:
        return str(number)
    if number < 999_500:
        return f"{number / 1_000:.1f}k" if number < 99_950 else f"{number / 1_000:.0f}k"
    return f"{number / 1_000_000:.1f}M"


def _price(entry: Any) -> TokenPrice | None:
    def number(name: str) -> float | None:
        value = entry.get(name) if isinstance(entry, Mapping) else getattr(entry, name, None)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
            return None
        return float(value)

    there, back = number("input"), number("output")
    return TokenPrice(there, back) if there is not None and back is not None else None
