"""What the runs of one fleet spend: opens the accounts of each run, and prices its questions to models."""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import time
from typing import Any, Final

from pallas.model import Notice, StepUsage
from pallas.model.spend_limits import (
    ANY,
    NOTHING,
    AccountStatus,
    Amount,
    LimitsConfig,
    SpendLimits,
    shown_amount,
)
from pallas.model.token_estimate import CHARACTERS_A_TOKEN
from pallas.safe_text import one_line

from .account import Account, DayAccount, Estimate, day_of
from .admission import Admission, DayLedger, Hold
from .limit_reached import LimitReached, unpriced_model
from .meter import MARGIN, MAX_OUTPUT, ModelCall, ModelUse, TokenRatios

log = logging.getLogger(__name__)

type Price = Callable[[str, str, StepUsage, float, str], int | None]
"""As ``PriceBook.price``: of a provider's model, what it used, when and where; in nano-US-dollars."""

type PricesReady = Callable[[str, str, str], Awaitable[None]]
"""As ``PriceBook.ready``: returns when ``Price`` of a provider's model at a URL does not block any more."""

MAX_RUNS: Final = 500
"""Runs whose accounts are known after their end."""
MAX_ACCOUNTS: Final = 10_000
"""Accounts of a day that are kept in memory where there is no ledger: those that were used last."""
WARN_AT: Final = 0.8
"""The share of a limit for a day at which a Notice warns."""


async def _always_ready(provider: str, model: str, url: str) -> None:
    pass


class RunMeter:
    """The questions of one run: ``ModelMeter`` in the fleet's own process."""

    def __init__(
        self,
        spending: "Spending",
        above: str,
        own: Account | None,
        days: tuple[tuple[str, SpendLimits], ...],
        *,
        refuses_unpriced: bool,
    ) -> None:
        self._spending = spending
        self._above = above
        self._own = own
        self._days = days
        self._refuses_unpriced = refuses_unpriced
        self.reached: LimitReached | None = None
        self.is_open = True  # its run is not over

    @property
    def accounts(self) -> tuple[Account, ...]:
        """Those of the runs above it, and its own. A run above may have come after it, taken over later."""
        above = self._spending.of(self._above)
        own = () if self._own is None else (self._own,)
        return (*(above.accounts if above is not None else ()), *own)

    @property
    def callers(self) -> Mapping[str, SpendLimits]:
        """What the callers of this run, and of those above it, may spend in a day, by account."""
        return {scope: limits for scope, limits in self._days if scope.startswith("caller:")}

    async def reserve(self, call: ModelCall) -> "FleetCall":
        """As ``ModelMeter``."""
        if self._has_money and call.model:
            await self._spending.prices_ready(call.provider, call.model, call.url)
        try:
            asked = self._estimate(call)
            hold = await self._spending.reserve(self.accounts, self._days, asked)
        except LimitReached as reached:
            self.reached = reached
            raise
        return FleetCall(self._spending, call, hold)

    async def statuses(self) -> tuple[AccountStatus, ...]:
        """Each limit that holds for it, with what remains."""
        days = await self._spending.days(self._days)
        return tuple(status for account in (*self.accounts, *days) for status in account.statuses())

    async def remaining(self) -> SpendLimits:
        """The least that remains in each dimension."""
        found = ANY
        for each in await self.statuses():
            left: dict[str, Any] = {each.dimension: each.left}
            found = found.lowered(SpendLimits(**left, places={each.dimension: each.where}))
        return found

    def _estimate(self, call: ModelCall) -> Estimate:
        spending = self._spending
        tokens, output = spending.ratios.tokens(call), call.max_output or MAX_OUTPUT
        least = Amount(tokens=tokens, steps=1)
        most = Amount(tokens=MARGIN * tokens + output, steps=1)
        if not self._has_money or not call.model:
            return Estimate(least, most)
        asked = spending.price_of(call, StepUsage(tokens, 0))
        at_most = spending.price_of(call, StepUsage(MARGIN * tokens, output))
        if asked is None or at_most is None:
            if self._refuses_unpriced:
                raise unpriced_model(call.model, self._money_limits)
            spending.warn_unpriced(call.model)
            return Estimate(least, most)
        return Estimate(replace(least, usd=asked), replace(most, usd=at_most))

    @property
    def _limits(self) -> Iterator[SpendLimits]:
        yield from (account.limits for account in self.accounts)
        yield from (limits for _, limits in self._days)

    @property
    def _has_money(self) -> bool:
        return any(limits.usd is not None for limits in self._limits)

    @property
    def _money_limits(self) -> SpendLimits:
        return next(limits for limits in self._limits if limits.usd is not None)


