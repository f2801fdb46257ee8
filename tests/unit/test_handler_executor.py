"""The executor of handlers: what they answer, how they fail, and that none of them can hang a fleet."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.executors import FakeAgent
from support.waiting import until

from pallas.config import AgentConfig, Project
from pallas.config.kinds import HandlerConfig
from pallas.executors import ExecutorTurn, TurnResult
from pallas.executors.handler import handler_executor as under_test
from pallas.executors.handler import handler_tasks
from pallas.executors.handler.handler_executor import HandlerExecutor
from pallas.handlers import Chunk, Error, Final, PromptRequest, PromptResult, Session, Usage
from pallas.model import Event, Fault, FaultType, Image, Message, Params, RunRequest, TextDelta
from pallas.runs.kernel import Kernel
from pallas.telemetry.event_hub import EventHub


@asynccontextmanager
async def handling(handler: Any, capacity: int = 64) -> AsyncIterator[HandlerExecutor]:
    """The executor of an agent ``upper`` that is this handler."""
    config = AgentConfig("upper", 0, "Upper", "", kind="handler", handler=HandlerConfig(capacity=capacity))
    root = Path(__file__).parents[1]
    executor = HandlerExecutor(Project(root, root / "agents.yaml", "test", {}), config, handler)
    await executor.load()
    await executor.start()
    try:
        yield executor
    finally:
        await executor.close(1.0)


async def said(
    executor: HandlerExecutor, text: str = "hi", heard: list[Event] | None = None, **more: Any
) -> TurnResult:
    """One turn."""
    turn = ExecutorTurn("r1", "upper", text, **more)
    return await executor.run(turn, heard.append if heard is not None else lambda event: None)


def pieces(heard: list[Event]) -> list[str]:
    return [event.text for event in heard if isinstance(event, TextDelta)]


def answers_with(answer: Any) -> Any:
    async def prompt(request: PromptRequest) -> Any:
        return answer

    return prompt


def streams_with(*events: Any) -> Any:
    async def stream(request: PromptRequest) -> AsyncIterator[Any]:
        for event in events:
            yield event

    return stream


@pytest.mark.parametrize(
    ("handler", "text", "heard"),
    [
        (answers_with("Hello"), "Hello", ["Hello"]),
        (streams_with(Chunk("a", 0), Chunk("b", 1)), "ab", ["a", "b"]),
        (streams_with(Chunk("a"), Final("all")), "all", ["a"]),
        (streams_with(Final(PromptResult("all"))), "all", ["all"]),
        (streams_with({"type": "chunk", "text": "a", "index": 0}, "b"), "ab", ["a", "b"]),
        (
            streams_with({"type": "final", "result": {"text": "all", "stopReason": "end_turn"}}),
            "all",
            ["all"],
        ),
        (streams_with(), "", []),
    ],
    ids=["prompt", "chunks", "final", "final-alone", "plain", "plain-final", "nothing"],
)
async def test_prompts_and_streams_answer_both_kinds_of_callers(
    handler: Any, text: str, heard: list[str]
) -> None:
    # DR-26
    async with handling(handler) as executor:
        for stream_text in (False, True):
            events: list[Event] = []
            result = await said(executor, heard=events, stream_text=stream_text)
            assert (result.texts, pieces(events)) == ((text,), heard)
            assert [each.text for each in result.messages] == ["hi", text]


async def test_who_has_both_streams_for_those_who_listen() -> None:
    class Both:
        id = "upper"

        async def prompt(self, request: PromptRequest) -> str:
            return f"prompt {request.stream}"

        async def stream(self, request: PromptRequest) -> AsyncIterator[Chunk]:
            yield Chunk(f"stream {request.stream}")

    async with handling(Both()) as executor:
        assert (await said(executor)).texts == ("prompt False",)
        assert (await said(executor, stream_text=True)).texts == ("stream True",)


async def test_a_request_has_all_that_is_known_and_nothing_to_call() -> None:
    seen: list[PromptRequest] = []

    async def prompt(request: PromptRequest) -> PromptResult:
        seen.append(request)
        return PromptResult("seen", "max_tokens", Usage(3, 4))

    session = "a" * 32
    async with handling(prompt) as executor:
        await executor.session_opened(session, {"team": "blue"})
        result = await said(
            executor,
            images=(Image("aGk=", "image/png"),),
            history=(Message("user", "before", native=object()),),
            lease="id:c",
            principal="token:ci",
            params=Params({"temperature": 0.5}),
            session=session,
        )
    (request,) = seen
    assert (request.text, request.thread, request.principal, request.run_id) == (
        "hi",
        "id:c",
        "token:ci",
        "r1",
    )
    assert (dict(request.params), dict(request.metadata)) == ({"temperature": 0.5}, {"team": "blue"})
    assert request.session == Session(session, "upper", request.metadata)
    assert request.history[0].native is None
    assert (result.stop_reason, result.usage) == ("maxTokens", Usage(3, 4, unpriced=1))


async def test_an_error_event_is_told_with_its_words_and_whether_it_pays_to_try_again() -> None:
    async with handling(streams_with(Chunk("so far"), Error("rate \x1b[31mlimited", True))) as executor:
        with pytest.raises(Fault) as fault:
            await said(executor)
    assert (fault.value.type, fault.value.retryable) == (FaultType.UPSTREAM, True)
    assert fault.value.message == "upper: rate ␛[31mlimited"


async def test_the_words_of_an_exception_stay_in_the_log_with_their_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def prompt(request: PromptRequest) -> str:
        raise KeyError("the password is swordfish")

    async with handling(prompt) as executor:
        with caplog.at_level(logging.ERROR), pytest.raises(Fault) as fault:
            await said(executor)
        assert fault.value.message == "upper failed; the log has the details"
        assert fault.value.type is FaultType.UPSTREAM
        (record,) = caplog.records
        assert "unit/test_handler_executor.py:" in record.getMessage()
        assert record.exc_info


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (None, "prompt returned NoneType; return the answer's text"),
        (7, "prompt returned int"),
        (PromptResult(7), "whose text is int"),  # type: ignore[arg-type]
        (PromptResult("x", "tired"), "allowed: end_turn, max_turns"),  # type: ignore[arg-type]
    ],
)
async def test_what_is_no_answer_is_told_with_what_it_should_be(answer: Any, problem: str) -> None:
    async with handling(answers_with(answer)) as executor:
        with pytest.raises(Fault, match=r"^upper: its ") as fault:
            await said(executor)
        assert problem in fault.value.message
    async with handling(streams_with(object())) as executor:
        with pytest.raises(Fault, match="stream yielded object; yield Chunk"):
            await said(executor)


async def test_a_handler_that_calls_exit_ends_its_answer_and_nothing_else() -> None:
    async def prompt(request: PromptRequest) -> str:
        raise SystemExit(3)

    async with handling(prompt) as executor:
        with pytest.raises(Fault, match="upper failed; the log"):
            await said(executor)
        with pytest.raises(Fault, match="upper failed; the log"):
            await said(executor)


async def test_a_deadline_cancels_the_handler_and_says_what_was_written() -> None:
    # DR-15: 50 ms for an agent that takes 400
    ended: list[str] = []

    async def stream(request: PromptRequest) -> AsyncIterator[Chunk]:
        try:
            yield Chunk("so far")
            await asyncio.sleep(400)
        finally:
            ended.append("cancelled")

    async with handling(stream) as executor:
        kernel = Kernel(EventHub())
        kernel.attach(FakeAgent(executor, name="upper"))
        with pytest.raises(Fault) as fault:
            await kernel.run(RunRequest("upper", "hi", timeout=0.05))
    assert ended == ["cancelled"]
    assert (fault.value.type, fault.value.code, fault.value.retryable) == (FaultType.TIMEOUT, -32001, True)
    assert fault.value.data["partial"] == "so far"


async def test_a_handler_that_does_not_let_itself_be_cancelled_is_left_and_heard_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handler_tasks, "GRACE", 0.05)
    reached, free = asyncio.Event(), asyncio.Event()

    async def stream(request: PromptRequest) -> AsyncIterator[Chunk]:
        if request.text == "hi":
            yield Chunk("hi yourself")
            return
        while not free.is_set():
            try:
                reached.set()
                await free.wait()
            except asyncio.CancelledError:
                continue
        yield Chunk("too late")

    heard: list[Event] = []
    async with handling(stream, capacity=1) as executor:
        run = asyncio.create_task(said(executor, "stay", heard))
        await reached.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert (await said(executor)).texts == ("hi yourself",)  # its place is free again
        free.set()
        await until(lambda: not executor._work)
    assert not pieces(heard)


async def test_more_runs_than_its_capacity_wait() -> None:
    open_, reached = asyncio.Event(), asyncio.Event()

    async def prompt(request: PromptRequest) -> str:
        reached.set()
        await open_.wait()
        return "done"

    async with handling(prompt, capacity=1) as executor:
        assert executor.info.capacity == 1
        runs = [asyncio.create_task(said(executor)) for _ in range(2)]
        await reached.wait()
        await until(lambda: executor.waiting == 1)
        open_.set()
        assert [(await run).texts for run in runs] == [("done",)] * 2
        assert executor.waiting == 0


async def test_hooks_are_told_of_sessions_and_what_they_raise_is_a_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # DR-27
    monkeypatch.setattr(under_test, "HOOK_SECONDS", 0.05)
    told: list[tuple[Any, ...]] = []

    class Hooks:
        id = "upper"

        async def prompt(self, request: PromptRequest) -> str:
            return str(request.session)

        async def on_session_create(self, session: Session) -> None:
            told.append(("create", dict(session.metadata)))
            if "slow" in session.metadata:
                await asyncio.Event().wait()
            if "refuse" in session.metadata:
                raise ValueError("no room for swordfish")

        async def on_session_close(self, session: Session, reason: str) -> None:
            told.append(("close", session.id, reason))
            raise ValueError("cannot")

        async def cancel(self, session: Session) -> None:
            told.append(("cancel", session.id))

    async with handling(Hooks()) as executor:
        await executor.session_opened("one", {"a": 1})
        with pytest.raises(Fault) as refused:
            await executor.session_opened("two", {"refuse": True})
        assert refused.value.type is FaultType.UPSTREAM
        assert refused.value.message == ("on_session_create of upper failed; the log has the details")
        with pytest.raises(Fault, match=r"took longer than 0\.05 s"):
            await executor.session_opened("three", {"slow": True})
        await executor.session_cancelled("one")
        with pytest.raises(Fault, match="on_session_close of upper failed"):
            await executor.session_closed("one", "expired")
    assert told == [
        ("create", {"a": 1}),
        ("create", {"refuse": True}),
        ("create", {"slow": True}),
        ("cancel", "one"),
        ("close", "one", "expired"),
    ]


async def test_what_was_said_of_a_session_outlives_the_version_that_heard_it() -> None:
    async def prompt(request: PromptRequest) -> str:
        return str(dict(request.metadata))

    async with handling(prompt) as before:
        await before.session_opened("b" * 32, {"team": "blue"})
    async with handling(prompt) as executor:
        assert (await said(executor, session="b" * 32)).texts == ("{'team': 'blue'}",)
        await executor.session_closed("b" * 32, "closed")
        assert (await said(executor, session="b" * 32)).texts == ("{}",)
