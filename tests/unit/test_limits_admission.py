"""Accounts and the admission of questions to models: never more than one question over a limit."""

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from pallas.limits.account import Account, Estimate
from pallas.limits.admission import Admission
from pallas.limits.limit_reached import LimitReached
from pallas.model.spend_limits import DIMENSIONS, NOTHING, Amount, SpendLimits

LIMIT = SpendLimits(tokens=1_000, places={"tokens": "agents.yaml:7"})


def asked(least: int, most: int) -> Estimate:
    return Estimate(Amount(tokens=least, steps=1), Amount(tokens=most, steps=1))


async def test_questions_that_fit_together_are_asked_together() -> None:
    admission, account = Admission(), Account("run:a", LIMIT)
    holds = [await admission.reserve([account], asked(10, 300)) for _ in range(3)]
    assert (account.open_calls, account.held.tokens) == (3, 900)
    for hold in holds:
        hold.settle(Amount(tokens=200, steps=1))
        hold.settle(Amount(tokens=999, steps=1))  # only the first counts
    assert (account.used.tokens, account.held, account.open_calls) == (600, NOTHING, 0)


async def test_a_question_that_may_exceed_the_limit_waits_until_it_is_alone() -> None:
    admission, account = Admission(), Account("run:a", LIMIT)
    first = await admission.reserve([account], asked(10, 600))
    second = asyncio.create_task(admission.reserve([account], asked(10, 600)))
    third = asyncio.create_task(admission.reserve([account], asked(10, 100)))
    await asyncio.sleep(0)
    assert not second.done() and not third.done()  # none overtakes
    first.settle(Amount(tokens=500, steps=1))
    hold = await second
    assert account.open_calls == 1
    hold.settle(Amount(tokens=590, steps=1))
    with pytest.raises(LimitReached) as reached:
        await third
    assert reached.value.data == {
        "limitReached": True,
        "limit": "per_run.tokens",
        "where": "agents.yaml:7",
        "allowed": 1_000,
        "used": 1_090,
    }
    assert not reached.value.retryable
    assert str(reached.value) == (
        "the limit limits.per_run.tokens (agents.yaml:7) of 1,000 tokens is reached: this run used 1,090 "
        "tokens; ask for less at once, or raise the limit"
    )


async def test_a_question_without_room_is_refused_though_others_are_open() -> None:
    admission, account = Admission(), Account("run:a", SpendLimits(steps=2))
    holds = [await admission.reserve([account], asked(1, 1)) for _ in range(2)]
    with pytest.raises(LimitReached, match="of 2 steps is reached"):
        await admission.reserve([account], asked(1, 1))
    for hold in holds:
        hold.settle(Amount(steps=1))


async def test_a_refusal_of_one_account_reserves_nothing_in_the_others() -> None:
    admission = Admission()
    wide, narrow = Account("run:a", LIMIT), Account("run:b", SpendLimits(tokens=5))
    with pytest.raises(LimitReached):
        await admission.reserve([wide, narrow], asked(10, 20))
    assert (wide.held, wide.open_calls) == (NOTHING, 0)


async def test_a_question_that_is_cancelled_while_it_waits_leaves_nothing() -> None:
    admission, account = Admission(), Account("run:a", LIMIT)
    first = await admission.reserve([account], asked(10, 900))
    second = asyncio.create_task(admission.reserve([account], asked(10, 900)))
    third = asyncio.create_task(admission.reserve([account], asked(10, 900)))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait({second})
    assert admission.waiting == 1
    first.settle(NOTHING)
    third.cancel()  # in the moment in which it is admitted
    await asyncio.wait({third})
    assert (admission.waiting, account.held, account.open_calls) == (0, NOTHING, 0)


@dataclass
class Tree:
    """Runs below each other, each with accounts of its own and of those above."""

    seed: int
    admission: Admission = field(default_factory=Admission)
    accounts: list[Account] = field(default_factory=list)
    spent: dict[str, list[Amount]] = field(default_factory=dict)
    refused: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.price = self.random.randrange(1, 40_000)
        self.caller = self.account("caller:x", 400_000)

    def account(self, scope: str, about: int) -> Account:
        pick = self.random
        dimensions = pick.sample(DIMENSIONS, pick.randrange(1, 4))
        most = {"usd": about * self.price, "tokens": about, "steps": max(1, about // 2_000)}
        limits = SpendLimits(**{each: pick.randrange(1, most[each] + 1) for each in dimensions})
        self.accounts.append(Account(scope, limits))
        return self.accounts[-1]

    async def run(self, above: list[Account], depth: int) -> None:
        pick = self.random
        chain = list(above)
        if depth == 0 or pick.random() < 0.4:
            chain.append(self.account(f"run:{len(self.accounts)}", pick.randrange(1_000, 200_000)))
        for _ in range(pick.randrange(1, 6)):
            below = pick.randrange(0, 4) if depth < 3 else 0
            try:
                await self.call(chain)
            except LimitReached:
                self.refused += 1
                return
            async with asyncio.TaskGroup() as group:
                for _ in range(below):
                    group.create_task(self.run(chain, depth + 1))

    async def call(self, chain: list[Account]) -> None:
        pick = self.random
        least = pick.randrange(10, 3_000)
        most = 2 * least + pick.choice((500, 4_000, 16_384))
        used = pick.randrange(least // 2, most + 1)
        estimate = Estimate(
            Amount(least * self.price, least, 1),
            Amount(most * self.price, most, 1),
        )
        try:
            hold = await self.admission.reserve(chain, estimate)
        except LimitReached:
            # Not too early: one of its accounts has no room for what it takes at least.
            assert any(account.verdict(estimate).what == "refuse" for account in chain)
            raise
        for _ in range(pick.randrange(0, 6)):
            await asyncio.sleep(0)
        outcome = pick.random()
        amount = Amount(used * self.price, used, 1) if outcome > 0.1 else Amount(steps=1)
        hold.settle(amount)
        for account in chain:
            self.spent.setdefault(account.scope, []).append(amount)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
async def test_no_tree_of_runs_exceeds_a_limit_by_more_than_one_question(part: int) -> None:
    refused = over = 0
    for seed in range(50 * part, 50 * part + 50):
        tree = Tree(seed)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(tree.run([tree.caller], 0))
        assert tree.admission.waiting == 0
        refused += tree.refused
        for account in tree.accounts:
            spent = tree.spent.get(account.scope, [])
            assert account.used == sum(spent, NOTHING)  # nothing twice, nothing lost
            assert (account.held, account.open_calls) == (NOTHING, 0)
            for each in DIMENSIONS:
                if (limit := account.limits.of(each)) is None or account.used.of(each) <= limit:
                    continue
                over += 1
                # Without the last question that used something it was below its limit.
                last = next(amount for amount in reversed(spent) if amount.of(each))
                assert each != "steps" and account.used.of(each) - last.of(each) < limit, (
                    seed,
                    account.scope,
                )
    assert refused > 50 and over > 10  # the trees do meet their limits
