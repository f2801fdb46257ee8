"""Turns of durable conversations: what is written when, what models see, what a run that fails leaves."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import func, select
from support.executors import FakeExecutor, Gate, echo
from support.kept import asked, kernel_on, rows
from support.waiting import poll

from pallas.executors import Emit, ExecutorInfo, ExecutorTurn, TurnResult
from pallas.ledger import Ledger, tables
from pallas.model import (
    Compacted,
    Event,
    Fault,
    FaultType,
    LoopMessage,
    Message,
    Notice,
    Params,
    Principal,
    RunRequest,
    TextDelta,
    ToolAnswer,
    ToolCall,
)
from pallas.model.ids import mint
from pallas.model.packed import Packed
from pallas.model.refusals import handed_over

ALICE, BOB = Principal("token:alice"), Principal("token:bob")
CALL = ToolCall("c1", "echo__echo", {"text": "x"})


def told(turn: ExecutorTurn, **said: Any) -> LoopMessage:
    return LoopMessage(run_id=turn.run_id, agent=turn.agent, **said)


def round_of_tools(turn: ExecutorTurn, emit: Emit, call: ToolCall = CALL) -> tuple[Message, Message]:
    """What an executor tells of one round, and the messages that it puts into its result."""
    native = '{"role": "assistant"}'
    emit(told(turn, role="assistant", text="", calls=(call,), native=native))
    answers = (ToolAnswer(call.id, "echo:x"),)
    emit(told(turn, role="tool", text="echo:x", answers=answers, native='{"role": "user"}'))
    return (
        Message("assistant", "", native=Packed(native), calls=(call,)),
        Message("tool", "echo:x", answers=answers),
    )


async def test_a_thread_goes_on_where_it_was_when_the_fleet_starts_again(ledger: Ledger) -> None:
    # AG-27
    handle = mint()
    first = await kernel_on(ledger, FakeExecutor()).run(asked("one", handle, new=True))
    assert (first.text, first.thread, first.turn_index) == ("0:one", handle, 1)

    executor = FakeExecutor()
    kernel = kernel_on(ledger, executor)
    second = await kernel.run(asked("two", handle))
    assert (second.text, second.turn_index) == ("2:two", 3)
    assert [each.text for each in executor.turns[0].history] == ["one", "0:one"]
    said = await kernel.open("echo", handle, None, Principal())
    assert [each.text for each in said] == ["one", "0:one", "two", "2:two"]
    assert [row.turn_index for row in await rows(ledger, handle)] == [0, 1, 2, 3]


async def test_a_handle_of_the_callers_own_finds_its_thread_again(ledger: Ledger) -> None:
    await kernel_on(ledger, FakeExecutor()).run(asked("one", "my-own", principal=ALICE))
    kernel = kernel_on(ledger, FakeExecutor())
    result = await kernel.run(asked("two", "my-own", principal=ALICE))
    assert result.text == "2:two"
    # The thread's id opens it as well.
    assert (await kernel.run(asked("three", result.thread, principal=ALICE))).text == "4:three"
    assert len((await ledger.threads.list()).items) == 1


async def test_a_session_keeps_its_thread_when_memory_is_short(ledger: Ledger) -> None:
    # UN-1
    kernel = kernel_on(ledger, FakeExecutor())
    first = await kernel.run(RunRequest("echo", "one", session="s"))
    kernel._conversations["echo"]._drop(first.thread)
    second = await kernel.run(RunRequest("echo", "two", session="s"))
    assert (second.text, second.thread) == ("2:two", first.thread)
    await ledger.threads.delete(first.thread)
    kernel.forget_thread("echo", first.thread)
    third = await kernel.run(RunRequest("echo", "three", session="s"))
    assert third.text == "0:three"
    assert third.thread not in ("", first.thread)


async def test_fleets_that_begin_one_handle_at_one_moment_have_one_thread(ledger: Ledger) -> None:
    # UN-1
    executors = [FakeExecutor(), FakeExecutor()]
    one, two = (kernel_on(ledger, executor) for executor in executors)
    results = await asyncio.gather(*(each.run(asked("go", "my-own")) for each in (one, two, one, two)))
    (thread,) = {each.thread for each in results}
    assert {turn.thread for executor in executors for turn in executor.turns} == {thread}
    assert {each.handle for executor in executors for each in executor.turns} == {"my-own"}
    assert len((await ledger.threads.list()).items) == 1
    for kernel in (one, two):
        again = [await kernel.run(asked("on", name)) for name in (thread, "my-own")]
        assert {each.thread for each in again} == {thread}


async def test_another_callers_thread_is_not_found(ledger: Ledger) -> None:
    # AG-21
    handle = mint()
    await kernel_on(ledger, FakeExecutor()).run(asked("mine", handle, new=True, principal=ALICE))
    kernel = kernel_on(ledger, FakeExecutor())
    refusals = []
    for conversation in (handle, mint()):
        with pytest.raises(Fault) as refused:
            await kernel.run(asked("whose?", conversation, principal=BOB))
        refusals.append(refused.value.message)
        with pytest.raises(Fault):
            await kernel.open("echo", conversation, None, BOB)
    # A handle that cannot be guessed: who knows it is told why it does not open its thread.
    assert "opened with another identity" in refusals[0]
    assert "unknown, expired" in refusals[1]
    assert len(await rows(ledger, handle)) == 2


async def test_rows_are_pending_while_a_run_goes_on_and_complete_when_it_is_answered(ledger: Ledger) -> None:
    # AG-5, AG-17
    go, waiting = asyncio.Event(), asyncio.Event()

    async def answer(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        made = round_of_tools(turn, emit)
        waiting.set()
        await go.wait()
        said = (Message("user", turn.text), *made, Message("assistant", "done"))
        return TurnResult(("done",), said)

    handle = mint()
    kernel = kernel_on(ledger, FakeExecutor(answer))
    run = asyncio.create_task(kernel.run(asked("go", handle, new=True)))
    await waiting.wait()

    kept = await poll(lambda: rows(ledger, handle), lambda found: len(found) >= 3)
    assert {row.status for row in kept} == {"pending"}
    go.set()
    result = await run
    kept = await rows(ledger, handle)
    assert [(row.role, row.status) for row in kept] == [
        ("user", "complete"),
        ("assistant", "complete"),
        ("tool", "complete"),
        ("assistant", "complete"),
    ]
    assert kept[1].tool_calls == (CALL,)
    assert kept[2].tool_call_id == CALL.id
    assert result.turn_index == kept[-1].turn_index == 3


async def test_an_error_in_the_third_round_puts_every_pending_row_in_error(ledger: Ledger) -> None:
    # AG-5, AG-7
    async def answer(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        if turn.text != "fail":
            return await echo(turn, emit)
        for number in range(2):
            round_of_tools(turn, emit, ToolCall(f"c{number}", "echo__echo"))
        emit(told(turn, role="assistant", text="", calls=(ToolCall("c3", "echo__echo"),)))
        raise Fault(FaultType.UPSTREAM, "the provider broke")

    handle = mint()
    executor = FakeExecutor(answer)
    kernel = kernel_on(ledger, executor)
    await kernel.run(asked("one", handle, new=True))
    with pytest.raises(Fault, match="the provider broke"):
        await kernel.run(asked("fail", handle))
    failed = (await rows(ledger, handle))[2:]
    assert [(row.role, row.status) for row in failed] == [
        ("user", "error"),
        ("assistant", "error"),
        ("tool", "error"),
        ("assistant", "error"),
        ("tool", "error"),
        ("assistant", "error"),
    ]
    assert {row.reason for row in failed} == {"the provider broke"}
    assert (await kernel.run(asked("two", handle))).text == "2:two"
    assert [each.text for each in executor.turns[-1].history] == ["one", "0:one"]


async def test_a_run_that_is_cut_short_leaves_its_question_and_what_it_had_written(ledger: Ledger) -> None:
    begun = asyncio.Event()

    async def answer(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        emit(TextDelta(run_id=turn.run_id, agent=turn.agent, text="half of"))
        emit(told(turn, role="assistant", text="", calls=(CALL,)))
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    handle = mint()
    kernel = kernel_on(ledger, FakeExecutor(answer))
    run = asyncio.create_task(kernel.run(asked("go", handle, new=True)))
    await begun.wait()
    (live,) = kernel.in_flight
    assert kernel.cancel(live.id)
    with pytest.raises(Fault):
        await run
    kept = await rows(ledger, handle)
    assert [(row.role, row.status) for row in kept] == [
        ("user", "complete"),
        ("assistant", "error"),
        ("assistant", "complete"),
    ]
    assert kept[-1].content == "half of\n\n[cut short: it was cancelled]"
    record = await ledger.runs.get(live.id)
    assert record is not None
    assert (record.status, record.partial) == ("cancelled", "half of")
    history, _ = await ledger.threads.history(handle)
    assert [each.role for each in history] == ["user", "assistant"]


async def test_another_thread_commits_while_a_run_is_in_the_middle_of_its_tools(ledger: Ledger) -> None:
    # AG-19
    go, waiting = asyncio.Event(), asyncio.Event()

    async def answer(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        if turn.text == "quick":
            return await echo(turn, emit)
        round_of_tools(turn, emit)
        waiting.set()
        await go.wait()
        return await echo(turn, emit)

    kernel = kernel_on(ledger, FakeExecutor(answer))
    long = asyncio.create_task(kernel.run(asked("long", mint(), new=True)))
    await waiting.wait()
    async with asyncio.timeout(60):
        for _ in range(5):
            other = await kernel.run(asked("quick", mint(), new=True))
            assert other.turn_index == 1
    assert not long.done()
    go.set()
    await long


async def test_what_another_fleet_wrote_to_the_thread_is_known_to_the_next_turn(ledger: Ledger) -> None:
    handle = mint()
    here, there = FakeExecutor(), FakeExecutor()
    ours, theirs = kernel_on(ledger, here), kernel_on(ledger, there)
    await ours.run(asked("one", handle, new=True))
    assert (await theirs.run(asked("two", handle))).text == "2:two"
    assert (await ours.run(asked("three", handle))).text == "4:three"
    assert (await theirs.run(asked("four", handle))).text == "6:four"


async def test_history_that_a_caller_brings_along_becomes_part_of_the_thread(ledger: Ledger) -> None:
    # PR-18
    handle = mint()
    before = (Message("user", "a"), Message("assistant", "b"))
    await kernel_on(ledger, FakeExecutor()).run(asked("c", handle, new=True, history=before))
    result = await kernel_on(ledger, FakeExecutor()).run(asked("d", handle, history=before))
    assert result.text == "4:d"
    assert [row.content for row in await rows(ledger, handle)] == ["a", "b", "c", "2:c", "d", "4:d"]


async def test_messages_of_a_call_stand_for_the_history_and_the_thread_gets_the_turn_alone(
    ledger: Ledger,
) -> None:
    # AG-14
    handle = mint()
    executor = FakeExecutor()
    kernel = kernel_on(ledger, executor)
    await kernel.run(asked("kept", handle, new=True))
    override = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "other"},
        {"role": "assistant", "content": "story"},
        {"role": "user", "content": "and now?"},
    ]
    result = await kernel.run(asked("left out", handle, params=Params({"messages": override})))
    turn = executor.turns[-1]
    assert [each.text for each in turn.history] == ["other", "story"]
    assert (turn.text, turn.params.to_json()) == ("and now?", {"systemAppend": "Be brief."})
    assert result.text == "2:and now?"
    assert [row.content for row in await rows(ledger, handle)] == ["kept", "0:kept", "and now?", "2:and now?"]
    assert (await kernel.run(asked("on", handle))).text == "4:on"


async def test_parameters_of_a_run_are_laid_over_those_of_the_agent(ledger: Ledger) -> None:
    # AG-8
    executor = FakeExecutor()
    kernel = kernel_on(ledger, executor, params=Params({"temperature": 0.5, "seed": 7, "top_p": 0.9}))
    await kernel.run(RunRequest("echo", "x", params=Params({"temperature": 1.0, "seed": None})))
    given = executor.turns[-1].params
    assert given.to_json() == {"temperature": 1.0, "seed": None, "top_p": 0.9}
    assert given.cleared("seed")


async def test_a_conversation_near_the_window_is_told_by_a_summary_that_everyone_sees(ledger: Ledger) -> None:
    window = 2_000
    heard: list[Event] = []

    async def answer(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        if turn.text.startswith("Summarise"):
            assert turn.params.get("tools_allowlist", ["?"]) == []
            return TurnResult((f"in short: {len(turn.history)} said",), ())
        text = f"{len(turn.history)} before"
        return TurnResult((text,), (Message("user", turn.text), Message("assistant", text)))

    handle = mint()
    executor = FakeExecutor(answer)
    kernel = kernel_on(ledger, executor, window=window)
    for number in range(6):
        await kernel.run(asked(f"{number} " + "word " * 200, handle, new=number == 0), heard.append)
    (compacted,) = [event for event in heard if isinstance(event, Compacted)]
    assert compacted.window == window
    assert compacted.after < window / 2 < compacted.before
    kept = await rows(ledger, handle)
    (summary,) = [row for row in kept if row.summary]
    assert "in short" in summary.content
    assert summary.role == "system"
    assert len([row for row in kept if row.role == "user"]) == 6, "nothing that was said is gone"

    shown = next(turn for turn in reversed(executor.turns) if not turn.text.startswith("Summarise"))
    assert shown.history[0].summary
    # Another start of the fleet shows a model the same.
    again = FakeExecutor(answer)
    await kernel_on(ledger, again, window=100_000).run(asked("last", handle))
    before = [each.text for each in again.turns[-1].history]
    assert before == [*(each.text for each in shown.history), shown.text, f"{len(shown.history)} before"]


async def test_what_an_executor_knows_of_its_model_goes_before_what_is_declared(ledger: Ledger) -> None:
    handle = mint()
    executor = FakeExecutor(info=ExecutorInfo(window=1_000_000))
    kernel = kernel_on(ledger, executor, window=900)
    for number in range(4):
        await kernel.run(asked("word " * 200, handle, new=number == 0))
    assert len(executor.turns) == 4, "nothing was summarised"


async def test_a_conversation_that_cannot_be_summarised_stays_whole_and_says_so(ledger: Ledger) -> None:
    async def answer(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        if turn.text.startswith("Summarise"):
            raise Fault(FaultType.UPSTREAM, "no model")
        return await echo(turn, emit)

    handle = mint()
    executor = FakeExecutor(answer)
    kernel = kernel_on(ledger, executor, window=1_000)
    for number in range(4):
        await kernel.run(asked("word " * 200, handle, new=number == 0))
    assert len(executor.turns[-1].history) == 6
    notices = [event for event in kernel._hub.since(0).events if isinstance(event, Notice)]
    assert any("no model" in notice.text for notice in notices)


async def test_an_answer_that_cannot_be_kept_is_told_as_such_and_not_lost(ledger: Ledger) -> None:
    executor = FakeExecutor()
    kernel = kernel_on(ledger, executor)
    handle = mint()
    await kernel.run(asked("one", handle, new=True))

    async def answer(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        await ledger.close()  # the database goes away while the model writes
        return await echo(turn, emit)

    executor.answer = answer
    with pytest.raises(Fault) as told_so:
        await kernel.run(asked("two", handle))
    assert told_so.value.type is FaultType.TRANSPORT
    assert told_so.value.data["partial"] == "2:two"


async def test_runs_of_which_nothing_is_remembered_are_known_too(ledger: Ledger) -> None:
    kernel = kernel_on(ledger, FakeExecutor())
    result = await kernel.run(RunRequest("echo", "hi", principal=ALICE, surface="rest"))
    assert (result.thread, result.turn_index) == ("", None)
    await kernel.close_records()
    record = await ledger.runs.get(result.run_id)
    assert record is not None
    assert (record.status, record.owner, record.surface, record.thread) == ("ok", "token:alice", "rest", "")
    kinds = [body["type"] for _, body in await ledger.runs.events(result.run_id)]
    assert kinds == ["RunStarted", "RunFinished"]
    assert (await ledger.threads.list()).items == ()


async def test_a_deleted_thread_is_forgotten_at_once(ledger: Ledger) -> None:
    handle = mint()
    kernel = kernel_on(ledger, FakeExecutor())
    await kernel.run(asked("one", handle, new=True))
    await ledger.threads.delete(handle)
    kernel.forget_thread("echo", handle)
    with pytest.raises(Fault, match="conversation not found"):
        await kernel.run(asked("two", handle))


@pytest.mark.parametrize("write", ["begin", "wait"])
async def test_a_caller_that_leaves_while_its_run_asks_for_its_thread_leaves_no_place_behind(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    handle, gate = mint(), Gate()
    first = asyncio.create_task(
        kernel_on(ledger, FakeExecutor(gate.answer)).run(asked("one", handle, new=True))
    )
    await gate.reached.wait()
    original, looked, go = getattr(ledger.threads, write), asyncio.Event(), asyncio.Event()

    async def slow(*given: Any, **more: Any) -> Any:
        try:
            return await original(*given, **more)
        finally:
            looked.set()
            await go.wait()

    monkeypatch.setattr(ledger.threads, write, slow)
    second = asyncio.create_task(kernel_on(ledger, FakeExecutor()).run(asked("two", handle)))
    await looked.wait()
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    go.set()
    gate.open.set()
    assert (await first).turn_index == 1
    monkeypatch.undo()
    # Nobody waits before the next one.
    async with asyncio.timeout(60):
        third = await kernel_on(ledger, FakeExecutor()).run(asked("three", handle))
        assert third.text == "2:three"
        await poll(lambda: queued(ledger), lambda number: number == 0)


async def queued(ledger: Ledger) -> int:
    count = select(func.count()).select_from(tables.waiting)
    return int(await ledger.database.read(lambda connection: connection.execute(count).scalar_one()))


async def test_what_a_run_says_after_it_was_cut_to_go_on_elsewhere_is_not_stored(ledger: Ledger) -> None:
    begun = asyncio.Event()

    async def answer(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        emit(told(turn, role="assistant", text="", calls=(CALL,)))
        assert turn.journal is not None
        await turn.journal.committed()
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            lost = (ToolAnswer(CALL.id, "it was cancelled"),)
            emit(told(turn, role="tool", text="it was cancelled", answers=lost))
            turn.journal.returned(CALL.id, "{}")

    handle = mint()
    kernel = kernel_on(ledger, FakeExecutor(answer))
    run = asyncio.create_task(kernel.run(asked("go", handle, new=True)))
    await begun.wait()
    (live,) = kernel.in_flight
    live.break_off(handed_over(live.id))
    with pytest.raises(Fault, match="hands this run over"):
        await run
    await kernel.close_records()
    assert [(row.role, row.status) for row in await rows(ledger, handle)] == [
        ("user", "pending"),
        ("assistant", "pending"),
    ]
    said = await ledger.threads.said(live.id)
    assert said is not None
    assert said.results == {}
