"""Money as an int of nano-US-dollars, and as text."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any, Final, Literal, Protocol

USD: Final = 10**9
"""Nano-US-dollars in one US dollar."""
MAX_MONEY: Final = 2**63 - 1
"""The largest sum that a database column holds."""
MAX_COST: Final = 10**6 * USD
"""The highest cost of an answer that is believed."""
MAX_UNPRICED: Final = 10**9
"""Most answers without a known price that a document may name."""
_OWN, _TREE = ("cost", "unpriced"), ("treeCost", "treeUnpriced")
UNKNOWN: Final = "unknown"
"""What is shown for a cost that is not known."""


def usd_text(cost: int | None, unpriced: int = 0) -> str:
    """The cost for people: ``$0.0123``, ``<$0.0001``, ``$1.50``; empty where there was nothing to pay for.

    ``unpriced`` answers have no known price: then ``$0.0123+``, or ``unknown`` without any price.
    """
    if cost is None:
        return UNKNOWN if unpriced else ""
    if unpriced:
        return f"{_amount(cost)}+" if cost >= USD // 10_000 else "$0+"
    if 0 < cost < USD // 10_000:
        return "<$0.0001"
    return _amount(cost)


def usd_decimal(cost: int) -> str:
    """The exact number of US dollars as JSON documents have it: ``0.0123``."""
    whole, rest = divmod(cost, USD)
    return f"{whole}.{rest:09d}".rstrip("0").rstrip(".")


def cost_fields(own: "Priced", tree: "Priced | None" = None) -> dict[str, Any]:
    """The cost of something as JSON documents have it: ``cost`` (as ``usd_decimal``, or None), ``unpriced``.

    With ``tree``, the cost of a run with the runs below it, also ``treeCost`` and ``treeUnpriced``.
    """
    fields = {"cost": None if own.cost is None else usd_decimal(own.cost), "unpriced": own.unpriced}
    if tree is None:
        return fields
    whole = cost_fields(tree)
    return {**fields, "treeCost": whole["cost"], "treeUnpriced": whole["unpriced"]}


def cost_in(document: Mapping[str, Any], *, tree: bool = False) -> "Cost":
    """The cost that ``cost_fields`` made these fields of; none of it where there are no such fields."""
    cost, unpriced = (document.get(name) for name in (_TREE if tree else _OWN))
    count = unpriced if isinstance(unpriced, int) and 0 <= unpriced <= MAX_UNPRICED else 0
    return Cost(nano_usd(str(cost)) if cost is not None else None, int(count))


def nano_usd(text: str) -> int | None:
    """A number of US dollars as nano-US-dollars, rounded; None if the text is none, or is negative."""
    try:
        found = Decimal(text)
        if not 0 <= found <= MAX_MONEY // USD:  # before it is worked with: a caller may send 1e999999
            return None
        return int((found * USD).to_integral_value(ROUND_HALF_UP))
    except (InvalidOperation, ValueError):  # also of what is not a number at all
        return None


def believed(cost: int | None) -> int | None:
    """The cost that another program reports of its answer; None if it is impossible."""
    return cost if cost is not None and 0 <= cost <= MAX_COST else None


class Priced(Protocol):
    """What has a cost: a step, a run, the usage of a run."""

    @property
    def cost(self) -> int | None:
        """Nano-US-dollars; None if no price is known, or nothing was to be paid for."""
        ...

    @property
    def unpriced(self) -> int:
        """How many answers of models have no known price."""
        ...


@dataclass(frozen=True, slots=True)
class Cost:
    """A sum of costs: at least ``cost``, and ``unpriced`` answers of models that no price is known of."""

    cost: int | None = None  # nano-US-dollars; None without any known price
    unpriced: int = 0

    @classmethod
    def of(cls, item: Priced) -> "Cost":
        """The cost of a step, a run or a usage."""
        return cls(item.cost, item.unpriced)

    @classmethod
    def sum(cls, items: "Iterable[Priced]") -> "Cost":
        """The sum of the costs of these."""
        total = cls()
        for item in items:
            total += item
        return total

    def __add__(self, other: Priced) -> "Cost":
        """The sum, at most ``MAX_MONEY``; its ``cost`` is None if neither has one."""
        known = [each for each in (self.cost, other.cost) if each is not None]
        return Cost(min(MAX_MONEY, sum(known)) if known else None, self.unpriced + other.unpriced)

    def times(self, number: int) -> "Cost":
        """So many times the cost."""
        return Cost(None if self.cost is None else self.cost * number, self.unpriced * number)

    def since(self, before: Priced) -> "Cost":
        """What was added to ``before``."""
        added = None if self.cost is None else self.cost - (before.cost or 0)
        return Cost(added, self.unpriced - before.unpriced)

    @property
    def text(self) -> str:
        """As ``usd_text``."""
        return usd_text(self.cost, self.unpriced)

    @property
    def words(self) -> str:
        """The same where nothing else says that it is a cost: ``cost unknown``."""
        return f"cost {UNKNOWN}" if self.text == UNKNOWN else self.text

    @property
    def is_empty(self) -> bool:
        """Whether nothing was to be paid for, as far as it is known."""
        return self.cost is None and not self.unpriced


def _amount(cost: int) -> str:
    digits = 2 if cost >= USD else 4
    amount = (Decimal(cost) / USD).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return f"${amount:,f}" if cost else "$0"


NO_COST: Final = Cost()


@dataclass(frozen=True, slots=True)
class ModelCost:
    """What the answers of one model cost in a run; as ``Cost``."""

    model: str  # empty for what an agent reports, which names no model
    cost: int | None = None
    unpriced: int = 0


type CostsBy = Literal["agent", "caller", "thread", "version", "model"]
"""What costs are summed by."""


@dataclass(frozen=True, slots=True)
class CostSum:
    """What several runs cost; as ``Cost``. Of a model there are no tokens."""

    key: str  # the agent, principal, thread, ``AGENT@VERSION`` or model; empty for what belongs to none
    cost: int | None = None
    unpriced: int = 0
    runs: int = 0
    tokens_in: int | None = None
    tokens_out: int | None = None
