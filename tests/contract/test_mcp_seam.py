"""The places of the SDK that are limited: this fails when one moves, or when nobody asks it any more."""

import inspect
from typing import Any

import anthropic
import httpx2
import openai
from anyio._backends._asyncio import Process
from fast_agent.llm.provider.google import google_converter
from fast_agent.llm.provider.google.llm_google_native import GoogleNativeLLM
from mcp.client import client, session, stdio, streamable_http

from pallas.executors.fastagent import params_seam


def test_models_are_asked_with_clients_that_are_limited() -> None:
    for library in (openai, anthropic):
        for name in ("DefaultAioHttpClient", "DefaultAsyncHttpxClient"):
            kind = getattr(library, name)
            assert issubclass(kind, httpx2.AsyncClient)
            assert any(base.__module__.partition(".")[0] == library.__name__ for base in kind.__mro__)
    assert "self._send_single_request(" in source(httpx2.AsyncClient._send_handling_redirects)


def test_googles_schemas_come_from_the_function_that_is_wrapped() -> None:
    converting = inspect.getsource(google_converter.GoogleConverter.convert_to_google_tools)
    assert "self._clean_schema_for_google(tool.input_schema)" in converting
    hooks = [hook.name for hook in params_seam.hooks_for(GoogleNativeLLM)]
    assert "google-schemas" in hooks


def source(function: Any) -> str:
    """Of the SDK's own function."""
    return inspect.getsource(inspect.unwrap(function))


def test_the_sdk_asks_the_functions_that_are_wrapped() -> None:
    assert "self.validate_tool_result(" in source(session.ClientSession.call_tool)
    assert "self.session.validate_tool_result(" in inspect.getsource(client)
    assert "self._dispatcher.send_raw_request(" in source(session.ClientSession.send_request)
    posted = source(streamable_http.StreamableHTTPTransport._handle_post_request)
    assert "self._handle_json_response(" in posted
    events = source(streamable_http.StreamableHTTPTransport._handle_sse_response)
    assert "self._handle_sse_event(" in events
    pipe = inspect.getsource(stdio.stdio_client.__wrapped__)  # type: ignore[attr-defined]
    assert "_parse_line(line)" in pipe
    assert "await _create_platform_compatible_process(" in pipe
    assert "TextReceiveStream(process.stdout" in pipe
    assert "_stdout" in inspect.signature(Process).parameters
    assert "start_new_session=True" in source(stdio._create_platform_compatible_process)


def test_a_session_tells_when_it_ends_where_we_listen() -> None:
    from mcp.server.connection import Connection
    from mcp.server.session import ServerSession

    source = inspect.getsource(Connection)
    assert "exit_stack: AsyncExitStack" in source
    assert "state: dict[str, Any]" in source
    assert "self._connection = connection" in inspect.getsource(ServerSession.__init__)


def test_the_sdk_tells_its_clients_limit_of_an_event_by_a_parameter() -> None:
    from mcp.client.streamable_http import streamable_http_client

    theirs = inspect.signature(streamable_http_client).parameters
    assert theirs["max_sse_event_size"].default == 1024 * 1024
    assert {"url", "http_client"} <= set(theirs)


def test_messages_are_written_by_whoever_asks_and_as_the_line_that_the_record_holds() -> None:
    from mcp.client import stdio
    from mcp.shared import jsonrpc_dispatcher

    assert "await self._write_stream.send(" in inspect.getsource(jsonrpc_dispatcher)
    assert "model_dump_json(by_alias=True, exclude_unset=True)" in inspect.getsource(stdio)
