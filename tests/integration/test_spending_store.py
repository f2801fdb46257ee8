"""Accounts of days in the ledger, which replicas share: on SQLite and on PostgreSQL."""

import asyncio
from time import time

import pytest
from support.waiting import until

from pallas.ledger import Ledger, open_ledger
from pallas.ledger.claims import inherit
from pallas.ledger.spending_store import KEEP_DAYS, forget_spending
from pallas.limits.account import DAY_S, DayAccount, Estimate, day_of
from pallas.limits.admission import Admission
from pallas.limits.limit_reached import LimitReached
from pallas.model import Fault, FaultType
from pallas.model.spend_limits import Amount, SpendLimits

DAY = day_of(time())
LIMITS = SpendLimits(usd=50_000, tokens=1_000)
ASKED = Estimate(Amount(10, 10, 1), Amount(300, 300, 1))


def account(scope: str = "caller:ann", limits: SpendLimits = LIMITS) -> DayAccount:
    return DayAccount(scope, DAY, limits)


async def stored(ledger: Ledger, scope: str = "caller:ann") -> DayAccount:
    found = account(scope)
    await ledger.spending.read(found)
    return found


async def ask_often(ledger: Ledger, used: Amount) -> int:
    """How many of twenty questions at once are asked."""
    admission = Admission()
    admission.ledger = ledger.spending

    async def ask() -> int:
        try:
            hold = await admission.reserve(
                (), ASKED, [account("agent:desk", SpendLimits(tokens=90_000)), account()]
            )
        except LimitReached:
            return 0
        await asyncio.sleep(0)
        hold.settle(used)
        return 1

    async with asyncio.timeout(60):
        return sum(await asyncio.gather(*(ask() for _ in range(20))))


@pytest.mark.slow
async def test_replicas_together_exceed_a_limit_by_one_question_at_most(database_url: str) -> None:
    one, two = await open_ledger(database_url), await open_ledger(database_url)
    try:
        asked = sum(await asyncio.gather(*(ask_often(each, Amount(7, 150, 1)) for each in (one, two))))
        await two.spending.list(DAY)  # after it has written what its refused questions held
        for scope in ("caller:ann", "agent:desk"):
            found = await stored(one, scope)
            assert found.used == Amount(7 * asked, 150 * asked)
            assert (found.held, found.open_calls) == (Amount(), 0)
        assert 1_000 <= 150 * asked < 1_150
        assert [each.scope for each in await two.spending.list(DAY)] == ["agent:desk", "caller:ann"]
    finally:
        await one.close()
        await two.close()
    again = await open_ledger(database_url)
    try:
        assert (await stored(again)).used.tokens == 150 * asked
        assert await ask_often(again, Amount(1, 1, 1)) == 0
    finally:
        await again.close()


@pytest.mark.slow
async def test_what_a_dead_replica_had_reserved_is_released_once(database_url: str) -> None:
    one, two = await open_ledger(database_url), await open_ledger(database_url)
    try:
        assert (await two.spending.reserve(account(), ASKED)).what == "admit"
        assert (await one.spending.reserve(account(), ASKED)).what == "admit"
        assert (await stored(one)).held == Amount(600, 600)
        await one.database.write(
            lambda connection: inherit(connection, two.life, one.life, time(), serves=lambda agent: True)
        )
        assert ((await stored(one)).held, (await stored(one)).open_calls) == (Amount(300, 300), 1)
        # It lives after all: what it used counts, and nothing is released twice.
        two.spending.settle(account(), ASKED.most, Amount(5, 200, 1))
        assert (await stored(two)).used == Amount(5, 200)
        assert ((await stored(one)).held, (await stored(one)).open_calls) == (Amount(300, 300), 1)
        one.spending.settle(account(), ASKED.most, Amount(5, 100, 1))
        found = await stored(one)
        assert (found.used, found.held, found.open_calls) == (Amount(10, 300), Amount(), 0)
        assert (await one.spending.reserve(account(), ASKED)).what == "admit"
    finally:
        await one.close()  # an end releases too
        assert (await stored(two)).open_calls == 0
        await two.close()


async def test_a_reservation_that_is_cancelled_meanwhile_is_released(ledger: Ledger) -> None:
    reserving = asyncio.create_task(ledger.spending.reserve(account(), ASKED))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    reserving.cancel()
    await asyncio.wait({reserving})
    assert reserving.cancelled()
    found = await stored(ledger)
    assert (found.used, found.held, found.open_calls) == (Amount(), Amount(), 0)


async def test_a_large_question_is_not_overtaken_by_small_ones_for_ever(ledger: Ledger) -> None:
    admission = Admission()
    admission.ledger = ledger.spending
    small = Estimate(Amount(0, 10, 1), Amount(0, 300, 1))
    first = await admission.reserve((), small, [account()])
    large = asyncio.create_task(
        admission.reserve((), Estimate(Amount(0, 10, 1), Amount(0, 900, 1)), [account()])
    )
    await until(lambda: admission.queued == 1)
    second = asyncio.create_task(admission.reserve((), small, [account()]))
    other = await admission.reserve((), small, [account("caller:bob")])  # waits for none of them
    first.settle(Amount(0, 10, 1))
    (await large).settle(Amount(0, 10, 1))
    order = [large.done(), second.done()]
    (await second).settle(Amount(0, 10, 1))
    other.settle(Amount())
    assert order == [True, False] and admission.queued == 0


async def test_a_question_that_is_cancelled_in_the_queue_leaves_it(ledger: Ledger) -> None:
    admission = Admission()
    admission.ledger = ledger.spending
    alone = Estimate(Amount(0, 10, 1), Amount(0, 900, 1))
    first = await admission.reserve((), alone, [account()])
    waiting = [asyncio.create_task(admission.reserve((), alone, [account()])) for _ in range(2)]
    await until(lambda: admission.queued >= 1)
    waiting[0].cancel()
    first.settle(Amount())
    (await waiting[1]).settle(Amount())
    assert waiting[0].cancelled() and admission.queued == 0


async def test_what_could_not_be_written_is_written_with_the_next_question(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pallas.ledger.spending_store.TRIES", 1)
    admission = Admission()
    admission.ledger = ledger.spending
    holds = [await admission.reserve((), ASKED, [account()]) for _ in range(2)]
    with monkeypatch.context() as outage:
        outage.setattr(ledger.database, "write", _fail)
        for hold in holds:
            hold.settle(Amount(7, 150, 1))
        await ledger.spending.close()
    found = await stored(ledger)
    assert (found.used, found.held, found.open_calls) == (Amount(14, 300), Amount(), 0)
    (await admission.reserve((), ASKED, [account()])).settle(Amount(7, 150, 1))
    (listed,) = await ledger.spending.list(DAY)
    assert (listed.used, listed.held, listed.open_calls) == (Amount(21, 450), Amount(), 0)


async def _fail(*_: object, **__: object) -> None:
    raise Fault(FaultType.TRANSPORT, "the database is away")


async def test_days_that_are_long_over_are_forgotten(ledger: Ledger) -> None:
    await ledger.spending.reserve(account(), ASKED)
    await ledger.database.write(
        lambda connection: forget_spending(connection, time() + (KEEP_DAYS - 1) * DAY_S)
    )
    assert len(await ledger.spending.list(DAY)) == 1
    await ledger.database.write(
        lambda connection: forget_spending(connection, time() + (KEEP_DAYS + 2) * DAY_S)
    )
    assert not await ledger.spending.list(DAY)
