"""Two fleets on one database, in the same threads at the same time."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from support.databases import database_url, postgres  # noqa: F401
from support.executors import FakeAgent, FakeExecutor, Gate

from pallas.executors import Emit, ExecutorTurn, TurnResult
from pallas.ledger import Ledger, open_ledger
from pallas.model import (
    Fault,
    FaultType,
    LoopMessage,
    Message,
    MessageRecord,
    RunRequest,
    ToolAnswer,
    ToolCall,
)
from pallas.model.ids import mint
from pallas.runs.kernel import Kernel
from pallas.telemetry.event_hub import EventHub


@pytest.fixture
async def ledgers(database_url: str) -> AsyncIterator[tuple[Ledger, Ledger]]:  # noqa: F811
    one = await open_ledger(database_url)
    two = await open_ledger(database_url)
    yield one, two
    await two.close()
    await one.close()


def kernel_on(ledger: Ledger, executor: FakeExecutor) -> Kernel:
    kernel = Kernel(EventHub())
    kernel.use_ledger(ledger)
    kernel.attach(FakeAgent(executor))
    return kernel


def asked(text: str, handle: str, *, new: bool = False) -> RunRequest:
    return RunRequest("echo", text, conversation=handle, new_conversation=new)


async def with_tools(turn: ExecutorTurn, emit: Emit) -> TurnResult:
    """One round of tools, told on the way, and an answer."""
    call = ToolCall(f"call-{turn.text}", "echo__echo", {"text": turn.text})
    answers = (ToolAnswer(call.id, f"echo:{turn.text}"),)
    told: dict[str, Any] = {"run_id": turn.run_id, "agent": turn.agent}
    emit(LoopMessage(**told, role="assistant", text="", calls=(call,)))
    await asyncio.sleep(0)
    emit(LoopMessage(**told, role="tool", text=f"echo:{turn.text}", answers=answers))
    made = (Message("assistant", "", calls=(call,)), Message("tool", f"echo:{turn.text}", answers=answers))
    said = (Message("user", turn.text), *made, Message("assistant", f"said {turn.text}"))
    return TurnResult((f"said {turn.text}",), said)


async def all_rows(ledger: Ledger, thread: str) -> list[MessageRecord]:
    return list((await ledger.threads.messages(thread, limit=200)).items)


@pytest.mark.slow
async def test_turns_of_both_in_one_thread_lose_nothing_and_mix_nothing(
    ledgers: tuple[Ledger, Ledger],
) -> None:
    # AG-17, AG-19
    executors = [FakeExecutor(with_tools), FakeExecutor(with_tools)]
    kernels = [kernel_on(ledger, executor) for ledger, executor in zip(ledgers, executors, strict=True)]
    # Both make it, in the same moment, under a handle of the caller's own.
    async with asyncio.timeout(60):
        results = await asyncio.gather(
            *(
                kernel.run(asked(f"{of}{n}", "my-own"))
                for n in range(8)
                for of, kernel in zip("ab", kernels, strict=True)
            )
        )
    assert len({result.thread for result in results}) == 1
    (thread,) = (await ledgers[0].threads.list()).items
    rows = await all_rows(ledgers[0], thread.id)
    assert [row.turn_index for row in rows] == list(range(len(rows)))
    assert {row.status for row in rows} == {"complete"}
    assert len(rows) == thread.messages == 16 * 4
    for result in results:
        assert rows[result.turn_index or 0].content == result.text
    for executor in executors:
        for turn in executor.turns:
            well_formed(turn.history)
    # Whoever asks next is shown all of it.
    for kernel, executor in zip(kernels, executors, strict=True):
        await kernel.run(asked("last", "my-own"))
        shown = executor.turns[-1].history
        well_formed(shown)
        assert {f"said {of}{n}" for of in "ab" for n in range(8)} <= {each.text for each in shown}


def well_formed(history: Sequence[Message]) -> None:
    """Every call is answered at once, and nothing else is."""
    open_calls: list[str] = []
    for each in history:
        assert [answer.call_id for answer in each.answers] == open_calls
        open_calls = [call.id for call in each.calls]
    assert open_calls == []


async def test_a_thread_that_the_other_fleet_deletes_is_told_and_does_not_come_back(
    ledgers: tuple[Ledger, Ledger],
) -> None:
    gate = Gate()
    kernel = kernel_on(ledgers[0], FakeExecutor(gate.answer))
    for handle in (mint(), "my-own"):
        gate.reached.clear()
        gate.open.clear()
        new = handle != "my-own"
        run = asyncio.create_task(kernel.run(asked("go", handle, new=new)))
        async with asyncio.timeout(30):
            await gate.reached.wait()
        (thread,) = (await ledgers[1].threads.list()).items
        await ledgers[1].threads.delete(thread.id)
        gate.open.set()
        with pytest.raises(Fault, match="thread not found") as told:
            await run
        assert told.value.type is not FaultType.INTERNAL
        assert told.value.data["partial"] == "0:go"
        assert (await ledgers[0].threads.list()).items == ()
        if new:
            with pytest.raises(Fault, match="not found"):
                await kernel.run(asked("on", handle))
        else:  # who has a handle of its own begins anew
            assert (await kernel.run(asked("on", handle))).text == "0:on"


async def test_a_thread_that_the_other_fleet_deleted_between_two_turns_is_told(
    ledgers: tuple[Ledger, Ledger],
) -> None:
    executor = FakeExecutor()
    kernel = kernel_on(ledgers[0], executor)
    await kernel.run(asked("one", "my-own"))
    (thread,) = (await ledgers[1].threads.list()).items
    await ledgers[1].threads.delete(thread.id)
    with pytest.raises(Fault, match="thread not found"):
        await kernel.run(asked("two", "my-own"))
    assert len(executor.turns) == 1
    assert (await kernel.run(asked("three", "my-own"))).text == "0:three"


async def test_a_summary_of_one_fleet_is_seen_by_the_other(ledgers: tuple[Ledger, Ledger]) -> None:
    async def answer(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        if turn.text.startswith("Summarise"):
            return TurnResult(("in short",), ())
        return await with_tools(turn, emit)

    here, there = FakeExecutor(answer), FakeExecutor(answer)
    ours, theirs = kernel_on(ledgers[0], here), kernel_on(ledgers[1], there)
    await ours.run(asked("word " * 200, "my-own"))
    await theirs.run(asked("word " * 200 + "x", "my-own"))
    ours.attach(FakeAgent(here, window=600))
    await ours.run(asked("three", "my-own"))
    await theirs.run(asked("four", "my-own"))
    shown = there.turns[-1].history
    well_formed(shown)
    assert shown[0].summary
    assert [each.text for each in shown if each.role == "user"][1:] == ["three"]
