"""Downstreams on real sockets that speak one era, or none, and note what they were sent."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from .waiting import until

Answer = Callable[["FakeDownstream", Request, dict[str, Any]], Awaitable[Response]]


@dataclass
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def rpc(self) -> str:
        """The JSON-RPC method, empty for other requests."""
        return str(self.body.get("method", ""))


@dataclass
class FakeDownstream:
    """An ASGI app that answers with ``answer`` and counts requests, sessions and concurrent requests."""

    answer: Answer
    seen: list[Seen] = field(default_factory=list)
    sessions: set[str] = field(default_factory=set)
    opened: int = 0
    active: int = 0
    most_active: int = 0
    gate: asyncio.Event | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        raw = await request.body()
        body = json.loads(raw) if raw else {}
        self.seen.append(Seen(request.method, request.url.path, dict(request.headers), body))
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            if self.gate is not None:
                await self.gate.wait()
            response = await self.answer(self, request, body)
        finally:
            self.active -= 1
        await response(scope, receive, send)

    def open_session(self) -> str:
        """A new session id, counted until it is deleted."""
        self.opened += 1
        id_ = uuid4().hex
        self.sessions.add(id_)
        return id_


@contextlib.asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[str]:
    """Serve ``app`` on a free port of the loopback; gives its origin, ``http://127.0.0.1:port``."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    task = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        await until(lambda: server.started)
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        await asyncio.wait({task}, timeout=60)
        sock.close()


@contextlib.asynccontextmanager
async def talking(first: bytes, *, hang_up: bool = False) -> AsyncIterator[str]:
    """A TCP server that says ``first`` to whoever connects and then nothing; gives its origin."""
    connections: set[asyncio.StreamWriter] = set()

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(writer)
        with contextlib.suppress(OSError):
            await reader.read(64)
            writer.write(first)
            await writer.drain()
            if hang_up:
                writer.close()

    server = await asyncio.start_server(on_connect, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in connections:
            writer.close()


def _reply(body: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": body.get("id"), "result": result}


def _error(body: dict[str, Any], code: int, message: str, **data: Any) -> dict[str, Any]:
    error = {"code": code, "message": message} | ({"data": data} if data else {})
    return {"jsonrpc": "2.0", "id": body.get("id"), "error": error}


async def modern(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
    """Speaks 2026-07-28 only: no handshake, no sessions, POST alone."""
    if request.method != "POST":
        return Response(status_code=405)
    if request.headers.get("mcp-protocol-version") != "2026-07-28":
        return JSONResponse(_error(body, -32020, "header missing or mismatched"), 400)
    if body.get("method") != "server/discover" or request.headers.get("mcp-method") != "server/discover":
        return JSONResponse(_error(body, -32601, "unknown method"), 404)
    assert body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    return JSONResponse(_reply(body, {"supportedVersions": ["2026-07-28"], "capabilities": {}}))


async def newer(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
    """Speaks a version that does not exist yet, and says so as the newer era does."""
    if request.headers.get("mcp-protocol-version", "") < "2027":
        return JSONResponse(_error(body, -32022, "unsupported version", supported=["2027-01-01"]), 400)
    return JSONResponse(_reply(body, {}))


async def handshake(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
    """Speaks 2025-11-25 only, and keeps every session until it is deleted."""
    if request.method == "DELETE":
        id_ = request.headers.get("mcp-session-id", "")
        if id_ not in fake.sessions:
            return Response(status_code=404)
        fake.sessions.discard(id_)
        return Response(status_code=204)
    if request.headers.get("mcp-protocol-version", "2025-11-25") != "2025-11-25":
        # What an SDK of that era does: 400, and the id of a session that is dropped at once.
        message = _error(body, -32000, "Bad Request: unsupported protocol version")
        return JSONResponse(message, 400, {"Mcp-Session-Id": "dropped-at-once"})
    if body.get("method") != "initialize":
        return JSONResponse(_error(body, -32600, "missing session id"), 400)
    accept = request.headers.get("accept", "")
    if "application/json" not in accept or "text/event-stream" not in accept:
        return Response(status_code=406)
    result = _reply(
        body, {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "old"}}
    )
    return event_stream(request, [result], {"Mcp-Session-Id": fake.open_session()})


async def stateless_handshake(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
    """As ``handshake``, without sessions: it answers in plain JSON and gives no id."""
    if request.method != "POST" or body.get("method") != "initialize":
        return JSONResponse(_error(body, -32601, "unknown method"), 200)
    return JSONResponse(_reply(body, {"protocolVersion": "2025-06-18", "capabilities": {}}))


def event_stream(request: Request, messages: list[dict[str, Any]], headers: dict[str, str]) -> Response:
    """Messages as server-sent events, after an empty one, on a stream that ends when the client goes."""

    async def lines() -> AsyncIterator[bytes]:
        yield b": hello\r\nid: 0\r\ndata:\r\n\r\n"
        for message in messages:
            yield f"event: message\r\ndata: {json.dumps(message)}\r\n\r\n".encode()
        while (await request.receive())["type"] != "http.disconnect":
            pass

    return StreamingResponse(lines(), media_type="text/event-stream", headers=headers)


def status(code: int, body: bytes = b"") -> Answer:
    """Answers everything with that status."""

    async def answer(fake: FakeDownstream, request: Request, body_: dict[str, Any]) -> Response:
        return Response(body, code, media_type="application/json")

    return answer


def redirect(code: int, location: str) -> Answer:
    """Sends everyone elsewhere."""

    async def answer(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
        return Response(status_code=code, headers={"location": location})

    return answer


def slow(seconds: float, then: Answer) -> Answer:
    """Takes its time."""

    async def answer(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
        await asyncio.sleep(seconds)
        return await then(fake, request, body)

    return answer
