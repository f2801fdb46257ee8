"""Runs that are cut short: what is left of them, who is let in meanwhile, and that their callers are told."""

import asyncio
import logging
from dataclasses import replace

import pytest
from support.clocks import expire
from support.executors import FakeAgent, FakeExecutor, Gate, echo
from support.waiting import until

from pallas.executors import Emit, ExecutorTurn, TurnResult
from pallas.fleet.shutdown import Drained, drain
from pallas.model import (
    Fault,
    FaultType,
    Principal,
    RunFinished,
    RunRequest,
    RunStarted,
    StepStarted,
    TextDelta,
    ToolEvent,
    TraceContext,
)
from pallas.model.redaction import forget, redact
from pallas.runs.kernel import Kernel
from pallas.runs.partial_text import MAX_PARTIAL, PartialText
from pallas.telemetry.event_hub import EventHub

HANDLE = "a-handle-of-my-own"


class Writer(Gate):
    """Writes ``text``, makes a call and waits to be let through."""

    def __init__(self, text: str, *, stubborn: bool = False) -> None:
        super().__init__()
        self.text = text
        self.stubborn = stubborn
        self.span = "c" * 16
        self.asked: TraceContext | None = None

    async def answer(self, turn: ExecutorTurn, emit: Emit) -> TurnResult:
        emit(TextDelta(run_id=turn.run_id, agent=turn.agent, text=self.text))
        call = ToolEvent(
            run_id=turn.run_id,
            agent=turn.agent,
            server="s",
            tool="t",
            phase="started",
            call_id="1",
            span_id=self.span,
        )
        emit(call)
        try:
            result = await super().answer(turn, emit)
        except asyncio.CancelledError:
            if not self.stubborn:
                raise
            await self.open.wait()  # does not stop, as code that catches everything does not
            raise
        emit(replace(call, phase="completed"))
        return result


def writing(text: str, *, stubborn: bool = False, **agent: object) -> tuple[Kernel, EventHub, Writer]:
    hub, writer = EventHub(), Writer(text, stubborn=stubborn)
    kernel = Kernel(hub)
    kernel.attach(FakeAgent(FakeExecutor(answer=writer.answer), **agent))  # type: ignore[arg-type]
    return kernel, hub, writer


def request(text: str = "write", **more: object) -> RunRequest:
    return RunRequest("echo", text, **more)  # type: ignore[arg-type]


def finished(hub: EventHub) -> RunFinished:
    return [event for event in hub.since(0).events if isinstance(event, RunFinished)][-1]


async def begun(kernel: Kernel, writer: Writer, **more: object) -> asyncio.Task[object]:
    call: asyncio.Task[object] = asyncio.create_task(kernel.run(request(**more)))
    await writer.reached.wait()
    return call


def tell(line: str) -> None: ...


async def test_a_person_who_cancels_a_run_leaves_what_it_wrote_with_caller_event_log_and_conversation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kernel, hub, writer = writing("half of it")
    call = await begun(kernel, writer, conversation=HANDLE)
    (started,) = (event for event in hub.since(0).events if isinstance(event, RunStarted))
    with caplog.at_level(logging.INFO):
        assert kernel.cancel(started.run_id)
        with pytest.raises(Fault, match="cancelled") as told:
            await call
    assert told.value.data == {"cancelled": True, "partial": "half of it"}
    assert finished(hub).partial == "half of it"
    (record,) = (each for each in caplog.records if "cancelled in" in each.getMessage())
    assert vars(record)["partial"] == "half of it"
    said = await kernel.open("echo", HANDLE, None, Principal())
    assert [(message.role, message.text) for message in said] == [
        ("user", "write"),
        ("assistant", "half of it\n\n[cut short: it was cancelled]"),
    ]


async def test_a_run_past_its_deadline_leaves_what_it_wrote() -> None:
    kernel, hub, writer = writing("half of it", run_timeout=60.0)
    call = await begun(kernel, writer, conversation=HANDLE)
    expire(kernel.in_flight)
    with pytest.raises(Fault) as told:
        await call
    assert told.value.type is FaultType.TIMEOUT
    assert told.value.data == {"limit": 60.0, "partial": "half of it"}
    assert finished(hub).partial == "half of it"
    said = await kernel.open("echo", HANDLE, None, Principal())
    assert "[cut short: it took longer than 60 s]" in said[-1].text


async def test_a_caller_that_goes_away_leaves_nothing_in_the_conversation() -> None:
    kernel, hub, writer = writing("half of it")
    call = await begun(kernel, writer, conversation=HANDLE)
    call.cancel()
    await asyncio.wait({call})
    await until(lambda: not kernel.in_flight)
    assert finished(hub).partial == "half of it"
    assert await kernel.open("echo", HANDLE, None, Principal()) == ()


async def test_a_run_that_wrote_nothing_leaves_nothing() -> None:
    kernel, _, writer = writing("")
    call = await begun(kernel, writer, conversation=HANDLE)
    await drain(kernel, 0, tell)
    with pytest.raises(Fault) as told:
        await call
    assert told.value.data == {"cancelled": True}
    assert await kernel.open("echo", HANDLE, None, Principal()) == ()


async def test_the_handle_of_a_conversation_that_the_caller_does_not_know_is_told_with_what_is_left() -> None:
    kernel, _, writer = writing("half of it")
    call = await begun(kernel, writer, conversation="made-just-now", new_conversation=True)
    await drain(kernel, 0, tell)
    with pytest.raises(Fault) as told:
        await call
    assert told.value.data["conversation_id"] == "made-just-now"


