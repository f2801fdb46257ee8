"""MCP servers on real sockets that go away and come back on the same port, or answer in a certain way."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext

import uvicorn
from fastmcp import FastMCP
from mcp import Client
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from .ports import free_ports
from .served import text_of
from .waiting import until


class Outage:
    """A server with the tool ``say``, which answers ``NAME:text``; it speaks both protocol versions.

    Its instructions are ``Ask NAME nicely.``

    ``refuse`` is the HTTP status of every answer, 0 for real ones, ``strangers`` that of each to a request
    without a bearer, probes too. With ``token`` every request needs that
    bearer, else it gets 401. ``gate`` holds requests back until it is set; ``on_request`` is called for each
    request before that. Probes of the health pass all of this, and count in ``seen`` alone. ``lists`` is
    False for one that connects and fails to list its tools. ``answer`` answers each request in its place.
    """

    def __init__(self, name: str, port: int) -> None:
        self.name, self.port = name, port
        self.refuse = 0
        self.token = ""
        self.strangers = 0
        self.lists = True
        self.answer: ASGIApp | None = None
        self.gate: asyncio.Event | None = None
        self.on_request: Callable[[], None] | None = None
        self.requests = 0
        self.seen = 0
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where it is, whether it runs or not."""
        return f"http://127.0.0.1:{self.port}/mcp"

    async def start(self) -> None:
        """Listen on its port."""
        config = uvicorn.Config(
            self._guard(self._app()), host="127.0.0.1", port=self.port, log_config=None, access_log=False,
            lifespan="on", timeout_graceful_shutdown=0,
        )  # fmt: skip
        server = self._server = uvicorn.Server(config)
        server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
        self._task = asyncio.create_task(server.serve())
        await until(lambda: server.started)

    async def stop(self) -> None:
        """Close the port and every connection."""
        server, task = self._server, self._task
        if server is None or task is None:
            return
        self._server = self._task = None
        server.should_exit = True
        await asyncio.wait({task}, timeout=60)

    def drop(self) -> None:
        """Drop every connection without a word."""
        assert self._server is not None
        for connection in tuple(self._server.server_state.connections):
            connection.transport.abort()  # type: ignore[union-attr]

    def _app(self) -> ASGIApp:
        server: FastMCP = FastMCP(self.name, instructions=f"Ask {self.name} nicely.")

        @server.tool
        async def say(text: str) -> str:
            """Say it, with the server's name."""
            return f"{self.name}:{text}"

        return server.http_app(path="/mcp")

    def _guard(self, app: ASGIApp) -> ASGIApp:
        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            self.seen += 1
            if self.strangers and b"authorization" not in dict(scope["headers"]):
                await Response(status_code=self.strangers)(scope, receive, send)
                return
            agent = dict(scope["headers"]).get(b"user-agent", b"")
            if b"pallas-health" in agent:  # a probe is no connection
                await app(scope, receive, send)
                return
            self.requests += 1
            if self.on_request is not None:
                self.on_request()
            if self.gate is not None:
                await self.gate.wait()
            if self.answer is not None:
                await self.answer(scope, receive, send)
                return
            status = self._status(scope)
            if not status and not self.lists:
                receive, status = await _without_lists(receive)
            if status:
                body = b'{"error":"injected fault"}'
                await Response(body, status, media_type="application/json")(scope, receive, send)
                return
            await app(scope, receive, send)

        return guarded

    def _status(self, scope: Scope) -> int:
        given = dict(scope["headers"]).get(b"authorization", b"").decode()
        if self.token and given != f"Bearer {self.token}":
            return 401
        return self.refuse


async def _without_lists(receive: Receive) -> tuple[Receive, int]:
    """The request once more, and the status that it is refused with where it asks for a list."""
    message = await receive()
    sent = False

    async def again() -> object:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return message

    return again, 500 if b"tools/list" in message.get("body", b"") else 0  # type: ignore[return-value]


@asynccontextmanager
async def outages(*names: str, up: bool = True) -> AsyncIterator[list[Outage]]:
    """A server for each name, listening unless ``up`` is False."""
    servers = [Outage(name, port) for name, port in zip(names, free_ports(len(names)), strict=True)]
    async with AsyncExitStack() as stack:
        for server in servers:
            stack.push_async_callback(server.stop)
            if up:
                await server.start()
        yield servers


async def answer_and_missing(connected: Client, message: str) -> tuple[str, dict[str, str]]:
    """The text of an answer, and why each server that was missing was; fails the test when it is an error."""
    result = await connected.call_tool("send_message", {"message": message})
    text = text_of(result)
    assert not result.is_error, text
    return text, dict((result.meta or {}).get("local.pallas/missingServers", {}))
