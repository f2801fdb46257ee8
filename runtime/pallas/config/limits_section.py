"""``limits:``: what runs, callers and agents may spend."""

import re
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

from pallas.model.money import USD
from pallas.model.spend_limits import ANY, NO_LIMITS, LimitsConfig, SpendLimits, Unpriced

from .field_types import CHOICE, Maybe, refused
from .file_model import FileModel

MAX_TOKENS: Final = 10**15
MAX_USD: Final = 1_000_000
MAX_STEPS: Final = 1_000_000
_COUNT: Final = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([kKmM]?)", re.ASCII)
_UNITS: Final = {"": 1, "k": 1_000, "m": 1_000_000}


def _count(value: Any) -> int:
    """A number of tokens: ``200000``, ``200k`` or ``1.5M``."""
    found = _COUNT.fullmatch(str(value).strip()) if isinstance(value, int | float | str) else None
    if found is None or isinstance(value, bool):
        raise refused("is not a number of tokens; allowed: 200000, 200k or 1.5M")
    number = Decimal(found[1]) * _UNITS[found[2].lower()]
    if number != int(number) or not 1 <= number <= MAX_TOKENS:
        raise refused("is out of range; allowed: 1 or more, such as 200k")
    return int(number)


_Tokens = Annotated[
    int,
    BeforeValidator(_count),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": r"^\d+(\.\d+)?[kKmM]?$"}]}
    ),
]
_Usd = Annotated[float, Field(ge=0.000001, le=MAX_USD)]


class RunLimitsEntry(FileModel):
    """What one run may spend, together with the runs that it leads to."""

    usd: Annotated[Maybe[_Usd], Field(examples=[0.5])] = None
    """US dollars, as far as the prices of its models are known."""
    tokens: Annotated[Maybe[_Tokens], Field(examples=["200k"])] = None
    """Tokens in and out: ``200000``, ``200k``, ``1.5M``."""
    steps: Annotated[Maybe[Annotated[int, Field(ge=1, le=MAX_STEPS)]], Field(examples=[40])] = None
    """Questions to models."""


class DayLimitsEntry(FileModel):
    """What may be spent in a day, from midnight to midnight in UTC."""

    usd_per_day: Annotated[Maybe[_Usd], Field(examples=[5])] = None
    """US dollars, as far as the prices of the models are known."""
    tokens_per_day: Annotated[Maybe[_Tokens], Field(examples=["2M"])] = None
    """Tokens in and out: ``200000``, ``200k``, ``1.5M``."""


class LimitsEntry(FileModel):
    """What an agent's runs may spend; the project's limits apply as well."""

    per_run: RunLimitsEntry | None = None
    """One run, together with the runs that it leads to."""
    per_caller: DayLimitsEntry | None = None
    """Each caller in a day, of this agent alone."""
    per_agent: DayLimitsEntry | None = None
    """The agent in a day, for all callers."""


class ProjectLimitsEntry(FileModel):
    """What runs, callers and agents may spend. A run that reaches a limit ends with what it has."""

    per_run: RunLimitsEntry | None = None
    """One run, together with the runs that it leads to."""
    per_caller: DayLimitsEntry | None = None
    """Each caller in a day, of all agents together."""
    per_agent: DayLimitsEntry | None = None
    """Each agent in a day, for all callers."""
    unpriced: Annotated[Unpriced, CHOICE] = "allow"
    """With ``refuse``, a model without a known price is not asked where a limit is in US dollars."""


def limits_of(given: LimitsEntry | ProjectLimitsEntry | None) -> LimitsConfig:
    """``limits:`` as a value; limits on nothing where it is left out."""
    if given is None:
        return NO_LIMITS
    return LimitsConfig(
        per_run=_limits(given.per_run, usd="usd", tokens="tokens", steps="steps"),
        per_caller=_limits(given.per_caller, usd="usd_per_day", tokens="tokens_per_day"),
        per_agent=_limits(given.per_agent, usd="usd_per_day", tokens="tokens_per_day"),
        unpriced=given.unpriced if isinstance(given, ProjectLimitsEntry) else "allow",
    )


def _limits(entry: RunLimitsEntry | DayLimitsEntry | None, **keys: str) -> SpendLimits:
    if entry is None:
        return ANY
    values = {name: getattr(entry, key) for name, key in keys.items()}
    usd = values.get("usd")
    return SpendLimits(
        usd=None if usd is None else int(Decimal(str(usd)) * USD),
        tokens=values.get("tokens"),
        steps=values.get("steps"),
        places={name: str(entry.at.place(key)) for name, key in keys.items() if key in entry.at},
    )
