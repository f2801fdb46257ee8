"""The two streams of a connection: answers made usable by their request's method, and the wire record."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from pallas.downstreams import raw_streams
from pallas.downstreams.raw_streams import RawStreams, before_call
from pallas.downstreams.usable_results import UsableResult
from pallas.model import TraceContext
from pallas.telemetry.trace_context import RunTrace, begin_call, running
from pallas.telemetry.wire_record import WireRecord

CONTEXT = TraceContext("ab" * 16, "cd" * 8, "01", "", "")


@asynccontextmanager
async def streams() -> AsyncIterator[Any]:
    """The client's two streams and the server's."""
    to_client, incoming = anyio.create_memory_object_stream[Any](20)
    outgoing, from_client = anyio.create_memory_object_stream[Any](20)
    with to_client, incoming, outgoing, from_client:
        yield (incoming, outgoing), (from_client, to_client)


@dataclass
class Pair:
    """Both ends: ``raw`` is the client's, the two streams the server's."""

    raw: RawStreams
    from_client: Any
    to_client: Any
    read: list[tuple[str, Any]] = field(default_factory=list)
    ends: list[bool] = field(default_factory=list)

    async def send(self, message: Any) -> SessionMessage:
        """Send a message as the client, and return it."""
        item = SessionMessage(message)
        await self.raw.outgoing.send(item)
        return item

    async def answer(self, message: Any) -> Any:
        """Send a message as the server; return what the client gets of it."""
        await self.to_client.send(SessionMessage(message))
        return (await self.raw.incoming.receive()).message


@asynccontextmanager
async def pair(made: Any = None, recorded: str = "docs") -> AsyncIterator[Pair]:
    """Streams whose results are read as ``made`` says; unchanged if it is None."""
    seen: list[tuple[str, Any]] = []
    ends: list[bool] = []

    def read(method: str, result: Any) -> UsableResult:
        seen.append((method, result))
        return UsableResult(result) if made is None else made(result)

    async with streams() as (client, server):
        raw = RawStreams(client, read=read, ended=lambda: ends.append(True), recorded=recorded)
        raw.stop_discovering()
        yield Pair(raw, server[0], server[1], seen, ends)
        raw.close()


def request(number: int, method: str = "tools/call", **params: Any) -> JSONRPCRequest:
    """A request of the client."""
    return JSONRPCRequest(jsonrpc="2.0", id=number, method=method, params=params or None)


def answering(number: int, **value: Any) -> JSONRPCResponse:
    """An answer of the server."""
    return JSONRPCResponse(jsonrpc="2.0", id=number, result=value)


NOTE = JSONRPCNotification(jsonrpc="2.0", method="notifications/progress")


async def test_a_list_is_asked_for_with_params_which_careless_servers_read() -> None:
    async with pair() as one:
        await one.send(request(1, "tools/list"))
        assert (await one.from_client.receive()).message.params == {}


async def test_messages_pass_unchanged_and_those_of_a_run_are_recorded() -> None:
    record = WireRecord()
    run = RunTrace("r", "one", CONTEXT, record.open("r"))
    async with pair() as one:
        other = await one.send(request(2, "tools/list", cursor="a"))  # of no run: passes, and is not kept
        with running(run):
            span = begin_call()
            asked = await one.send(request(1, name="x"))
            note = await one.send(NOTE)
            for number in (2, 1):
                await one.to_client.send(SessionMessage(answering(number)))
            await one.to_client.send(SessionMessage(NOTE))
            answers = [(await anext(one.raw.incoming)).message, (await one.raw.incoming.receive()).message]
        assert answers == [answering(2), answering(1)]
        assert (await one.raw.incoming.receive()).message == NOTE
        assert [await one.from_client.receive() for _ in range(3)] == [other, asked, note]
        assert one.read == [("tools/list", {}), ("tools/call", {})]
    (kept,) = record.exchanges("r")
    assert (kept.peer, kept.method, kept.span_id) == ("docs", "tools/call", span)
    assert kept.request == '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}'
    assert kept.response == '{"jsonrpc":"2.0","id":1,"result":{}}'


async def test_a_transport_that_records_by_itself_is_not_recorded_twice() -> None:
    record = WireRecord()
    async with pair(recorded="") as one:
        with running(RunTrace("r", "one", CONTEXT, record.open("r"))):
            await one.send(request(1))
        await one.answer(answering(1))
    assert record.exchanges("r") == ()


async def test_a_request_without_an_answer_ends_its_record_with_the_connection() -> None:
    record = WireRecord()
    async with pair() as one:
        with running(RunTrace("r", "one", CONTEXT, record.open("r"))):
            await one.send(request(1))
    (kept,) = record.exchanges("r")
    assert kept.response == ""


async def test_a_result_is_read_by_the_method_of_its_request() -> None:
    async with pair(lambda value: UsableResult({**value, "fit": True})) as one:
        await one.send(request(1, "tools/list"))
        assert (await one.answer(answering(1, tools=[]))).result == {"tools": [], "fit": True}
        assert one.read == [("tools/list", {"tools": []})]
        # Of no request, and of one that has its answer: as it came.
        assert (await one.answer(answering(1, a=1))).result == {"a": 1}
        assert (await one.answer(answering(7, a=1))).result == {"a": 1}
        assert len(one.read) == 1


async def test_an_error_of_the_server_passes_and_is_the_end_of_its_request() -> None:
    async with pair() as one:
        await one.send(request(1))
        error = JSONRPCError(jsonrpc="2.0", id=1, error=ErrorData(code=-5, message="no"))
        assert await one.answer(error) == error
        assert one.read == [] and one.raw.methods == {}


async def test_a_result_that_cannot_be_used_is_an_error_that_says_why() -> None:
    async with pair(lambda value: UsableResult(None, problem="it is a list, not an object")) as one:
        await one.send(request(1))
        answer = await one.answer(answering(1))
        assert isinstance(answer, JSONRPCError)
        assert (answer.id, answer.error.code) == (1, INTERNAL_ERROR)
        assert answer.error.message == "the server's answer cannot be used: it is a list, not an object"


async def test_the_oldest_of_many_requests_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_streams, "_MAX_OPEN", 3)
    record = WireRecord()
    async with pair() as one:
        with running(RunTrace("r", "one", CONTEXT, record.open("r"))):
            for number in range(5):
                one.raw.asked(request(number))
        assert list(one.raw.methods) == list(one.raw.exchanges) == [2, 3, 4]


async def test_a_call_that_must_not_be_made_is_not_written() -> None:
    asked: list[str] = []

    async def refuse() -> None:
        asked.append("asked")
        raise PermissionError("another fleet has this run")

    async with pair() as one:
        token = before_call.set(refuse)
        with pytest.raises(PermissionError):
            await one.send(request(1))
        await one.send(request(2, "tools/list"))
        before_call.reset(token)
        await one.send(request(3))
        assert [(await one.from_client.receive()).message.id for _ in range(2)] == [2, 3]
        assert asked == ["asked"] and list(one.raw.methods) == [2, 3]


async def test_the_end_of_the_stream_is_told() -> None:
    async with pair() as one:
        await one.to_client.aclose()
        with pytest.raises(anyio.EndOfStream):
            await one.raw.incoming.receive()
        assert one.ends == [True]


async def test_a_loop_over_the_messages_ends_with_the_stream() -> None:
    async with pair() as one:
        await one.to_client.send(SessionMessage(NOTE))
        await one.to_client.aclose()
        assert [item.message async for item in one.raw.incoming] == [NOTE]
        assert one.ends == [True]


@asynccontextmanager
async def discovering(monkeypatch: pytest.MonkeyPatch, seconds: float) -> AsyncIterator[Pair]:
    """Streams on which the question for versions was sent."""
    monkeypatch.setattr(raw_streams, "SILENCE_SECONDS", seconds)
    async with streams() as (client, server):
        ends: list[bool] = []
        read: list[tuple[str, Any]] = []

        def noted(method: str, value: Any) -> UsableResult:
            read.append((method, value))
            return UsableResult(value)

        raw = RawStreams(client, read=noted, ended=lambda: ends.append(True))
        one = Pair(raw, server[0], server[1], read, ends)
        await one.send(request(1, "server/discover"))
        yield one
        raw.close()


async def test_a_server_that_is_silent_has_no_such_method(monkeypatch: pytest.MonkeyPatch) -> None:
    async with discovering(monkeypatch, 0) as one:
        answer = (await one.raw.incoming.receive()).message
        assert (answer.id, answer.error.code) == (1, METHOD_NOT_FOUND)
        await one.send(request(2, "initialize"))
        # Its answer comes after all: of no request, so it is read as none.
        assert (await one.answer(answering(1, late=True))).result == {"late": True}
        assert (await one.answer(answering(2))).id == 2
        assert one.read == [("initialize", {})]


async def test_a_message_that_comes_at_the_time_of_the_silence_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with discovering(monkeypatch, 60) as one:
        waiting = asyncio.create_task(one.raw.incoming.receive())
        await asyncio.sleep(0)
        one.raw.stop_discovering()
        assert (await waiting).message.error.code == METHOD_NOT_FOUND
        await one.to_client.send(SessionMessage(NOTE))
        assert (await one.raw.incoming.receive()).message == NOTE
        await one.to_client.aclose()
        with pytest.raises(anyio.EndOfStream):
            await one.raw.incoming.receive()


async def test_nobody_waits_for_a_silent_server_once_its_streams_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with discovering(monkeypatch, 60) as one:
        waiting = asyncio.create_task(one.raw.incoming.receive())
        await asyncio.sleep(0)
        before = asyncio.all_tasks()
        one.raw.stop_discovering()
        await waiting
        (left,) = asyncio.all_tasks() & before - {asyncio.current_task(), waiting}
        one.raw.close()
        await asyncio.wait({left}, timeout=30)
        assert left.cancelled()


async def test_an_answer_in_time_ends_the_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async with discovering(monkeypatch, 60) as one:
        assert (await one.answer(answering(1, supportedVersions=[]))).id == 1
        one.raw.stop_discovering()
        await one.to_client.send(SessionMessage(NOTE))
        assert (await one.raw.incoming.receive()).message == NOTE  # no second answer is made up


async def test_an_error_without_an_id_answers_the_question_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with discovering(monkeypatch, 60) as one:
        nameless = JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=-32600, message="what?"))
        assert (await one.answer(nameless)).id == 1
        assert (await one.answer(nameless)).id is None


async def test_a_reader_that_is_cancelled_leaves_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    async with discovering(monkeypatch, 60) as one:
        before = asyncio.all_tasks()
        waiting = asyncio.create_task(one.raw.incoming.receive())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before
