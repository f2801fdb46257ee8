"""A real MCP server on a real socket with dials: waiting, deaf, refusing, of one era, gone and back again."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from fastmcp import FastMCP
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from pallas.cli.bearer_check.echo import replaying
from pallas.surfaces.listener import Listener, bind

from .ports import free_ports

Era = Literal["both", "modern", "handshake"]


@dataclass
class Dials:
    """With a ``gate`` no answer before it opens; ``deaf`` never answers; ``status`` refuses every request
    with that code, ``call_status`` tool calls alone. ``requests`` counts what came."""

    era: Era = "both"
    gate: asyncio.Event | None = None
    deaf: bool = False
    status: int = 0
    call_status: int = 0
    port: int = 0
    requests: int = 0
    _listener: Listener | None = None

    @property
    def url(self) -> str:
        """Where it is, also while it is gone."""
        return f"http://127.0.0.1:{self.port}/mcp"

    async def come(self) -> None:
        """Listen, on the port of the last time if there was one."""
        # Where systems give no ports to others, who could have it by the time that this one comes back.
        self.port = self.port or free_ports(1)[0]
        sock = bind("127.0.0.1", self.port, "dials")
        self._listener = Listener(self._turned(_server().http_app(path="/mcp")), sock)
        await self._listener.start()

    async def go(self) -> None:
        """Stop listening: who connects is refused, and who waits for an answer gets none."""
        self.deaf = False
        if self._listener is not None:
            await self._listener.stop(0)
            self._listener = None

    def _turned(self, app: ASGIApp) -> ASGIApp:
        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            self.requests += 1
            request = Request(scope, receive)
            raw = await request.body()
            if self.deaf:
                while (await receive())["type"] != "http.disconnect":
                    pass
                return
            if self.gate is not None:
                await self.gate.wait()
            if (refusal := self._refusal(request, raw)) is not None:
                await refusal(scope, receive, send)
                return
            await app(scope, replaying(raw, receive), send)

        return serve

    def _refusal(self, request: Request, raw: bytes) -> Response | None:
        body = json.loads(raw) if raw else {}
        method = body.get("method", "")
        modern = request.headers.get("mcp-protocol-version") == "2026-07-28"
        if self.status or (self.call_status and method == "tools/call"):
            return Response(status_code=self.status or self.call_status)
        if self.era == "handshake" and modern:
            return _error(body, -32000, "Bad Request: unsupported protocol version")
        if self.era == "modern" and not modern:
            return _error(body, -32022, "unsupported protocol version")
        return None


def _server() -> FastMCP:
    server: FastMCP = FastMCP("dials")

    @server.tool
    def note(text: str) -> str:
        """Say it back."""
        return f"noted {text}"

    @server.tool
    def fail(text: str) -> str:
        """Fail."""
        raise ValueError("kaput")

    return server


def _error(body: dict[str, object], code: int, message: str) -> Response:
    return JSONResponse(
        {"jsonrpc": "2.0", "id": body.get("id"), "error": {"code": code, "message": message}}, 400
    )


@asynccontextmanager
async def dials(count: int = 1, *, era: Era | None = None) -> AsyncIterator[list[Dials]]:
    """So many servers, of that era or of each in turn."""
    eras: tuple[Era, ...] = ("modern", "handshake", "both")
    servers = [Dials(era or eras[number % 3]) for number in range(count)]
    try:
        for server in servers:
            await server.come()
        yield servers
    finally:
        await asyncio.gather(*(server.go() for server in servers))
