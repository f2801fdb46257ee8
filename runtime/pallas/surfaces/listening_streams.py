"""Streams on which a caller only listens: they never end by themselves, so their port ends them."""

import asyncio
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class ListeningStreams:
    """ASGI middleware in front of an agent's MCP surface.

    Such a stream is the ``GET`` of the handshake era; agents do not offer the newer one,
    ``subscriptions/listen``. Without an end it would delay the closing of its port by the grace period of
    requests in flight, and be cut then.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._is_ended = asyncio.Event()

    def end(self) -> None:
        """End all streams, present and future; returns at once."""
        self._is_ended.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        begun = ended = False

        async def hear() -> Message:
            return await _until(self._is_ended, receive)

        async def say(message: Message) -> None:
            nonlocal begun, ended
            begun = begun or message["type"] == "http.response.start"
            ended = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        await self._app(scope, hear, say)
        if begun and not ended:  # a disconnect would have ended it, but this client is still connected
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until(is_ended: asyncio.Event, receive: Receive) -> Message:
    """Return the client's next message; once the stream has ended, a disconnect."""
    came, end = asyncio.ensure_future(receive()), asyncio.ensure_future(is_ended.wait())
    waits: set[asyncio.Future[Any]] = {came, end}
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        return came.result() if came.done() else {"type": "http.disconnect"}
    finally:
        for wait in waits:
            wait.cancel()
