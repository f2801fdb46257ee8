"""An MCP server that replaces a downstream and records the credential of every request."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from fastmcp import FastMCP
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pallas.surfaces.listener import Listener, bind

ECHO: Final = "echo"


@dataclass(frozen=True, slots=True)
class HeardRequest:
    """One request: its JSON-RPC method (or HTTP verb), Authorization, a tool's ``text``, its MCP session."""

    what: str
    authorization: str = field(repr=False)
    text: str = ""
    session: str = ""

    @property
    def bearer(self) -> str:
        """The token; empty without one."""
        scheme, _, token = self.authorization.partition(" ")
        return token if scheme.lower() == "bearer" else ""


class RequestRecorder:
    """Passes requests on to ``app`` and keeps a record of them, oldest first.

    Override ``answer`` to intervene.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.url = ""
        self.requests: list[HeardRequest] = []

    def answer(self, request: HeardRequest) -> Response | None:
        """Return a response to send instead of passing the request on, or None to pass it on."""
        return None

    def calls(self) -> list[HeardRequest]:
        """Return only the tool calls."""
        return [each for each in self.requests if each.what == "tools/call"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        raw = await request.body()
        heard = _recorded(request, raw)
        self.requests.append(heard)
        if (response := self.answer(heard)) is not None:
            await response(scope, receive, send)
            return
        await self._app(scope, replaying(raw, receive), send)


def replaying(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that replays a body already read, then passes on further messages."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


@asynccontextmanager
async def serving(
    server: FastMCP, make: type[RequestRecorder] = RequestRecorder
) -> AsyncIterator[RequestRecorder]:
    """Serve ``server`` behind a recorder, on a free loopback port, in both protocol versions."""
    sock = bind("127.0.0.1", 0, "echo")
    recorder = make(server.http_app(path="/mcp"))
    recorder.url = f"http://127.0.0.1:{sock.getsockname()[1]}/mcp"
    listener = Listener(recorder, sock)
    await listener.start()
    try:
        yield recorder
    finally:
        await listener.stop()


@asynccontextmanager
async def echo_server() -> AsyncIterator[RequestRecorder]:
    """Serve a recorded server with the one tool ``echo(text)``."""
    server: FastMCP = FastMCP("echo")

    @server.tool(name=ECHO)
    async def echo(text: str) -> str:
        """Return ``text``."""
        return text

    async with serving(server) as recorder:
        yield recorder


def _recorded(request: Request, raw: bytes) -> HeardRequest:
    try:
        body: Any = json.loads(raw) if raw else {}
    except ValueError:
        body = {}
    body = body if isinstance(body, dict) else {}
    params = body.get("params")
    arguments = params.get("arguments") if isinstance(params, dict) else None
    return HeardRequest(
        str(body.get("method", request.method)),
        request.headers.get("authorization", ""),
        str(arguments.get("text", "")) if isinstance(arguments, dict) else "",
        request.headers.get("mcp-session-id", ""),
    )
