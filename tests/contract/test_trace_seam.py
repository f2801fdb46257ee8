"""Where calls are given their trace and overheard on their way: this fails when upstream moves it."""

import asyncio
import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from fast_agent.llm import fastagent_llm
from fast_agent.mcp import client_gateway
from fast_agent.mcp.mcp_aggregator import MCPAggregator
from mcp import MCPError
from mcp.client import stdio
from mcp.shared import _otel, jsonrpc_dispatcher
from mcp_types import INVALID_PARAMS

from pallas.executors.fastagent import trace_seam, wire_seam
from pallas.executors.fastagent.run_progress import RunProgress
from pallas.mcp_client import library_hooks
from pallas.model import TraceContext
from pallas.telemetry.trace_context import RunTrace, begin_call, running
from pallas.telemetry.wire_record import WireRecord

CONTEXT = TraceContext("ab" * 16, "cd" * 8, "01", "vendor=1", "tenant=blue")


def test_fast_agent_asks_the_functions_that_are_wrapped() -> None:
    def source(function: Any) -> str:
        return inspect.getsource(inspect.unwrap(function))

    assert "self._execute_session_method(" in source(MCPAggregator._execute_on_server)
    assert "_create_transport(" in source(client_gateway.create_client_connection)
    # The handler hears of a call in the context that then makes it, one context for each call.
    call = source(MCPAggregator.call_tool)
    assert call.index("self._start_tool_execution(") < call.index("self._execute_on_server(")
    # Messages are written by whoever asks, and as the line that the record holds.
    assert "await self._write_stream.send(" in inspect.getsource(jsonrpc_dispatcher)
    assert "model_dump_json(by_alias=True, exclude_unset=True)" in inspect.getsource(stdio)


class Client:
    """Stands where fast-agent's client of a server does; notes what it is called with."""

    def __init__(self) -> None:
        self.meta: list[Any] = []

    async def call_tool(self, progress_callback: Any = None, **arguments: Any) -> str:
        # What the SDK does with the metadata right before it writes the request.
        meta = dict(arguments.get("meta") or {})
        _otel.inject_trace_context(meta)
        await asyncio.sleep(0)
        self.meta.append(meta)
        return "done"


async def call(client: Client) -> Any:
    progress: dict[str, Any] = {"progress_callback": None}
    aggregator: Any = SimpleNamespace(
        agent_name="one", _server_method_kwargs=MCPAggregator._server_method_kwargs
    )
    return await MCPAggregator._execute_session_method(
        aggregator, client, method_name="call_tool", method_args={"name": "x"}, **progress
    )


async def test_a_call_carries_the_span_it_was_told_to_begin_with_and_leaves_nothing_behind() -> None:
    library_hooks.install(trace_seam.HOOK)
    client = Client()
    with running(RunTrace("r", "one", CONTEXT)):
        assert await call(client) == "done"
        span = begin_call()
        assert await call(client) == "done"
        assert await call(client) == "done"  # tried again
    assert await call(client) == "done"
    first, second, third, outside = client.meta
    assert first["traceparent"] == CONTEXT.traceparent
    assert second == third
    assert second["traceparent"] == f"00-{CONTEXT.trace_id}-{span}-01"
    assert (second["tracestate"], second["baggage"]) == ("vendor=1", "tenant=blue")
    assert "traceparent" not in outside
    assert fastagent_llm._mcp_metadata_var.get() is None


async def test_a_call_of_a_durable_run_carries_its_name_and_attempt() -> None:
    library_hooks.install(trace_seam.HOOK)
    client = Client()
    with running(RunTrace("r", "one", CONTEXT)):
        with trace_seam.naming_call("r", "call-7", 2):
            assert await call(client) == "done"
        assert await call(client) == "done"
    named, bare = client.meta
    assert {key: named[key] for key in trace_seam.CALL_META} == {
        "local.pallas/runId": "r",
        "local.pallas/callId": "call-7",
        "local.pallas/attempt": 2,
    }
    assert not {*trace_seam.CALL_META} & {*bare}


@pytest.mark.parametrize(
    "said", ["Unrecognized key(s) in object: 'traceparent'", "_meta: additional properties are not allowed"]
)
async def test_a_server_that_refuses_metadata_it_does_not_know_is_called_without(said: str) -> None:
    library_hooks.install(trace_seam.HOOK)

    class Strict(Client):
        async def call_tool(self, progress_callback: Any = None, **arguments: Any) -> str:
            self.meta.append(dict(arguments.get("meta") or {}))
            if "traceparent" in self.meta[-1]:
                raise MCPError(code=INVALID_PARAMS, message=said)
            return "done"

    client = Strict()
    with running(RunTrace("r", "one", CONTEXT)):
        assert await call(client) == "done"
        assert await call(client) == "done"
    assert ["traceparent" in meta for meta in client.meta] == [True, False, False]


async def test_any_other_refusal_of_a_call_is_told_and_the_call_is_made_once() -> None:
    library_hooks.install(trace_seam.HOOK)

    class Refusing(Client):
        async def call_tool(self, progress_callback: Any = None, **arguments: Any) -> str:
            self.meta.append(arguments)
            raise MCPError(code=INVALID_PARAMS, message="query is missing")

    client = Refusing()
    with running(RunTrace("r", "one", CONTEXT)), pytest.raises(MCPError, match="query is missing"):
        await call(client)
    assert len(client.meta) == 1


async def test_calls_at_once_carry_the_span_that_their_events_name() -> None:
    library_hooks.install(trace_seam.HOOK)
    client, events = Client(), []
    with running(RunTrace("r", "one", CONTEXT)):
        handler = RunProgress("r", "one", events.append)

        async def one(number: int) -> None:
            call_id = await handler.on_tool_start(f"tool{number}", "server", None)
            await call(client)
            await handler.on_tool_complete(call_id, True, None, None)

        await asyncio.gather(*(one(number) for number in range(10)))
    begun = [each.span_id for each in events if each.phase == "started"]
    ended = [each.span_id for each in events if each.phase == "completed"]
    sent = [meta["traceparent"].split("-")[2] for meta in client.meta]
    assert len(set(begun)) == 10
    assert sorted(begun) == sorted(ended) == sorted(sent)


async def test_messages_to_a_stdio_server_are_overheard_and_pass_unchanged() -> None:
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp_types import JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

    to_us, from_server = anyio.create_memory_object_stream[Any](5)
    to_server, from_us = anyio.create_memory_object_stream[Any](5)

    class Transport:
        async def __aenter__(self) -> Any:
            return from_server, to_server

        async def __aexit__(self, *error: Any) -> None: ...

    record = WireRecord()
    run = RunTrace("r", "one", CONTEXT, record.open("r"))
    request = SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/call", params={"name": "x"}))
    other = SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=2, method="tools/list"))
    note = SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="notifications/progress"))
    answers = [SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=number, result={})) for number in (2, 1)]
    async with wire_seam._overheard("docs", Transport()) as (read, write), read, write:
        with running(run):
            span = begin_call()
            await write.send(request)
            await write.send(note)
            await to_us.send(note)
            for answer in answers:
                await to_us.send(answer)
            assert await read.receive() is note
            assert [await anext(read), await read.receive()] == answers
        await write.send(other)  # of no run: passes, and is not kept
        assert [await from_us.receive() for _ in range(3)] == [request, note, other]
    (kept,) = record.exchanges("r")
    assert (kept.peer, kept.method, kept.span_id) == ("docs", "tools/call", span)
    assert kept.request == '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}'
    assert kept.response == '{"jsonrpc":"2.0","id":1,"result":{}}'
    for stream in (to_us, from_us):
        stream.close()
