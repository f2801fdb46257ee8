"""``prices:``, what models cost where the list of prices does not know it, or knows it otherwise."""

from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import Field

from pallas.prices.price_book import PriceRule

from .field_types import Maybe, TextRule
from .file_model import FileModel

MAX_PRICES: Final = 200
MAX_PRICE: Final = 1_000_000
_AMOUNTS: Final = ("input", "output", "cached", "cache_write")


def _model_problem(text: str) -> str | None:
    provider, dot, model = text.partition(".")
    if provider and dot and model:
        return None
    return "names no model of a provider; allowed: PROVIDER.MODEL, for example openai.gpt-4o"


_Usd = Annotated[float, Field(ge=0, le=MAX_PRICE)]


class PriceEntry(FileModel):
    """What a model costs, in US dollars for a million tokens."""

    input: Maybe[_Usd] = None
    """Tokens that it reads."""
    output: Maybe[_Usd] = None
    """Tokens that it writes, with those of reasoning."""
    cached: Maybe[_Usd] = None
    """Tokens that it reads from its provider's cache; as ``input`` without it."""
    cache_write: Maybe[_Usd] = None
    """Tokens that are put into that cache; as ``input`` without it."""
    like: Maybe[Annotated[str, TextRule(_model_problem), Field(examples=["openai.gpt-4o"])]] = None
    """In place of the others: it costs what this model costs in the list of prices."""


_EXAMPLE: Final[dict[str, Any]] = {
    "openai.my-model": {"input": 3.0, "output": 15.0, "cached": 0.3, "cache_write": 3.75},
    "generic.*": {"input": 0, "output": 0},
}
Prices = Annotated[dict[str, PriceEntry] | None, Field(max_length=MAX_PRICES, examples=[_EXAMPLE])]
"""Patterns of ``MODEL`` or ``PROVIDER.MODEL``; the first one that fits counts."""


def price_rules(given: Prices) -> tuple[PriceRule, ...]:
    """The prices in order. What is wrong with one is noted."""
    return tuple(_rule(pattern, entry) for pattern, entry in (given or {}).items())


def _rule(pattern: str, entry: PriceEntry) -> PriceRule:
    section = entry.at
    if "like" in section:
        for key in _AMOUNTS:
            if key in section:
                section.error(key, "is given beside like", "allowed: only like, or input and output")
    else:
        section.need("input", "3.0")
        section.need("output", "15.0")
    amounts = {key: getattr(entry, key) for key in _AMOUNTS}
    known = {key: Decimal(str(value)) for key, value in amounts.items() if value is not None}
    return PriceRule(pattern, **known, like=entry.like or "")
