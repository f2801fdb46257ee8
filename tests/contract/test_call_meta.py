"""The ``_meta`` of calls of downstreams: the span of the call, its name, and what servers refuse."""

import asyncio
from typing import Any

import pytest
from fast_agent.llm import fastagent_llm
from mcp import MCPError
from mcp.shared import _otel
from mcp_types import INVALID_PARAMS

from pallas.executors.fastagent.call_meta import CALL_META, naming_call, traced
from pallas.executors.fastagent.run_progress import RunProgress
from pallas.executors.fastagent.text_seam import asking_for_text
from pallas.model import TraceContext
from pallas.telemetry.trace_context import RunTrace, begin_call, running

CONTEXT = TraceContext("ab" * 16, "cd" * 8, "01", "vendor=1", "tenant=blue")


class Client:
    """Stands where the SDK's client of a server does; notes what it is called with."""

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
    """As ``server_calls.send`` makes it; the client is the connection too."""
    return await traced(client, lambda meta: client.call_tool(meta=meta))


async def test_a_call_carries_the_span_it_was_told_to_begin_with_and_leaves_nothing_behind() -> None:
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
    client = Client()
    with running(RunTrace("r", "one", CONTEXT)):
        with naming_call("r", "call-7", 2):
            assert await call(client) == "done"
        assert await call(client) == "done"
    named, bare = client.meta
    assert {key: named[key] for key in CALL_META} == {
        "local.pallas/runId": "r",
        "local.pallas/callId": "call-7",
        "local.pallas/attempt": 2,
    }
    assert not {*CALL_META} & {*bare}


@pytest.mark.parametrize(
    "said", ["Unrecognized key(s) in object: 'traceparent'", "_meta: additional properties are not allowed"]
)
async def test_a_server_that_refuses_metadata_it_does_not_know_is_called_without(said: str) -> None:

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

    class Refusing(Client):
        async def call_tool(self, progress_callback: Any = None, **arguments: Any) -> str:
            self.meta.append(arguments)
            raise MCPError(code=INVALID_PARAMS, message="query is missing")

    client = Refusing()
    with running(RunTrace("r", "one", CONTEXT)), pytest.raises(MCPError, match="query is missing"):
        await call(client)
    assert len(client.meta) == 1


async def test_calls_at_once_carry_the_span_that_their_events_name() -> None:
    client = Client()
    events: list[Any] = []
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


async def test_other_keys_travel_with_those_of_the_trace_and_without_a_run() -> None:
    client = Client()
    with asking_for_text(True):
        assert await call(client) == "done"
        with running(RunTrace("r", "one", CONTEXT)):
            assert await call(client) == "done"
    with asking_for_text(False):
        assert await call(client) == "done"
    outside, inside, silent = client.meta
    key = "local.pallas/streamText"
    assert outside == {key: True}
    assert (inside[key], inside["traceparent"]) == (True, CONTEXT.traceparent)
    assert silent == {}