async def test_a_callers_token_is_not_in_what_is_left() -> None:
    kernel, hub, writer = writing("the token is a-token-of-somebody.")
    call = await begun(kernel, writer, bearer="a-token-of-somebody")
    await drain(kernel, 0, tell)
    with pytest.raises(Fault) as told:
        await call
    assert told.value.data["partial"] == finished(hub).partial == "the token is [redacted]."


async def test_a_draining_kernel_refuses_new_runs_and_lets_in_what_a_run_in_flight_asks_for() -> None:
    kernel, hub, writer = writing("half")
    helper = FakeExecutor(answer=echo)
    kernel.attach(FakeAgent(helper, name="helper"))
    call = await begun(kernel, writer)
    (started,) = (event for event in hub.since(0).events if isinstance(event, RunStarted))
    lines: list[str] = []
    draining = asyncio.create_task(drain(kernel, 60, lines.append))
    await until(lambda: lines)
    its_own = TraceContext(started.trace_id, writer.span)
    others = (
        None,
        TraceContext(started.trace_id, "d" * 16),
        TraceContext(started.trace_id, started.span_id),
        TraceContext("e" * 32, writer.span),
    )
    for trace in others:
        with pytest.raises(Fault, match="the fleet is draining") as told:
            await kernel.run(RunRequest("helper", "hi", trace=trace))
        assert told.value.retryable
        assert told.value.data == {"retry_after": 5.0}
    assert (await kernel.run(RunRequest("helper", "hi", trace=its_own))).text == "0:hi"
    writer.open.set()
    await call
    assert await draining == replace(await draining, finished=1, cut=0)
    with pytest.raises(Fault, match="draining"):  # the run is over, and so is what it may ask for
        await kernel.run(RunRequest("helper", "hi", trace=its_own))


async def test_what_is_asked_for_during_a_drain_is_waited_for_too() -> None:
    kernel, hub, writer = writing("half")
    gate = Gate()
    kernel.attach(FakeAgent(FakeExecutor(answer=gate.answer), name="helper"))
    call = await begun(kernel, writer)
    (started,) = (event for event in hub.since(0).events if isinstance(event, RunStarted))
    lines: list[str] = []
    draining = asyncio.create_task(drain(kernel, 60, lines.append))
    await until(lambda: lines)
    trace = TraceContext(started.trace_id, writer.span)
    below = asyncio.create_task(kernel.run(RunRequest("helper", "hi", trace=trace)))
    await gate.reached.wait()
    writer.open.set()
    await call
    assert not draining.done()
    gate.open.set()
    await below
    drained = await draining
    assert (drained.finished, drained.cut) == (2, 0)


async def test_the_caller_of_a_run_that_does_not_stop_is_told_all_the_same() -> None:
    kernel, hub, writer = writing("half of it", stubborn=True)
    call = await begun(kernel, writer)
    drained = await drain(kernel, 0, tell)
    assert drained.cut == 1
    with pytest.raises(Fault) as told:
        await call
    assert told.value.data["partial"] == "half of it"
    assert finished(hub).outcome == "cancelled"
    before = kernel.stats("echo").total
    writer.open.set()  # it ends after all, and is not counted again
    await until(lambda: kernel.stats("echo").active == 0)
    assert kernel.stats("echo").total == before


def test_what_came_of_a_drain_reads_as_a_line() -> None:
    assert str(Drained()) == "no run was in flight"
    assert str(Drained(1, 0, 4.21)) == "1 run finished in 4.2 s"
    assert str(Drained(3, 2, 30.04)) == "2 runs cut short after 30.0 s, 3 finished before"


def text(piece: str, **more: object) -> TextDelta:
    return TextDelta(run_id="r", agent="a", text=piece, **more)  # type: ignore[arg-type]


def test_a_draft_has_what_would_be_the_answer_and_nothing_else() -> None:
    draft = PartialText("a")
    for event in (
        text("thinking", reasoning=True),
        text("first"),
        text(" words"),
        StepStarted(run_id="r", agent="a", actor="child", step=1, kind="llm"),
        text("of a child", actor="child"),
        StepStarted(run_id="r", agent="a", actor="a", step=2, kind="llm"),
        text("taken back"),
        text("", rollback=True),
        text("second"),
    ):
        draft.hear(event)
    assert draft.text() == "first words\n\nsecond"


@pytest.mark.parametrize("letter", ["a", "ä", "😀"])
def test_a_draft_is_bounded_in_bytes_and_says_when_some_is_missing(letter: str) -> None:
    draft = PartialText("a")
    for _ in range(200):
        draft.hear(text(letter * 1_000))
    assert draft.text().endswith(letter + "…")
    assert MAX_PARTIAL - 8 <= len(draft.text().encode()) <= MAX_PARTIAL
    draft.hear(text("", rollback=True))
    draft.hear(text("anew"))
    assert draft.text() == "anew"


def test_a_draft_holds_no_secret() -> None:
    draft = PartialText("a")
    redact("a-token-of-somebody")
    try:
        draft.hear(text("the token is a-token-of-"))
        draft.hear(text("somebody."))
        assert "a-token" not in draft.text()
    finally:
        forget("a-token-of-somebody")
