"""Turns that are cancelled at any moment, or that the ledger fails: no row stays pending, and all agree."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal

import pytest
from support.executors import FakeAgent, FakeExecutor, echo
from support.kept import asked, kernel_on, rows
from support.waiting import poll

from pallas.executors import Emit, ExecutorTurn, TurnResult
from pallas.ledger import Ledger, open_ledger
from pallas.model import (
    Fault,
    FaultType,
    LoopMessage,
    Message,
    Params,
    Principal,
    RunRequest,
    TextDelta,
    ToolAnswer,
    ToolCall,
    Usage,
)
from pallas.model.ids import mint
from pallas.runs import retry_queue
from pallas.runs.kernel import Kernel
from pallas.telemetry.event_hub import EventHub

WINDOW = 1_000
POINTS = (
    "first begin",
    "history",
    "begin",
    "summary",
    "summarise",
    "executor",
    "add_message",
    "finish",
    "fail",
)
How = Literal["gone", "cancel", "drain", "stop"]
WAYS: tuple[tuple[How, bool], ...] = (
    ("gone", False),
    ("gone", True),
    ("cancel", False),
    ("drain", True),
    ("stop", True),
)


class Gated:
    """A store whose verb ``at`` stands still, once, before or after its work is done."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.at = ""
        self.after = False
        self.error: Exception | None = None
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        return verb if name != self.at else lambda *args, **more: self._held(verb, *args, **more)

    async def _held(self, verb: Callable[..., Awaitable[Any]], *args: Any, **more: Any) -> Any:
        if self.error is not None:
            raise self.error
        result = await verb(*args, **more) if self.after else None
        self.at = ""
        self.reached.set()
        await self.open.wait()
        return result if self.after else await verb(*args, **more)


@pytest.fixture
async def ledger() -> AsyncIterator[Ledger]:
    opened = await open_ledger("memory")
    yield opened
    await opened.close()


@pytest.fixture
def gated(ledger: Ledger) -> Gated:
    ledger.threads = made = Gated(ledger.threads)  # type: ignore[assignment]
    return made


class Model:
    """Answers, and stands still in its answer or its summary when it is told to."""

    def __init__(self) -> None:
        self.at = ""
        self.reached = asyncio.Event()
        self.late: Callable[[], None] = lambda: None

    async def answer(self, turn: ExecutorTurn, emit: Emit) -> TurnResult:
        summary = turn.text.startswith("Summarise")
        call = ToolCall("c1", "echo__echo", {"text": "x"})
        answers = (ToolAnswer("c1", "echo:x"),)
        if not summary:
            emit(TextDelta(run_id=turn.run_id, agent=turn.agent, text="half of"))
            emit(LoopMessage(run_id=turn.run_id, agent=turn.agent, role="assistant", text="", calls=(call,)))
            self.late = lambda: emit(
                LoopMessage(run_id=turn.run_id, agent=turn.agent, role="tool", text="echo:x", answers=answers)
            )
        if self.at == ("summary" if summary else "executor"):
            self.at = ""
            self.reached.set()
            await asyncio.Event().wait()
        if summary:
            return TurnResult(("in short",), (), Usage(100, 10))
        self.late()
        made = (Message("assistant", "", calls=(call,)), Message("tool", "echo:x", answers=answers))
        text = f"{len(turn.history)} before"
        said = (Message("user", turn.text), *made, Message("assistant", text))
        return TurnResult((text,), said, Usage(20, 5))


async def unsettled(ledger: Ledger) -> list[Any]:
    """What the ledger still has as under way."""
    found: list[Any] = list((await ledger.runs.list(status="running")).items)
    for thread in (await ledger.threads.list()).items:
        found += [row for row in await rows(ledger, thread.id) if row.status == "pending"]
    return found


async def settled(ledger: Ledger) -> None:
    """Until nothing is under way there."""
    await poll(lambda: unsettled(ledger), lambda left: not left)


async def shown(kernel: Kernel, model: FakeExecutor, handle: str) -> list[str]:
    """What a model is shown of the conversation by the next turn, which also proves that it gets its turn."""
    async with asyncio.timeout(60):
        await kernel.run(asked("next", handle, new=False))
    return [each.text for each in model.turns[-1].history]


