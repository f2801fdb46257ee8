"""What runs spend: what counts of a question that was cut short, and the accounts of a day in memory."""

import asyncio
import threading
from types import ModuleType

import pytest

from pallas.executors.base import ExecutorTurn
from pallas.executors.metered_work import metered_work
from pallas.limits.meter import ModelCall, ModelUse
from pallas.limits.spending import Spending
from pallas.model import Fault, FaultType, StepUsage, TraceContext
from pallas.model.spend_limits import NO_LIMITS, Amount, LimitsConfig, SpendLimits
from pallas.prices.list_prices import ListPrices
from pallas.prices.price_book import PriceBook
from pallas.telemetry.trace_context import RunTrace, running

CALL = ModelCall("openai", "gpt", size=3_500, max_output=100)


def by_the_token(provider: str, model: str, usage: StepUsage, at: float, url: str) -> int | None:
    """A price of one for each token in, ten for each token out, where both are known."""
    if usage.input is None or usage.output is None:
        return None
    return usage.input + 10 * usage.output


def spending(price: object = by_the_token, **limits: SpendLimits) -> Spending:
    return Spending(lambda agent: (LimitsConfig(**limits), NO_LIMITS), price)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("use", "used"),
    [
        (ModelUse(written=350), Amount(1_000 + 10 * 100, 1_100, 1)),
        (ModelUse(StepUsage(900), written=350), Amount(900 + 10 * 100, 1_000, 1)),
        (ModelUse(StepUsage(900, 20), written=350), Amount(900 + 10 * 20, 920, 1)),
        (ModelUse(StepUsage(900, 20), cost=7), Amount(7, 920, 1)),
        (ModelUse(written=350, answered=False), Amount(0, 0, 1)),
        (ModelUse(sent=False), Amount(0, 0, 1)),
    ],
)
async def test_a_question_that_was_cut_short_counts_in_money_too(use: ModelUse, used: Amount) -> None:
    meter = spending(per_run=SpendLimits(usd=10**9)).open("run", "desk", "ann")
    assert meter is not None
    (await meter.reserve(CALL)).settle(use)
    (account,) = meter.accounts
    assert (account.used, account.held, account.open_calls) == (used, Amount(), 0)


async def test_a_count_that_holds_more_than_the_text_does_not_refuse_the_next_question() -> None:
    meter = spending(per_run=SpendLimits(tokens=200_000)).open("run", "desk", "ann")
    assert meter is not None
    searched = ModelCall("openai", "gpt", size=200)  # its provider added what it found in the web
    (await meter.reserve(searched)).settle(ModelUse(StepUsage(50_000, 10)))
    (await meter.reserve(CALL)).settle(ModelUse(StepUsage(1_000, 10)))
    assert meter.accounts[0].used.tokens == 51_020


async def test_many_callers_do_not_end_the_day_of_an_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pallas.limits.spending.MAX_ACCOUNTS", 10)
    tokens = SpendLimits(tokens=100_000)
    made = spending(per_agent=tokens, per_caller=tokens)
    for number in range(30):
        meter = made.open(f"run{number}", "desk", f"caller{number}")
        assert meter is not None
        (await meter.reserve(CALL)).settle(ModelUse(StepUsage(1_000, 10)))
    used = {each.scope: each.used for each in await made.list()}
    assert used["agent:desk"] == 30 * 1_010 and len(used) == 10


async def test_the_list_of_prices_is_loaded_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[bool] = []
    loaded = ListPrices._loaded

    def load(self: ListPrices) -> ModuleType:
        if not self.is_loaded:
            threads.append(threading.current_thread() is threading.main_thread())
        return loaded(self)

    monkeypatch.setattr(ListPrices, "_loaded", load)
    prices = PriceBook()
    config = LimitsConfig(per_run=SpendLimits(usd=10**9))
    meter = Spending(lambda agent: (config, NO_LIMITS), prices.price, prices.ready).open("run", "desk", "ann")
    assert meter is not None
    (await meter.reserve(ModelCall("openai", "gpt-4o", size=10))).settle(ModelUse(StepUsage(1_000, 1_000)))
    assert threads == [False] and meter.accounts[0].used.usd > 0


async def test_the_caller_of_a_run_pays_for_the_runs_below_it_whoever_asks_for_them() -> None:
    made = spending(per_caller=SpendLimits(tokens=5_000))
    made.open("top", "desk", "ann")
    made.open("middle", "clerk", "anonymous", above="top", for_caller=True)
    meter = made.open("low", "writer", "ann", above="middle", for_caller=True)
    assert meter is not None
    (await meter.reserve(CALL)).settle(ModelUse(StepUsage(900, 100)))
    middle = made.of("middle")
    assert middle is not None
    (await middle.reserve(CALL)).settle(ModelUse(StepUsage(900, 100)))
    used = {"caller:ann": 2_000, "caller:anonymous": 2_000}
    assert {each.scope: each.used for each in await made.list()} == used
    stranger = made.open("other", "writer", "eve", above="top")  # it only knows the span of a call
    assert stranger is not None
    (await stranger.reserve(CALL)).settle(ModelUse(StepUsage(900, 100)))
    assert {each.scope: each.used for each in await made.list()} == {**used, "caller:eve": 1_000}


async def test_a_turn_of_another_program_that_is_cancelled_counts_with_its_estimate() -> None:
    meter = spending(per_run=SpendLimits(tokens=50_000)).open("run", "coder", "ann")
    turn = ExecutorTurn("run", "coder", "word " * 700)
    begun, never = asyncio.Event(), asyncio.Event()

    async def work(fault: Fault | None = None) -> None:
        with running(RunTrace("run", "coder", TraceContext("ab" * 16, "cd" * 8), None, None, meter)):
            async with metered_work(turn):
                begun.set()
                if fault is not None:
                    raise fault
                await never.wait()

    with pytest.raises(Fault):
        await work(Fault(FaultType.UPSTREAM, "it is refused"))
    assert meter is not None and meter.accounts[0].used == Amount(steps=1)
    begun.clear()
    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    await asyncio.wait({task})
    assert meter.accounts[0].used == Amount(tokens=1_000, steps=2)
