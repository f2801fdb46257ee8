"""Requests to the MCP SDK that no client sent, and answers of it that are changed or kept back."""

import asyncio
from typing import Final

from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

SESSION_HEADER: Final = MCP_SESSION_ID_HEADER.encode()
_MAX_NOTE: Final = 32_768
_INITIALIZED: Final = b'"notifications/initialized"'
OWN_SCOPE: Final[Scope] = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "http_version": "1.1",
    "scheme": "http",
    "path": "/mcp",
    "raw_path": b"/mcp",
    "query_string": b"",
    "root_path": "",
    "headers": [],
    "client": ("127.0.0.1", 0),
    "server": ("127.0.0.1", 0),
}
"""The scope of a request of ours without a connection."""


class HeldAnswer:
    """An answer that is held back."""

    def __init__(self) -> None:
        self._messages: list[Message] = []

    async def send(self, message: Message) -> None:
        self._messages.append(message)

    async def replay(self, send: Send) -> None:
        for message in self._messages:
            await send(message)


def reading(body: bytes) -> Receive:
    """Return a ``receive`` that yields this body, and then never anything."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if not left:
            await asyncio.Event().wait()
        return left.pop()

    return receive


def own_request(scope: Scope, session: str | None, body: bytes) -> Scope:
    """Return the scope of a request of ours with this body, on the connection of another request."""
    headers = [
        (b"host", Headers(scope=scope).get("host", "").encode("latin-1")),
        (b"content-type", b"application/json"),
        (b"accept", b"application/json, text/event-stream"),
        (b"content-length", str(len(body)).encode()),
    ]
    if session is not None:
        headers.append((SESSION_HEADER, session.encode()))
    return {**scope, "method": "POST", "headers": headers}


def with_id(sealed: str, message: Message) -> Message:
    """Return the start of an answer with the signed id in place of the SDK's."""
    headers = [
        (name, sealed.encode() if name.lower() == SESSION_HEADER else value)
        for name, value in message.get("headers", [])
    ]
    return {**message, "headers": headers}


class ClientNote:
    """The body of a request that was no request to the server but a notification or an answer: 202."""

    def __init__(self) -> None:
        self.body = ""
        self._read = bytearray()

    def reading(self, receive: Receive) -> Receive:
        """Return ``receive``, of which a short body is kept."""

        async def read() -> Message:
            message = await receive()
            if len(self._read) <= _MAX_NOTE:
                self._read.extend(message.get("body", b""))
            return message

        return read

    def showing(self, sealed: str, send: Send) -> Send:
        """Return ``send``, with the signed id in place of the SDK's."""

        async def shown(message: Message) -> None:
            if message["type"] == "http.response.start":
                is_short = len(self._read) <= _MAX_NOTE
                # Each process that opens the session says of itself that it is initialized.
                if message["status"] == 202 and is_short and _INITIALIZED not in self._read:
                    self.body = self._read.decode("utf-8", "replace")
                message = with_id(sealed, message)
            await send(message)

        return shown