@pytest.mark.parametrize("point", POINTS)
async def test_wherever_a_turn_is_cancelled_nothing_stays_pending_and_memory_agrees_with_the_ledger(
    ledger: Ledger, point: str
) -> None:
    # AG-5
    store = ledger.threads
    for how, after in WAYS:
        ledger.threads = gated = Gated(store)  # type: ignore[assignment]
        await cancelled_at(ledger, gated, point, how, after, f"own-{how}-{after}")


async def cancelled_at(ledger: Ledger, gated: Gated, point: str, how: How, after: bool, handle: str) -> None:
    """One turn in a conversation of its own that is cancelled there."""
    model = Model()
    executor, agent = FakeExecutor(model.answer), FakeAgent(None, window=100_000)
    agent.executor = executor
    kernel = Kernel(EventHub())
    kernel.use_ledger(ledger)
    kernel.attach(agent)
    if point != "first begin":
        for number in range(2):
            await kernel.run(asked(f"{number} " + "word " * 200, handle))
    if point == "history":  # it is read again
        kernel = kernel_on(ledger, executor)
    before: list[str] = []
    if point not in ("history", "first begin"):
        before = [each.text for each in await kernel.open("echo", handle, None, Principal())]
    if point in ("summary", "summarise"):
        agent.window = 500

    in_model = point in ("summary", "executor")
    model.at = "executor" if point == "fail" else point
    gated.at, gated.after = point.removeprefix("first "), after
    reached = model.reached if in_model or point == "fail" else gated.reached
    run = asyncio.create_task(kernel.run(asked("go", handle)))
    async with asyncio.timeout(60):
        await reached.wait()
        (live,) = kernel.in_flight
        if point == "fail":
            live.cut("first")
            await gated.reached.wait()
        ends: list[asyncio.Task[Any]] = []
        if how == "gone":
            run.cancel()
        elif how == "cancel":
            kernel.cancel(live.id)
        elif how == "drain":
            ends = [asyncio.create_task(kernel.drain("echo", 0.0, "it was drained"))]
        else:
            ends = [asyncio.create_task(kernel.close(0.0))]
        await asyncio.sleep(0)
        gated.open.set()
        await asyncio.gather(run, *ends, return_exceptions=True)
    assert await kernel.in_flight.wait_ended(60) == ()
    agent.window = 100_000
    await settled(ledger)
    model.late()  # an executor that says one thing more is not heard
    for _ in range(20):
        await asyncio.sleep(0)
    assert await unsettled(ledger) == []

    if how == "stop":
        kernel = kernel_on(ledger, executor)
    history = await shown(kernel, executor, handle)
    fresh = FakeExecutor()
    assert (await shown(kernel_on(ledger, fresh), fresh, handle))[: len(history)] == history
    if point in ("executor", "fail"):
        gone = how == "gone" and point == "executor"
        assert history[: len(before)] == before
        assert history[len(before) : len(before) + 1] == ([] if gone else ["go"])
    elif point == "finish":
        assert history[len(before) :] == ["go", "", "echo:x", f"{len(before)} before"]
    elif point == "first begin":
        assert history == []
    elif point == "begin":
        assert history == before


async def test_a_summary_that_keeps_messages_loses_none_of_a_history_that_was_brought_along(
    ledger: Ledger,
) -> None:
    model = Model()
    executor = FakeExecutor(model.answer)
    kernel = kernel_on(ledger, executor, window=WINDOW)
    brought = [Message("user" if n % 2 == 0 else "assistant", f"{n} " + "word " * 120) for n in range(6)]
    brought += [Message("user", "last question"), Message("assistant", "last answer")]
    result = await kernel.run(asked("go", "my-own", history=tuple(brought)))
    history = [each.text for each in executor.turns[-1].history]
    assert history[0].startswith("[Summary of the 6 earlier")
    assert history[1:] == ["last question", "last answer"]
    # What the summary took counts as well.
    assert result.usage.input_tokens == 20 + 100 * (len(executor.turns) - 1)
    fresh = FakeExecutor()
    assert (await shown(kernel_on(ledger, fresh), fresh, "my-own"))[:4] == [*history, "go"]


