"""How an agent's runs add up: counts, latencies of the last answered ones, tokens."""

import asyncio
import random

import pytest
from support.executors import FakeAgent, FakeExecutor, Gate

from pallas.executors import Emit, ExecutorTurn, TurnResult
from pallas.model import (
    Fault,
    FaultType,
    Message,
    Outcome,
    RunContinued,
    RunRequest,
    RunStarted,
    StepStarted,
    Usage,
)
from pallas.runs.kernel import Kernel
from pallas.runs.run import MAX_EVENTS, WINDOW, ActiveRun, Stats
from pallas.telemetry.event_hub import EventHub


def _of(*seconds: float) -> Stats:
    stats = Stats()
    for each in seconds:
        stats.answered(each, Usage())
    return stats


def test_without_an_answer_there_is_no_latency() -> None:
    stats = Stats()
    assert (stats.last_latency, stats.latency_p50, stats.latency_p95) == (None, None, None)


def test_one_answer_is_every_percentile() -> None:
    stats = _of(2.5)
    assert (stats.latency_p50, stats.latency_p95) == (2.5, 2.5)


def test_a_percentile_is_the_smallest_latency_that_so_many_did_not_exceed() -> None:
    values = [float(number) for number in range(1, 101)]
    random.Random(1).shuffle(values)
    stats = _of(*values)
    assert (stats.latency_p50, stats.latency_p95) == (50.0, 95.0)
    assert stats.last_latency == values[-1]


def test_only_the_last_runs_count_and_equal_latencies_leave_one_by_one() -> None:
    stats = _of(*[9.0] * WINDOW, *[1.0] * (WINDOW - 1))
    assert (stats.latency_p50, stats.latency_p95) == (1.0, 1.0)
    assert stats._sorted == [1.0] * (WINDOW - 1) + [9.0]
    stats.answered(3.0, Usage())
    assert stats._sorted == [1.0] * (WINDOW - 1) + [3.0]
    assert len(stats._recent) == WINDOW


def test_tokens_add_up_and_what_nobody_counted_is_nothing() -> None:
    stats = Stats()
    stats.answered(1.0, Usage(10, 3))
    stats.answered(1.0, Usage(None, 4))
    stats.spent(Usage(5, None))
    assert (stats.tokens_in, stats.tokens_out) == (15, 7)


def _kernel(executor: FakeExecutor) -> Kernel:
    kernel = Kernel(EventHub())
    kernel.attach(FakeAgent(executor))
    return kernel


async def test_a_run_that_failed_counts_but_its_latency_does_not() -> None:
    async def answer(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        if turn.text == "fail":
            raise Fault(FaultType.UPSTREAM, "no")
        return TurnResult(("yes",), (Message("assistant", "yes"),), usage=Usage(7, 2))

    kernel = _kernel(FakeExecutor(answer))
    with pytest.raises(Fault):
        await kernel.run(RunRequest("echo", "fail"))
    assert kernel.stats("echo").total == 1
    assert kernel.stats("echo").latency_p50 is None
    await kernel.run(RunRequest("echo", "ask"))
    stats = kernel.stats("echo")
    assert (stats.total, stats.tokens_in, stats.tokens_out) == (2, 7, 2)
    assert stats.latency_p50 == stats.last_latency is not None


async def test_draining_waits_for_runs_then_cancels_them_and_says_why() -> None:
    gate = Gate()
    kernel = _kernel(FakeExecutor(gate.answer))
    call = asyncio.create_task(kernel.run(RunRequest("echo", "x")))
    await gate.reached.wait()
    draining = asyncio.create_task(kernel.drain("echo", 60, "unused"))
    await asyncio.sleep(0)
    gate.open.set()
    await draining
    assert (await call).text == "0:x"

    gate.open.clear()
    gate.reached.clear()
    call = asyncio.create_task(kernel.run(RunRequest("echo", "y")))
    await gate.reached.wait()
    await kernel.drain("echo", 0, "its agent was stopped")
    assert gate.cancelled
    with pytest.raises(Fault, match="cancelled: its agent was stopped"):
        await call


async def test_draining_one_executor_leaves_the_runs_of_another() -> None:
    old, new = Gate(), Gate()
    kernel = Kernel(EventHub())
    retired = FakeExecutor(old.answer)
    agent = FakeAgent(retired)
    kernel.attach(agent)
    first = asyncio.create_task(kernel.run(RunRequest("echo", "1")))
    await old.reached.wait()
    agent.executor = FakeExecutor(new.answer)
    second = asyncio.create_task(kernel.run(RunRequest("echo", "2")))
    await new.reached.wait()
    await kernel.drain("echo", 0, "why", on=retired)
    assert (old.cancelled, new.cancelled) == (True, False)
    new.open.set()
    assert (await second).text == "0:2"
    with pytest.raises(Fault):
        await first


def test_how_a_run_goes_on_is_in_the_log_and_stays_among_its_last_events(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = ActiveRun("r1", "clerk", EventHub(), Stats())
    run.emit(RunStarted(run_id="r1", agent="clerk"))
    lines = ("shop__refund: told the model", "docs__find: called again")
    with caplog.at_level("INFO"):
        run.emit(RunContinued(run_id="r1", agent="clerk", attempt=2, calls=lines))
    (record,) = caplog.records
    told = "run r1 continues, attempt 2; shop__refund: told the model; docs__find: called again"
    assert record.getMessage() == f"clerk: {told}"
    for number in range(2 * MAX_EVENTS):
        run.emit(StepStarted(run_id="r1", agent="clerk", actor="clerk", step=number, kind="llm"))
    assert len(run.events) == MAX_EVENTS
    first, second, *_, last = run.events
    assert isinstance(first, RunContinued)
    assert isinstance(second, StepStarted)
    assert isinstance(last, StepStarted)
    assert (second.step, last.step) == (MAX_EVENTS + 1, 2 * MAX_EVENTS - 1)


@pytest.mark.parametrize(
    ("outcome", "fault", "level", "end"),
    [
        ("ok", "", "INFO", "0 steps, 0 tools"),
        ("cancelled", "", "INFO", "0 steps, 0 tools"),
        ("error", "the vault said no", "WARNING", "0 tools: the vault said no"),
    ],
)
def test_the_log_says_why_a_run_failed(
    caplog: pytest.LogCaptureFixture, outcome: Outcome, fault: str, level: str, end: str
) -> None:
    run = ActiveRun("r1", "research", EventHub(), Stats())
    with caplog.at_level("INFO"):
        run.finish(outcome, fault)
    (record,) = caplog.records
    assert record.levelname == level
    assert record.getMessage().endswith(end)
