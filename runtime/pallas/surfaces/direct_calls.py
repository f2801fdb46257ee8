"""Calls of an agent's own tools in protocol version 2026-07-28, answered without the layers of the SDK.

The SDK answers such a call with a Starlette application, two tasks, a stream between them, two chains of
middleware and five passes of validation, which cost more than the tool. This module answers the calls that it
understands completely with the same bytes, and passes every other request on: another method, tool, header
or key, anything malformed, tasks, answers to questions, and calls while OpenTelemetry records spans.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Final, cast

from fastmcp.server.dependencies import FastMCPRequestContext, fastmcp_request_ctx
from fastmcp.tools.base import InputRequiredToolResult
from mcp.server.connection import Connection
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    CallToolRequestParams,
    CallToolResult,
)
from mcp_types.methods import validate_client_request
from mcp_types.version import LATEST_MODERN_VERSION
from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider
from pydantic import ValidationError
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from pallas.bounds.sizes import MAX_BODY
from pallas.telemetry.trace_context import BAGGAGE, TRACEPARENT, TRACESTATE

from .parked_calls import ParkedCalls
from .request_replay import read_body
from .send_message_call import META, TextResult

PING_INTERVAL: Final = 15.0
"""Seconds of silence after which a caller gets a sign of life, as from the SDK."""
# Seconds that a call may take before anything looks whether its caller is still there.
_UNATTENDED: Final = 0.05
_MAX_ENVELOPE: Final = 4_000
_VERSION: Final = LATEST_MODERN_VERSION.encode()
_ENVELOPE: Final = (PROTOCOL_VERSION_META_KEY, CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY)
_TRACE: Final = frozenset({TRACEPARENT, TRACESTATE, BAGGAGE})
_TOKEN: Final = "progressToken"
_MESSAGE: Final = frozenset({"jsonrpc", "id", "method", "params"})
_PARAMS: Final = frozenset({"name", "arguments", "_meta"})
_ACCEPTED: Final = frozenset({"application/json", "text/event-stream"})
_EVENTS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]
# A header of these that comes twice, or another one of the protocol, is for the SDK to judge.
_ONCE: Final = frozenset(
    {
        b"accept",
        b"content-type",
        b"content-length",
        b"mcp-protocol-version",
        b"mcp-method",
        b"mcp-name",
    }
)


DirectResult = TextResult | InputRequiredToolResult | CallToolResult


@dataclass(frozen=True, slots=True)
class DirectTools:
    """The tools of a server that are called directly."""

    # As callers name them.
    names: frozenset[str]
    # Answers a call by the caller of the current request, maybe with questions, or with a result that was
    # stored since the caller was to be asked; raises nothing of its own.
    call: Callable[[str, dict[str, Any]], Awaitable[DirectResult]]
    # The server's own name and version, as each result has them.
    server_info: Callable[[], dict[str, Any]]
    # Whether nothing else of the server would see the call.
    is_plain: Callable[[], bool]
    # Parks calls whose runs ask something.
    parked: ParkedCalls | None = None

    @property
    def are_alone(self) -> bool:
        """Whether nothing else would see a call; while OpenTelemetry records, FastMCP makes spans of it."""
        return self.is_plain() and isinstance(get_tracer_provider(), ProxyTracerProvider)

    def takes(self, params: CallToolRequestParams, sent: Mapping[str, Any] | None) -> bool:
        """Return whether FastMCP has no part in this call; ``sent`` is ``params`` before the SDK read it."""
        meta = (sent or {}).get("_meta") or {}
        capabilities = meta.get(CLIENT_CAPABILITIES_META_KEY) or {}
        return (
            params.name in self.names
            and params.input_responses is None
            and params.request_state is None
            and "fastmcp" not in meta
            and isinstance(capabilities, dict)
            and not capabilities.get("extensions")
            and self.are_alone
        )


class DirectCalls:
    """ASGI middleware in front of the SDK's application."""

    def __init__(self, app: ASGIApp, tools: DirectTools) -> None:
        self._app = app
        self._tools = tools
        self._names = {name.encode(): name for name in tools.names if name.isascii() and name.isprintable()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or pass it on as it was."""
        name = self._named(scope) if scope["type"] == "http" and scope["path"] == "/mcp" else None
        if name is None:
            await self._app(scope, receive, send)
            return
        body = await read_body(receive, MAX_BODY)
        found = _understood(body.data, name) if body.is_whole else None
        if found is None:
            await self._app(scope, body.replayed(receive), send)
            return
        del body
        request_id, arguments, meta = found
        exchange = _Exchange(scope, receive, send, request_id, meta)
        result = await exchange.result(self._tools.call(name, arguments))
        if isinstance(result, TextResult):
            await exchange.finish(_document(request_id, result, self._tools.server_info()))
        elif isinstance(result, InputRequiredToolResult):
            await exchange.finish(await self._asked(request_id, name, arguments, result))
        elif result is not None:
            document = result.model_dump(mode="json", by_alias=True, exclude_none=True)
            document["_meta"] = {**document.get("_meta", {}), SERVER_INFO_META_KEY: self._tools.server_info()}
            await exchange.finish({"jsonrpc": "2.0", "id": request_id, "result": document})

    async def _asked(
        self, request_id: int | str, name: str, arguments: dict[str, Any], result: InputRequiredToolResult
    ) -> dict[str, Any]:
        """Return the answer that asks, with its state sealed for the next call."""
        assert self._tools.parked is not None
        info = self._tools.server_info()
        sealed = await self._tools.parked.sealed(info["name"], name, arguments, result.input_required)
        body = sealed.model_dump(mode="json", by_alias=True, exclude_none=True)
        body["_meta"] = {SERVER_INFO_META_KEY: info}
        return {"jsonrpc": "2.0", "id": request_id, "result": body}

    def _named(self, scope: Scope) -> str | None:
        """Return the tool that the headers name; None if they are not exactly those of a plain call."""
        seen: dict[bytes, bytes] = {}
        for key, value in scope["headers"]:
            if key in _ONCE:
                if key in seen:
                    return None
                seen[key] = value
            elif key.startswith(b"mcp-"):
                return None
        if seen.get(b"mcp-protocol-version") != _VERSION or seen.get(b"mcp-method") != b"tools/call":
            return None
        size = seen.get(b"content-length", b"")
        is_plain = (
            scope["method"] == "POST"
            and not scope.get("root_path")
            and seen.get(b"content-type", b"").lower().startswith(b"application/json")
            and _takes_both(seen.get(b"accept", b""))
            and size.isdigit()
            and int(size[:20]) <= MAX_BODY
            and self._tools.are_alone
        )
        return self._names.get(seen.get(b"mcp-name", b"")) if is_plain else None


@lru_cache(maxsize=256)
def _takes_both(accept: bytes) -> bool:
    kinds = accept.decode("latin-1").split(",")
    return {kind.split(";")[0].strip().lower() for kind in kinds} >= _ACCEPTED


def _understood(body: bytes, name: str) -> tuple[int | str, dict[str, Any], dict[str, Any]] | None:
    """Return id, arguments and metadata of a plain call of that tool; None for anything else."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if type(message) is not dict or message.keys() != _MESSAGE:
        return None
    params, request_id = message["params"], message["id"]
    is_call = message["jsonrpc"] == "2.0" and message["method"] == "tools/call"
    if not is_call or type(request_id) not in (int, str) or type(params) is not dict:
        return None
    arguments, meta = params.get("arguments", {}), params.get("_meta")
    if params.keys() - _PARAMS or params.get("name") != name:
        return None
    if type(arguments) is not dict or type(meta) is not dict or not _is_known(meta):
        return None
    return request_id, arguments, meta


def _is_known(meta: dict[str, Any]) -> bool:
    for key, value in meta.items():
        if key in _TRACE:
            if type(value) is not str:
                return False
        elif key == _TOKEN:
            if type(value) not in (int, str):
                return False
        elif key not in _ENVELOPE and not key.startswith(f"{META}/"):
            return False
    return _client(meta) is not None


def _client(meta: Mapping[str, Any]) -> Any:
    """Return what the client says of itself, as an SDK session has it; None if the SDK must judge it."""
    if meta.get(PROTOCOL_VERSION_META_KEY) != LATEST_MODERN_VERSION:
        return None
    capabilities = meta.get(CLIENT_CAPABILITIES_META_KEY)
    if type(capabilities) is not dict or capabilities.get("extensions"):
        return None
    text = json.dumps([meta.get(CLIENT_INFO_META_KEY), capabilities])
    return _client_in(text) if len(text) <= _MAX_ENVELOPE else None


@lru_cache(maxsize=256)
def _client_in(text: str) -> Any:
    info, capabilities = json.loads(text)
    envelope = dict(zip(_ENVELOPE, (LATEST_MODERN_VERSION, capabilities, info), strict=True))
    try:
        validate_client_request("tools/call", LATEST_MODERN_VERSION, {"name": "", "_meta": envelope})
    except ValidationError:
        return None
    return Connection.from_envelope(LATEST_MODERN_VERSION, info, capabilities).client_params


class _Exchange:
    """One call and its answer: JSON, or a stream of events once there is progress or a long silence."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, request_id: int | str, meta: dict[str, Any]
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._id = request_id
        self._meta = meta
        self._lock = asyncio.Lock()
        self._streams = False
        self._is_left = False
        self._attending: asyncio.Task[None] | None = None
        self._sent_at = 0.0

    async def result[T](self, work: Awaitable[T]) -> T | None:
        """Return the result of the work, which is cancelled if the caller leaves: None then."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._sent_at = loop.time()
        timer = loop.call_later(_UNATTENDED, self._attend, task)
        bound = fastmcp_request_ctx.set(self._context())
        try:
            return await work
        except asyncio.CancelledError:
            if self._is_left and not task.uncancel():
                return None
            raise
        finally:
            fastmcp_request_ctx.reset(bound)
            timer.cancel()
            if self._attending is not None:
                self._attending.cancel()

    def _context(self) -> FastMCPRequestContext:
        session: Any = SimpleNamespace(
            client_params=_client(self._meta), send_progress_notification=self._progress
        )
        unused: Any = None
        return FastMCPRequestContext(
            session=session,
            request_id=cast("str", self._id),
            meta=self._meta,
            request=Request(self._scope, self._receive),
            protocol_version=LATEST_MODERN_VERSION,
            close_sse_stream=None,
            lifespan_context=None,
            _srctx=unused,
        )

    def _attend(self, task: asyncio.Task[Any]) -> None:
        self._attending = asyncio.create_task(self._watch(task), name="attend a call")

    async def _watch(self, task: asyncio.Task[Any]) -> None:
        """Cancel the call when its caller leaves; until then give signs of life."""
        clock = asyncio.get_running_loop().time
        while True:
            try:
                async with asyncio.timeout(max(0.0, self._sent_at + PING_INTERVAL - clock())):
                    while (await self._receive())["type"] != "http.disconnect":
                        pass
            except TimeoutError:
                await self._event(b": ping\r\n\r\n")
            else:
                self._is_left = True
                task.cancel()
                return

    async def _progress(
        self, *, progress_token: Any, progress: float, total: float | None, message: str, **_: Any
    ) -> None:
        params = {"progressToken": progress_token, "progress": progress}
        if total is not None:
            params["total"] = total
        notification = {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {**params, "message": message},
        }
        await self._event(_event(notification))

    async def _event(self, data: bytes, *, more: bool = True) -> None:
        async with self._lock:  # of the call's progress and the watch
            if not self._streams:
                self._streams = True
                await self._send({"type": "http.response.start", "status": 200, "headers": list(_EVENTS)})
            await self._send({"type": "http.response.body", "body": data, "more_body": more})
            self._sent_at = asyncio.get_running_loop().time()

    async def finish(self, document: dict[str, Any]) -> None:
        """Send the answer."""
        if self._streams:
            await self._event(_event(document), more=False)
            return
        body = json.dumps(document, separators=(",", ":")).encode()
        headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


def _document(request_id: int | str, result: TextResult, server_info: dict[str, Any]) -> dict[str, Any]:
    """Return the answer as the SDK writes it, in its order of keys."""
    meta = {"_meta": {**(result.meta or {}), SERVER_INFO_META_KEY: server_info}}
    body: dict[str, Any] = {
        "content": [{"text": result.text, "type": "text"}],
        "isError": result.is_error,
        "resultType": "complete",
    }
    # The SDK adds its own metadata last where the result has none.
    whole = {**body, **meta} if result.meta is None else {**meta, **body}
    return {"jsonrpc": "2.0", "id": request_id, "result": whole}


def _event(document: Mapping[str, Any]) -> bytes:
    return f"event: message\r\ndata: {json.dumps(document, separators=(',', ':'))}\r\n\r\n".encode()
