"""Limits on what runs may spend: money, tokens, and questions to models."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from .fault import Fault, FaultType
from .money import MAX_MONEY, nano_usd, usd_decimal, usd_text

Dimension = Literal["usd", "tokens", "steps"]
DIMENSIONS: Final[tuple[Dimension, ...]] = ("usd", "tokens", "steps")
"""What is limited: nano-US-dollars, tokens in and out, and questions to models."""
CALLER: Final = "given by the caller"
"""The place of a limit that no file sets."""
Unpriced = Literal["allow", "refuse"]


@dataclass(frozen=True, slots=True)
class Amount:
    """What was spent, or may be. Sums are exact."""

    usd: int = 0  # nano-US-dollars
    tokens: int = 0
    steps: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.usd + other.usd, self.tokens + other.tokens, self.steps + other.steps)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(self.usd - other.usd, self.tokens - other.tokens, self.steps - other.steps)

    def of(self, dimension: Dimension) -> int:
        """One of its numbers."""
        found: int = getattr(self, dimension)
        return found


NOTHING: Final = Amount()


@dataclass(frozen=True, slots=True)
class SpendLimits:
    """The most that may be spent; None for any. ``places`` has ``file:line`` of those that a file sets."""

    usd: int | None = None  # nano-US-dollars
    tokens: int | None = None
    steps: int | None = None
    places: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __bool__(self) -> bool:
        return any(self.of(each) is not None for each in DIMENSIONS)

    def of(self, dimension: Dimension) -> int | None:
        """The most of one dimension."""
        found: int | None = getattr(self, dimension)
        return found

    def to_json(self) -> dict[str, Any]:
        """As another fleet is told them: ``{"usd": "0.5", "tokens": 200000, "steps": 40}``."""
        found: dict[str, Any] = {"tokens": self.tokens, "steps": self.steps}
        if self.usd is not None:
            found["usd"] = usd_decimal(self.usd)
        return {name: value for name, value in found.items() if value is not None}

    def lowered(self, other: "SpendLimits") -> "SpendLimits":
        """The smaller of both in each dimension, with its place."""
        found = self
        for each in DIMENSIONS:
            theirs, own = other.of(each), found.of(each)
            if theirs is not None and (own is None or theirs < own):
                changes: dict[str, Any] = {each: theirs}
                places = {**found.places, each: other.places.get(each, "")}
                found = replace(found, places=places, **changes)
        return found


ANY: Final = SpendLimits()


@dataclass(frozen=True, slots=True)
class AccountStatus:
    """One limit of an account. Amounts are nano-US-dollars, tokens or steps."""

    scope: str  # ``run:ID``, ``caller:ID``, ``caller@AGENT:ID``, ``agent:NAME``
    dimension: Dimension
    allowed: int
    used: int
    held: int  # reserved for questions that are open
    left: int
    resets_at: float | None = None  # Unix time; None for a run
    where: str = ""  # ``file:line`` that sets it

    @property
    def key(self) -> str:
        """The limit as the files name it: ``per_caller.usd_per_day``."""
        return limit_key(self.scope, self.dimension)


def limit_key(scope: str, dimension: Dimension) -> str:
    """The limit of an account as the files name it."""
    kind = scope.partition(":")[0].partition("@")[0]
    return f"per_{kind}.{dimension}{'' if kind == 'run' else '_per_day'}"


def shown_amount(dimension: Dimension, number: int) -> str:
    """A number of a dimension in words: ``$0.5000``, ``200,000 tokens``, ``40 steps``."""
    return usd_text(number) if dimension == "usd" else f"{number:,} {dimension}"


def plain_amount(dimension: Dimension, number: int) -> int | str:
    """A number of a dimension as JSON documents have it; US dollars are a decimal text."""
    return usd_decimal(number) if dimension == "usd" else number


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """``limits:`` of the project or of an agent; those for callers and agents hold for a day in UTC."""

    per_run: SpendLimits = ANY
    per_caller: SpendLimits = ANY
    per_agent: SpendLimits = ANY
    unpriced: Unpriced = "allow"  # what becomes of questions to models without a price; of the project alone

    def __bool__(self) -> bool:
        return bool(self.per_run or self.per_caller or self.per_agent)


NO_LIMITS: Final = LimitsConfig()


def limits_in(given: Any, key: str) -> SpendLimits:
    """The limits that a caller gives its run, as ``SpendLimits.to_json`` writes them.

    Raises Fault (PROTOCOL) that names ``key``.
    """
    if not isinstance(given, Mapping) or given.keys() - set(DIMENSIONS):
        raise _wrong(key, 'write {"usd": "0.5", "tokens": 200000, "steps": 40}, or some of these')
    values: dict[str, Any] = {}
    for name, value in given.items():
        number = nano_usd(str(value)) if name == "usd" and isinstance(value, str | int | float) else value
        if isinstance(value, bool) or not isinstance(number, int) or not 0 <= number <= MAX_MONEY:
            raise _wrong(f"{key}.{name}", "write a number, not below 0")
        values[name] = number
    return SpendLimits(**values, places=dict.fromkeys(values, CALLER))


def _wrong(key: str, fix: str) -> Fault:
    return Fault(FaultType.PROTOCOL, f"{key} gives no limits; {fix}", data={"key": key})