async def test_a_model_that_writes_no_summary_takes_nothing_away(ledger: Ledger) -> None:
    async def answer(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        if turn.text.startswith("Summarise"):
            return TurnResult((" ",), ())
        return await echo(turn, emit)

    executor = FakeExecutor(answer)
    kernel = kernel_on(ledger, executor, window=WINDOW)
    for _ in range(4):
        await kernel.run(asked("word " * 250, "my-own"))
    assert len(executor.turns[-1].history) == 6


async def test_a_summary_is_bounded_by_the_run_timeout(ledger: Ledger) -> None:
    model = Model()
    executor = FakeExecutor(model.answer)
    kernel = kernel_on(ledger, executor, window=WINDOW)
    for _ in range(2):
        await kernel.run(asked("word " * 200, "my-own"))
    kernel.attach(FakeAgent(executor, window=500, run_timeout=0.05))
    model.at = "summary"
    with pytest.raises(Fault) as late:
        async with asyncio.timeout(60):
            await kernel.run(asked("go", "my-own"))
    assert late.value.type is FaultType.TIMEOUT


async def test_a_summary_of_a_summary_tears_no_call_from_its_answers(ledger: Ledger) -> None:
    model = Model()
    executor = FakeExecutor(model.answer)
    kernel = kernel_on(ledger, executor, window=WINDOW)
    first, second = (asyncio.create_task(kernel.run(asked("word " * 150, "my-own"))) for _ in range(2))
    await asyncio.gather(first, second)
    for _ in range(8):
        await kernel.run(asked("word " * 150, "my-own"))
    kept = await rows(ledger, "my-own") if await ledger.threads.get("my-own") else []
    found = await ledger.threads.find("echo", "my-own")
    assert found is not None
    kept = await rows(ledger, found.id)
    assert len([row for row in kept if row.summary]) >= 2
    assert len([row for row in kept if row.role == "user"]) == 10
    for turn in executor.turns:
        calls = [call.id for each in turn.history for call in each.calls]
        answers = [answer.call_id for each in turn.history for answer in each.answers]
        assert calls == answers
        assert not turn.history or turn.history[0].role == "user"
        assert len([each for each in turn.history if each.summary]) <= 1
    fresh = FakeExecutor()
    again = await shown(kernel_on(ledger, fresh), fresh, "my-own")
    assert again == await shown(kernel, executor, "my-own") or again[0].startswith("[Summary")


async def test_pictures_count_and_are_told_by_the_summary(ledger: Ledger) -> None:
    from pallas.model import Image

    model = Model()
    executor = FakeExecutor(model.answer)
    kernel = kernel_on(ledger, executor, window=8_000)
    dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    pictures = tuple(Message("user", "look", (Image(dot, "image/png"),)) for _ in range(6))
    said = tuple(each for picture in pictures for each in (picture, Message("assistant", "seen")))
    await kernel.run(asked("go", "my-own", history=said))
    assert executor.turns[0].text.startswith("Summarise")
    assert any(each.images for each in executor.turns[0].history)
    assert sum(len(each.images) for each in executor.turns[-1].history) <= 1


@pytest.mark.parametrize("verb", ["begin", "finish", "fail"])
async def test_a_ledger_that_fails_for_a_while_is_told_the_end_when_it_is_back(
    ledger: Ledger, gated: Gated, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # AG-5
    monkeypatch.setattr(retry_queue, "TRY_EVERY", 0.01)
    model = Model()
    executor = FakeExecutor(model.answer)
    kernel = kernel_on(ledger, executor)
    await kernel.run(asked("one", "my-own"))
    turns = len(executor.turns)

    gated.at, gated.error = verb, Fault(FaultType.TIMEOUT, "the database did not answer")
    if verb == "fail":

        async def broken(turn: ExecutorTurn, emit: Emit) -> TurnResult:
            raise Fault(FaultType.UPSTREAM, "the provider broke")

        executor.answer = broken
    with pytest.raises(Fault) as told:
        await kernel.run(asked("two", "my-own"))
    executor.answer = model.answer
    if verb == "fail":
        assert told.value.message == "the provider broke"
    else:
        assert (told.value.type, told.value.retryable) == (FaultType.TRANSPORT, True)
    assert (len(executor.turns) == turns) == (verb == "begin")
    if verb == "finish":
        assert told.value.data["partial"] == "4 before"
        # It may have been written all the same, as far as anybody knows.
        assert await unsettled(ledger)
    gated.at = ""
    assert await shown(kernel, executor, "my-own") == ["one", "", "echo:x", "0 before"]
    assert await unsettled(ledger) == []
    found = await ledger.threads.find("echo", "my-own")
    assert found is not None
    if verb != "begin":
        assert {row.status for row in await rows(ledger, found.id)} == {"complete", "error"}


async def test_an_answer_that_was_kept_without_anybody_hearing_of_it_stays(
    ledger: Ledger, gated: Gated
) -> None:
    executor = FakeExecutor()
    kernel = kernel_on(ledger, executor)
    real = gated._store.finish

    async def finish(*args: Any, **more: Any) -> int:
        await real(*args, **more)
        raise Fault(FaultType.TRANSPORT, "the connection broke")

    gated._store.finish = finish
    with pytest.raises(Fault):
        await kernel.run(asked("one", "my-own"))
    gated._store.finish = real
    assert await shown(kernel, executor, "my-own") == ["one", "0:one"]
    assert {run.status for run in (await ledger.runs.list()).items} == {"ok"}


async def test_a_thread_that_is_deleted_ends_the_runs_in_it_and_does_not_come_back(ledger: Ledger) -> None:
    model = Model()
    model.at = "executor"
    kernel = kernel_on(ledger, FakeExecutor(model.answer))
    handle = mint()
    runs = [
        asyncio.create_task(kernel.run(asked("go", handle, new=True))),
    ]
    await model.reached.wait()
    runs.append(asyncio.create_task(kernel.run(asked("and", handle))))
    await asyncio.sleep(0)
    await ledger.threads.delete(handle)
    kernel.forget_thread("echo", handle)
    async with asyncio.timeout(60):
        one, two = await asyncio.gather(*runs, return_exceptions=True)
    assert isinstance(one, Fault)
    assert "thread was deleted" in one.message
    assert one.data["partial"] == "half of"
    assert isinstance(two, Fault)
    assert "not found" in two.message
    assert (await ledger.threads.list()).items == ()
    with pytest.raises(Fault, match="not found"):
        await kernel.run(asked("on", handle))


async def test_messages_in_place_of_a_thread_are_asked_outside_of_its_instance(ledger: Ledger) -> None:
    # AG-14
    executor = FakeExecutor()
    kernel = kernel_on(ledger, executor, window=WINDOW)
    result = await kernel.run(asked("kept", "my-own"))
    override = [{"role": "user", "content": "other " + "word " * 2_000}]
    await kernel.run(asked("", "my-own", params=Params({"messages": override})))
    assert executor.turns[-1].lease is None
    assert executor.turns[-1].history == ()
    assert executor.turns[0].lease == result.thread


@pytest.mark.parametrize("durable", [True, False])
async def test_a_run_is_called_as_was_asked_and_no_two_alike(ledger: Ledger, durable: bool) -> None:
    kernel = kernel_on(ledger, FakeExecutor())
    handle = "my-own" if durable else None
    assert (await kernel.run(RunRequest("echo", "x", conversation=handle, run_id="mine"))).run_id == "mine"
    for _ in range(2):
        with pytest.raises(Fault, match="a run of that id already"):
            await kernel.run(RunRequest("echo", "x", conversation=handle, run_id="mine"))
        await kernel.close_records()
    with pytest.raises(Fault, match="run_id"):
        await kernel.run(RunRequest("echo", "x", run_id="../x"))


async def test_an_agent_that_comes_back_has_its_threads_again(ledger: Ledger) -> None:
    # AG-27
    kernel, agent = Kernel(EventHub()), FakeAgent(FakeExecutor())
    kernel.use_ledger(ledger)
    kernel.attach(agent)
    await ledger.resources.declare_agents({"echo": "agents.yaml:3"})
    handle = mint()
    await kernel.run(asked("one", handle, new=True))
    kernel.detach(agent)
    await ledger.resources.declare_agents({})
    with pytest.raises(Fault, match="Agent not found"):
        await kernel.run(asked("two", handle))
    kernel.attach(agent)
    await ledger.resources.declare_agents({"echo": "agents.yaml:3"})
    assert (await kernel.run(asked("two", handle))).text == "2:two"
