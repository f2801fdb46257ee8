"""The Fault of a run that meets a limit, in words that its caller can act on."""

from collections.abc import Mapping
from typing import Any, Final

from pallas.model import Fault, FaultType
from pallas.model.spend_limits import (
    Amount,
    Dimension,
    SpendLimits,
    limit_key,
    plain_amount,
    shown_amount,
)

MARK: Final = "limitReached"
STOP_REASON: Final = "limit"
"""The stop reason of a run that ended at a limit with what it had."""
_WHOSE: Final = {"run": "this run", "caller": "this caller today", "agent": "this agent today"}


class LimitReached(Fault):
    """A question to a model that was not asked. UPSTREAM; to be tried again only when a new day begins.

    ``data`` has ``limit`` (``per_run.tokens``), ``where`` it is set, ``allowed`` and ``used`` (US dollars,
    tokens or questions), and ``retry_after`` in seconds where a new day helps.
    """

    def __init__(self, message: str, data: Mapping[str, Any]) -> None:
        super().__init__(
            FaultType.UPSTREAM, message, retryable="retry_after" in data, data={MARK: True, **data}
        )

    @property
    def words(self) -> str:
        """The end of an answer that was cut short by it."""
        return f"[Stopped: {self.message}]"


def limit_reached(
    scope: str,
    dimension: Dimension,
    limits: SpendLimits,
    used: Amount,
    asked: Amount,
    retry_after: float | None = None,
) -> LimitReached:
    """The Fault for an account that has no room for what a question takes at least.

    ``retry_after`` is that of an account for a day.
    """
    key, whose = limit_key(scope, dimension), _WHOSE[scope.partition(":")[0].partition("@")[0]]
    allowed, spent = limits.of(dimension) or 0, used.of(dimension)
    place = limits.places.get(dimension, "")
    at = f"limits.{key} ({place})" if place else f"limits.{key}"
    what = (
        f"the limit {at} of {shown_amount(dimension, allowed)} is reached: {whose} used "
        f"{shown_amount(dimension, spent)}"
    )
    if spent < allowed:
        what += f", and this question needs about {shown_amount(dimension, asked.of(dimension))}"
    fix = "ask for less at once" if retry_after is None else "try again after midnight UTC"
    data: dict[str, Any] = {
        "limit": key,
        "where": place,
        "allowed": plain_amount(dimension, allowed),
        "used": plain_amount(dimension, spent),
    }
    if retry_after is not None:
        data["retry_after"] = round(retry_after, 1)
    return LimitReached(f"{what}; {fix}, or raise the limit", data)


def unpriced_model(model: str, limits: SpendLimits) -> LimitReached:
    """The Fault for a model without a price, where ``limits.unpriced`` refuses those."""
    place = limits.places.get("usd", "")
    return LimitReached(
        f"the price of the model {model} is not known, and limits.unpriced is refuse; write its price under "
        "prices: in agents.yaml, or `unpriced: allow`",
        {"limit": "unpriced", "where": place, "model": model},
    )


def revived(fault: Fault) -> Fault:
    """A Fault from another process as LimitReached if it was one."""
    if fault.data.get(MARK) is not True or isinstance(fault, LimitReached):
        return fault
    return LimitReached(fault.message, fault.data)
