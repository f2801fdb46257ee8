"""A real MCP server on a real socket that notes which credential came with each request."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fastmcp import FastMCP
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pallas.surfaces.listener import Listener, bind


@dataclass(frozen=True)
class Heard:
    """One request: its JSON-RPC method (or HTTP verb), its Authorization header, a tool's ``text``."""

    what: str
    authorization: str
    text: str
    session: str

    @property
    def bearer(self) -> str:
        """The token, empty without one."""
        return self.authorization.removeprefix("Bearer ")


@dataclass
class Recorder:
    """Passes requests on to an MCP server and keeps what it heard, oldest first.

    ``demand`` answers 401 to any request without a bearer. ``moved_to`` redirects ``moves`` tool calls.
    ``lose`` answers 404 to that many tool calls, as a server does that no longer knows the session.
    """

    app: ASGIApp
    url: str = ""
    heard: list[Heard] = field(default_factory=list)
    demand: bool = False
    moved_to: str = ""
    moves: int = 1_000_000
    lose: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        raw = await request.body()
        heard = _heard(request, raw)
        self.heard.append(heard)
        call = heard.what == "tools/call"
        response = None
        if self.demand and not heard.authorization:
            response = Response('{"error": "invalid_token"}', 401, {"WWW-Authenticate": "Bearer"})
        elif call and self.moved_to and self.moves > 0:
            self.moves -= 1
            response = Response(status_code=307, headers={"Location": self.moved_to})
        elif call and self.lose > 0:
            self.lose -= 1
            response = Response(status_code=404)
        if response is not None:
            await response(scope, receive, send)
            return
        given = False

        async def replay() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": raw, "more_body": False}

        await self.app(scope, replay, send)

    def calls(self) -> list[Heard]:
        """The tool calls alone."""
        return [each for each in self.heard if each.what == "tools/call"]


def _heard(request: Request, raw: bytes) -> Heard:
    body: Any = json.loads(raw) if raw else {}
    arguments = body.get("params", {}).get("arguments") or {} if isinstance(body, dict) else {}
    return Heard(
        body.get("method", request.method) if isinstance(body, dict) else request.method,
        request.headers.get("authorization", ""),
        str(arguments.get("text", "")),
        request.headers.get("mcp-session-id", ""),
    )


@asynccontextmanager
async def recording() -> AsyncIterator[Recorder]:
    """A server with the tools ``note`` (answers its text), ``wait`` (for ever) and ``fail``; both eras."""
    import asyncio

    server: FastMCP = FastMCP("recorder")

    @server.tool
    async def note(text: str) -> str:
        """Say it back."""
        await asyncio.sleep(0)
        return f"noted {text}"

    @server.tool
    async def wait(text: str) -> str:
        """Never answer."""
        await asyncio.Event().wait()
        return text

    @server.tool
    async def fail(text: str) -> str:
        """Fail."""
        raise ValueError("kaput")

    sock = bind("127.0.0.1", 0, "recorder")
    recorder = Recorder(server.http_app(path="/mcp"), f"http://127.0.0.1:{sock.getsockname()[1]}/mcp")
    listener = Listener(recorder, sock)
    await listener.start()
    try:
        yield recorder
    finally:
        await listener.stop()
