"""MCP servers in this process, for tests of the client: on two streams, and behind an HTTP client."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx2
from mcp.shared.message import SessionMessage
from mcp_types import (
    METHOD_NOT_FOUND,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from pallas.downstreams.http_requests import wrap_transports
from pallas.downstreams.transports import Http

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"

type Params = dict[str, Any]
type Reply = Callable[[Params], Awaitable[Any]]
"""Returns the result of a request or an ``ErrorData``; None for no answer."""


class HungUp(Exception):
    """Raised by a reply: the server closes the connection instead."""


@dataclass
class Answers:
    """What a server answers; ``replies`` come before what is usual, by method."""

    tools: list[str] = field(default_factory=lambda: ["echo"])
    is_modern: bool = False
    replies: dict[str, Reply] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    """How often each method was asked, notifications too."""

    async def answer(self, method: str, params: Params) -> Any:
        """The result or the error; None if there is none."""
        self.asked[method] += 1
        if (reply := self.replies.get(method)) is not None:
            return await reply(params)
        capabilities = {"tools": {"listChanged": True}}
        about = {"name": "memory", "version": "1"}
        match method:
            case "server/discover" if self.is_modern:
                return self.marked(
                    {"supportedVersions": [MODERN], "capabilities": capabilities, "serverInfo": about}
                )
            case "initialize" if not self.is_modern:
                return {"protocolVersion": HANDSHAKE, "capabilities": capabilities, "serverInfo": about}
            case "tools/list":
                listed = [{"name": name, "inputSchema": {"type": "object"}} for name in self.tools]
                return self.marked({"tools": listed})
            case "tools/call":
                text = json.dumps(params.get("arguments"))
                return self.marked({"content": [{"type": "text", "text": text}]})
            case "ping":
                return {}
            case "subscriptions/listen":
                return None
            case _ if method.startswith("notifications/"):
                return None
            case _:
                return ErrorData(code=METHOD_NOT_FOUND, message=f"no {method}")

    def marked(self, result: dict[str, Any]) -> dict[str, Any]:
        """A result with what the newer era says in each."""
        return (
            {**result, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            if self.is_modern
            else result
        )


@dataclass
class MemoryServer(Answers):
    """A transport to a server on two streams; each connection is a start of it, as of a program."""

    key: str = "memory"
    is_program: bool = True
    writes_record: bool = False
    starts: int = 0
    open_now: int = 0
    leaving: asyncio.Event | None = None
    """What the end of a connection waits for."""
    last_id: Any = None
    """Of the request that came last."""
    _to_client: Any = None

    @asynccontextmanager
    async def open(self, link: Any) -> AsyncIterator[Any]:
        """Start it."""
        self.starts += 1
        to_client, incoming = anyio.create_memory_object_stream[Any](100)
        outgoing, from_client = anyio.create_memory_object_stream[Any](100)
        self._to_client = to_client
        tasks: set[asyncio.Task[None]] = set()
        serving = asyncio.create_task(self._serve(from_client, to_client, tasks))
        self.open_now += 1
        try:
            yield incoming, outgoing
        finally:
            self.open_now -= 1
            try:
                if self.leaving is not None:
                    await self.leaving.wait()
            finally:
                for task in (serving, *tasks):
                    task.cancel()
                await asyncio.wait({serving, *tasks})
                for stream in (to_client, incoming, outgoing, from_client):
                    stream.close()

    def hang_up(self) -> None:
        """Close the connection, as a program that ends."""
        self._to_client.close()

    async def notify(self, method: str, **params: Any) -> None:
        """Send a notification."""
        await self._to_client.send(
            SessionMessage(JSONRPCNotification(jsonrpc="2.0", method=method, params=params))
        )

    async def _serve(self, requests: Any, answers: Any, tasks: set[asyncio.Task[None]]) -> None:
        async for item in requests:
            if isinstance(item.message, JSONRPCRequest | JSONRPCNotification):
                task = asyncio.create_task(self._reply(item.message, answers))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

    async def acknowledge(self, params: Params) -> None:
        """Say of the subscription that was asked for last that it has begun."""
        about = {"io.modelcontextprotocol/subscriptionId": self.last_id}
        await self.notify(
            "notifications/subscriptions/acknowledged", _meta=about, notifications=params["notifications"]
        )

    async def _reply(self, message: Any, answers: Any) -> None:
        self.last_id = getattr(message, "id", self.last_id)
        try:
            result = await self.answer(message.method, message.params or {})
        except HungUp:
            answers.close()
            return
        number = getattr(message, "id", None)
        if result is None or number is None:
            return
        answer: Any
        if isinstance(result, JSONRPCError):
            answer = result
        elif isinstance(result, ErrorData):
            answer = JSONRPCError(jsonrpc="2.0", id=number, error=result)
        else:
            answer = JSONRPCResponse(jsonrpc="2.0", id=number, result=result)
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await answers.send(SessionMessage(answer))


@dataclass
class MemoryHttp(Answers):
    """A server behind a client's HTTP transport, without a socket. ``keeps_sessions``: it gives ids of them.

    ``fail`` may raise for a request, or return the response to it; it gets the request and its message.
    """

    keeps_sessions: bool = True
    sessions: set[str] = field(default_factory=set)
    opened: int = 0
    fail: Callable[[httpx2.Request, Params], httpx2.Response | None] = lambda request, message: None

    def transport(self) -> Http:
        """A transport to it."""

        def prepare(client: httpx2.AsyncClient) -> None:
            wrap_transports(client, lambda _: httpx2.MockTransport(self._respond))

        return Http("http://memory.test/mcp", prepare=prepare)

    async def _respond(self, request: httpx2.Request) -> httpx2.Response:
        message = json.loads(request.content) if request.content else {}
        if (failed := self.fail(request, message)) is not None:
            return failed
        if request.method != "POST":
            return httpx2.Response(405 if request.method == "GET" else 200)
        session = request.headers.get("mcp-session-id")
        if session is not None and session not in self.sessions:
            return httpx2.Response(404)
        method = message.get("method", "")
        result = await self.answer(method, message.get("params") or {})
        if "id" not in message or result is None:
            return httpx2.Response(202 if "id" not in message else 204)
        headers = {}
        if method == "initialize" and self.keeps_sessions:
            self.opened += 1
            headers["mcp-session-id"] = f"s{self.opened}"
            self.sessions.add(f"s{self.opened}")
        told = (
            {"error": {"code": result.code, "message": result.message}}
            if isinstance(result, ErrorData)
            else {"result": result}
        )
        return httpx2.Response(200, json={"jsonrpc": "2.0", "id": message["id"], **told}, headers=headers)
