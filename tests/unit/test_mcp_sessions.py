"""Ids of requests in sessions with a handshake."""

import asyncio
from typing import Any

from starlette.types import Message, Receive, Scope, Send
from support.raw_client import handshake_headers

from pallas.surfaces.mcp_sessions import McpSessions
from pallas.surfaces.message_check import REQUEST_ID


class Answered:
    """An application that opens a session, and returns from other requests when ``returns`` is set."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.has_answered = asyncio.Event()
        self.returns = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        opens = scope[REQUEST_ID] == "opening"
        if not opens:
            await self.answers.wait()
        headers = [(b"mcp-session-id", b"one")] if opens else []
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})
        if not opens:
            self.has_answered.set()
            await self.returns.wait()


async def request(sessions: McpSessions, request_id: str, session: str = "") -> list[Message]:
    """What is sent in answer to a request."""
    given = handshake_headers(session) if session else handshake_headers()
    headers = [(name.lower().encode(), value.encode()) for name, value in given.items()]
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/mcp", "headers": headers}
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"{}"}

    async def send(message: Message) -> None:
        sent.append(message)

    await sessions({**scope, REQUEST_ID: request_id}, receive, send)
    return sent


async def test_an_id_can_be_used_again_once_its_request_is_answered() -> None:
    app = Answered()
    sessions = McpSessions(app)
    await request(sessions, "opening")
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        first = tasks.create_task(request(sessions, "1", "one"))
        await asyncio.sleep(0)
        twice = await request(sessions, "1", "one")
        assert (twice[0]["status"], b"is in progress" in twice[1]["body"]) == (400, True)
        app.answers.set()
        await app.has_answered.wait()  # it has not returned yet
        second = tasks.create_task(request(sessions, "1", "one"))
        await asyncio.sleep(0)
        app.returns.set()
        assert (await first)[0]["status"] == (await second)[0]["status"] == 200
