"""Streams on which a caller only listens: they have no end of their own, so their port gives them one."""

import asyncio
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class ListeningStreams:
    """ASGI middleware before an agent's MCP surface.

    Such a stream is the ``GET`` of the handshake era; of the newer one's, ``subscriptions/listen``, agents
    offer none. Without an end it would hold up the closing of its port for as long as requests in flight
    have, and be cut then.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._over = asyncio.Event()

    def end(self) -> None:
        """End those there are, and each that comes from now on; returns at once."""
        self._over.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        begun = ended = False

        async def hear() -> Message:
            return await _until(self._over, receive)

        async def say(message: Message) -> None:
            nonlocal begun, ended
            begun = begun or message["type"] == "http.response.start"
            ended = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        await self._app(scope, hear, say)
        if begun and not ended:  # as the client's going would have ended it, but this one is still there
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until(over: asyncio.Event, receive: Receive) -> Message:
    """The next message of the client's; that it went away when the stream is ended."""
    came, end = asyncio.ensure_future(receive()), asyncio.ensure_future(over.wait())
    waits: set[asyncio.Future[Any]] = {came, end}
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        return came.result() if came.done() else {"type": "http.disconnect"}
    finally:
        for wait in waits:
            wait.cancel()
