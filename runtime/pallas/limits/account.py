"""One account: what was used, what is reserved, and whether one more question has room."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

from pallas.model.spend_limits import (
    DIMENSIONS,
    NOTHING,
    AccountStatus,
    Amount,
    Dimension,
    SpendLimits,
)

DAY_S: Final = 86_400


class Estimate(NamedTuple):
    """What a question will use at least, and what it may use at most."""

    least: Amount
    most: Amount


class Verdict(NamedTuple):
    """Whether a question is asked now, after others have ended, or not at all: ``limit`` is why not."""

    what: Literal["admit", "wait", "refuse"]
    limit: Dimension | None = None


ADMIT = Verdict("admit")
WAIT = Verdict("wait")


def verdict_of(limits: SpendLimits, used: Amount, held: Amount, open_calls: int, asked: Estimate) -> Verdict:
    """Whether a question has room. At most one question at a time may exceed a limit, and it is alone then.

    A question that will not have room however little the open ones use is refused at once.
    """
    fits = True
    for each in DIMENSIONS:
        limit = limits.of(each)
        if limit is None:
            continue
        if each == "steps":  # each question that is asked is one, whatever it uses
            if used.steps + held.steps + asked.least.steps > limit:
                return Verdict("refuse", each)
        elif used.of(each) + asked.least.of(each) >= limit:
            return Verdict("refuse", each)
        elif used.of(each) + held.of(each) + asked.most.of(each) > limit:
            fits = False
    return ADMIT if fits or not open_calls else WAIT


class Account:
    """The spending of one run with the runs below it, or of a caller or agent in a day.

    ``scope`` names what it counts: ``run:ID``, ``caller:ID``, ``caller@AGENT:ID``, ``agent:NAME``. One event
    loop only.
    """

    __slots__ = ("held", "limits", "open_calls", "scope", "used")

    def __init__(self, scope: str, limits: SpendLimits, used: Amount = NOTHING) -> None:
        self.scope = scope
        self.limits = limits
        self.used = used
        self.held = NOTHING
        self.open_calls = 0

    def verdict(self, asked: Estimate) -> Verdict:
        """Whether a question has room now."""
        return verdict_of(self.limits, self.used, self.held, self.open_calls, asked)

    def hold(self, most: Amount) -> None:
        """Reserve what a question may use."""
        self.held += most
        self.open_calls += 1

    def settle(self, most: Amount, used: Amount) -> None:
        """Replace a reservation by what was used."""
        self.held -= most
        self.open_calls -= 1
        self.used += used

    @property
    def resets_at(self) -> float | None:
        """When it begins again (Unix time); None for a run."""
        return None

    def statuses(self) -> Iterator[AccountStatus]:
        """Each of its limits, with what remains."""
        for each in DIMENSIONS:
            if (limit := self.limits.of(each)) is not None:
                used, held = self.used.of(each), self.held.of(each)
                left, place = max(0, limit - used), self.limits.places.get(each, "")
                yield AccountStatus(self.scope, each, limit, used, held, left, self.resets_at, place)


class DayAccount(Account):
    """An account of one day in UTC, ``2026-11-28``."""

    __slots__ = ("day",)

    def __init__(self, scope: str, day: str, limits: SpendLimits, used: Amount = NOTHING) -> None:
        super().__init__(scope, limits, used)
        self.day = day

    @property
    def resets_at(self) -> float:
        """As in ``Account``: when the next day begins."""
        return datetime.fromisoformat(self.day).replace(tzinfo=UTC).timestamp() + DAY_S


def day_of(at: float) -> str:
    """The day in UTC of a Unix time."""
    return datetime.fromtimestamp(at, UTC).date().isoformat()