class FleetCall:
    """A question that was admitted."""

    __slots__ = ("_call", "_hold", "_spending")

    def __init__(self, spending: "Spending", call: ModelCall, hold: Hold) -> None:
        self._spending = spending
        self._call = call
        self._hold = hold

    def settle(self, use: ModelUse) -> None:
        """As ``CallMeter``."""
        self._hold.settle(self._used(use))
        self._spending.ratios.learn(self._call, use)

    def _used(self, use: ModelUse) -> Amount:
        if not use.sent:
            return Amount(steps=1)
        usage, cost = use.usage, use.cost
        if usage.input is None and usage.output is None and not use.answered:
            return Amount(cost or 0, 0, 1)
        # What its provider did not count was sent and written all the same.
        taken = self._hold.asked.least.tokens if usage.input is None else usage.input
        given = int(use.written / CHARACTERS_A_TOKEN) if usage.output is None else usage.output
        if cost is None:
            asked = replace(self._call, model=use.model or self._call.model, url=use.url or self._call.url)
            cost = self._spending.price_of(asked, replace(usage, input=taken, output=given))
        return Amount(cost or 0, taken + given, 1)


class Spending:
    """The accounts of one fleet. One event loop only.

    ``config`` returns the project's limits and those of an agent; ``prices_ready`` is awaited
    before a price is asked for. Without ``use_ledger`` the accounts of days are in memory.
    """

    def __init__(
        self,
        config: Callable[[str], tuple[LimitsConfig, LimitsConfig]],
        price: Price = lambda provider, model, usage, at, url: None,
        prices_ready: PricesReady = _always_ready,
        *,
        publish: Callable[[Notice], object] = lambda notice: None,
        clock: Callable[[], float] = time,
    ) -> None:
        self._config = config
        self._price = price
        self.prices_ready = prices_ready
        self._clock = clock
        self.ratios = TokenRatios()
        self._publish = publish
        self._admission = Admission(clock)
        self._runs: OrderedDict[str, RunMeter] = OrderedDict()
        self._days: OrderedDict[tuple[str, str], DayAccount] = OrderedDict()
        self._unpriced: set[str] = set()
        self._warned: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def use_ledger(self, ledger: DayLedger) -> None:
        """Keep the accounts of days there, shared with all replicas. Call it before the first run."""
        self._admission.ledger = ledger

    def price_of(self, call: ModelCall, usage: StepUsage) -> int | None:
        """The price of what a question uses, in nano-US-dollars; None if it is not known."""
        if not call.model:
            return None
        return self._price(call.provider, call.model, usage, self._clock(), call.url)

    def open(
        self,
        run_id: str,
        agent: str,
        principal: str,
        *,
        above: str = "",
        for_caller: bool = False,
        asked: SpendLimits = ANY,
        used: Amount | None = None,
    ) -> RunMeter | None:
        """The meter of a run that begins; None where nothing limits it.

        ``above`` is the id of the run that asks for it; with ``for_caller`` the callers of that run pay for
        it too. ``asked`` is what its caller allows it. ``used`` is what it used in another fleet, with the
        runs below it; None for a run that begins here.
        """
        project, config = self._config(agent)
        is_root = above not in self._runs
        limits = config.per_run.lowered(asked)
        if is_root:
            limits = limits.lowered(project.per_run)
        days = [
            (f"agent:{agent}", project.per_agent.lowered(config.per_agent)),
            (f"caller:{principal}", project.per_caller),
            (f"caller@{agent}:{principal}", config.per_caller),
        ]
        limited = {scope: each for scope, each in days if each}
        if not is_root and for_caller:  # over MCP it may come with another principal, or none
            limited |= self._runs[above].callers
        may_be_below = bool(above) and used is not None
        if is_root and not (limits or limited or may_be_below):
            return None
        own = Account(f"run:{run_id}", limits, used or NOTHING) if limits else None
        refuses = project.unpriced == "refuse"
        of_days = tuple(sorted(limited.items()))  # in one order for all fleets
        meter = self._runs[run_id] = RunMeter(self, above, own, of_days, refuses_unpriced=refuses)
        self._forget_runs()
        return meter

    def _forget_runs(self) -> None:
        """Forget the oldest runs that are over."""
        for run_id, meter in list(self._runs.items())[: max(0, len(self._runs) - MAX_RUNS)]:
            if not meter.is_open:
                del self._runs[run_id]

    def of(self, run_id: str) -> RunMeter | None:
        """The meter of a run of this fleet; None if nothing limits it, or it is over for long."""
        return self._runs.get(run_id)

    async def reserve(
        self, accounts: Sequence[Account], days: Sequence[tuple[str, SpendLimits]], asked: Estimate
    ) -> Hold:
        """As ``Admission``, with the accounts of today."""
        today = [self._day(scope, limits) for scope, limits in days]
        try:
            if self._admission.ledger is None:
                return await self._admission.reserve((*accounts, *today), asked)
            return await self._admission.reserve(accounts, asked, today)
        finally:
            for account in today:
                self._warn_near(account)

    async def days(self, days: Sequence[tuple[str, SpendLimits]]) -> tuple[Account, ...]:
        """The accounts of today as they are now."""
        return tuple([await self._read(self._day(scope, limits)) for scope, limits in days])

    async def list(self) -> tuple[AccountStatus, ...]:
        """Each limit of the accounts of today, and of runs in flight. Raises Fault if the ledger fails."""
        today, ledger = day_of(self._clock()), self._admission.ledger
        if ledger is not None:
            days = await ledger.list(today)
            for each in days:
                each.limits = self._limits_of(each.scope)
        else:
            days = tuple(each for each in self._days.values() if each.day == today)
        runs = {each.scope: each for meter in self._runs.values() for each in meter.accounts if meter.is_open}
        return tuple(status for account in (*days, *runs.values()) for status in account.statuses())

    def _limits_of(self, scope: str) -> SpendLimits:
        """The limits of an account of a day, as the files say now."""
        kind, _, name = scope.partition(":")
        kind, _, agent = kind.partition("@")
        project, own = self._config(name if kind == "agent" else agent)
        if kind == "agent":
            return project.per_agent.lowered(own.per_agent)
        return own.per_caller if agent else project.per_caller

    def warn_unpriced(self, model: str) -> None:
        """Say, once for each model, that limits on money do not count it."""
        if model in self._unpriced or len(self._unpriced) >= MAX_RUNS:
            return
        self._unpriced.add(model)
        named = one_line(model, 100)
        text = f"the price of the model {named} is not known: limits in US dollars do not count it"
        log.warning(text)
        self._publish(Notice(level="warning", text=text))

    def _warn_near(self, account: DayAccount) -> None:
        """Say once that most of a limit for a day is used."""
        for each in account.statuses():
            key = account.scope, account.day, each.dimension
            if each.used < WARN_AT * each.allowed or key in self._warned:
                continue
            self._warned[key] = None
            while len(self._warned) > MAX_ACCOUNTS:
                self._warned.popitem(last=False)
            used, allowed = (shown_amount(each.dimension, number) for number in (each.used, each.allowed))
            text = f"{account.scope} has used {used} of {allowed} today (limits.{each.key})"
            log.warning("%s", text)
            self._publish(Notice(level="warning", text=text))

    async def _read(self, account: DayAccount) -> DayAccount:
        if self._admission.ledger is not None:
            await self._admission.ledger.read(account)
        return account

    def _day(self, scope: str, limits: SpendLimits) -> DayAccount:
        day = day_of(self._clock())
        if self._admission.ledger is not None:
            return DayAccount(scope, day, limits)
        account = self._days.get((scope, day))
        if account is None:
            account = self._days[scope, day] = DayAccount(scope, day, limits)
        self._days.move_to_end((scope, day))
        while len(self._days) > MAX_ACCOUNTS:
            self._days.popitem(last=False)
        account.limits = limits  # as the files say now
        return account
