"""Limits on data from MCP servers that the SDK's client lacks: on schemas, bodies, messages and lines.

The limits are those of ``pallas.bounds``. They hold for every client of the SDK in this process.
``tests/contract/test_mcp_seam.py`` fails when a wrapped function of the SDK changes.
"""

from typing import Any, Final

from mcp.client import session, streamable_http
from mcp.shared import jsonrpc_dispatcher
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCResponse

from pallas.bounds.bodies import TooLarge
from pallas.bounds.message_nodes import too_many_nodes, too_many_parts
from pallas.bounds.tool_results import check_result
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line

from . import library_hooks
from .library_hooks import Hook
from .odd_framing import messages_in

_ANSWERS: Final = (JSONRPCResponse, JSONRPCError)
# Names of events that are no messages, whatever their data is.
_NO_MESSAGES: Final = frozenset(("ping", "heartbeat", "keepalive", "endpoint", "error", "close"))
_SHOWN: Final = 300


def install() -> None:
    """Install the hooks; further calls do nothing. Raises Fault (CONFIG)."""
    for hook in HOOKS:
        library_hooks.install(hook)


def _bounded_validation(original: Any) -> Any:
    async def validate_tool_result(self: Any, name: str, result: Any) -> None:
        # The SDK's own check uses `re` in the event loop: a server's pattern could block it for ever.
        if name not in self._tool_output_schemas:
            await self.list_tools()
        schema = self._tool_output_schemas.get(name)
        if schema is None:
            return
        if result.structured_content is None and "structured_content" not in result.model_fields_set:
            raise RuntimeError(f"tool {name} has an output schema but gave no structured content")
        await check_result(name, schema, result.structured_content)

    return validate_tool_result


def _bounded_json(original: Any) -> Any:
    async def _handle_json_response(
        self: Any, response: Any, read_stream_writer: Any, *, request_id: Any
    ) -> None:
        try:
            body = await response.aread()
            problem = too_many_nodes(body)
        except TooLarge as error:
            problem = str(error)
        if problem is not None:
            await read_stream_writer.send(_refusal(request_id, problem))
            return
        for message in _with_answer(messages_in(body), request_id, body):
            await read_stream_writer.send(SessionMessage(message))

    return _handle_json_response


def _bounded_event(original: Any) -> Any:
    async def _handle_sse_event(
        self: Any,
        sse: Any,
        read_stream_writer: Any,
        original_request_id: Any = None,
        resumption_callback: Any = None,
    ) -> bool:
        if not sse.data or sse.event in _NO_MESSAGES:
            handled: bool = await original(
                self, sse, read_stream_writer, original_request_id, resumption_callback
            )
            return handled
        is_over = False
        if (problem := too_many_nodes(sse.data)) is not None:
            if original_request_id is not None:
                await read_stream_writer.send(_refusal(original_request_id, problem))
            return original_request_id is not None
        for message in messages_in(sse.data):
            if original_request_id is not None and isinstance(message, _ANSWERS):
                message.id = original_request_id
                is_over = True
            await read_stream_writer.send(SessionMessage(message))
        if sse.id and resumption_callback:
            await resumption_callback(sse.id)
        return is_over

    return _handle_sse_event


def _bounded_parts(original: Any) -> Any:
    async def send_raw_request(
        self: Any, method: str, params: Any, opts: Any = None, *, _related_request_id: Any = None
    ) -> dict[str, Any]:
        result: dict[str, Any] = await original(
            self, method, params, opts, _related_request_id=_related_request_id
        )
        if (problem := too_many_parts(result)) is not None:
            raise MCPError(code=INTERNAL_ERROR, message=problem)
        return result

    return send_raw_request


def _with_answer(messages: list[Any], request_id: Any, body: bytes) -> list[Any]:
    """Return the messages of a response, one of which answers the request.

    Gateways answer with a number of their own, or none: it is the answer all the same.
    """
    answers = [each for each in messages if isinstance(each, _ANSWERS)]
    if any(each.id == request_id or each.id == str(request_id) for each in answers):
        return messages
    if answers:
        answers[-1].id = request_id
        return messages
    said = one_line(redact_text(body[:_SHOWN].decode("utf-8", "replace")), _SHOWN)
    why = f"it has no answer in it, but {said}" if said else "it is empty"
    return [*messages, _refusal(request_id, why).message]


def _refusal(request_id: Any, problem: str) -> SessionMessage:
    """Return the error that the caller gets in place of a refused answer."""
    error = ErrorData(code=INTERNAL_ERROR, message=f"the server's answer was refused: {problem}")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))


HOOKS: Final = (
    Hook(
        "bounded-output-schemas",
        session.ClientSession,
        "validate_tool_result",
        ("self", "name", "result"),
        _bounded_validation,
    ),
    Hook(
        "bounded-json-bodies",
        streamable_http.StreamableHTTPTransport,
        "_handle_json_response",
        ("self", "response", "read_stream_writer", "request_id"),
        _bounded_json,
    ),
    Hook(
        "bounded-events",
        streamable_http.StreamableHTTPTransport,
        "_handle_sse_event",
        ("self", "sse", "read_stream_writer", "original_request_id", "resumption_callback"),
        _bounded_event,
    ),
    Hook(
        "bounded-parts",
        jsonrpc_dispatcher.JSONRPCDispatcher,
        "send_raw_request",
        ("self", "method", "params", "opts", "_related_request_id"),
        _bounded_parts,
    ),
)
