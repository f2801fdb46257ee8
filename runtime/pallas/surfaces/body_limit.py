"""Refuses a request that is too large with its size, the limit and what to do."""

import asyncio
from contextlib import suppress
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pallas.bounds.sizes import MAX_BODY
from pallas.model import Fault, FaultType
from pallas.surfaces.whole_answer import answer_json

# A client that is still sending reads no answer: read this much more, for this long, before answering.
DRAIN: Final = 64 * 1024 * 1024
DRAIN_SECONDS: Final = 10.0


class BodyLimit:
    """ASGI middleware: 413 with a JSON-RPC error for a body above ``MAX_BODY`` bytes, else the app's answer.

    The MCP library has the same limit, but its error says only that it was exceeded.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = _length(scope)
        if declared is not None and declared > MAX_BODY:
            await _refuse(f"{declared} bytes", declared, MAX_BODY, receive, scope, send)
            return
        taken = 0
        refused = False

        async def counting() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            return message

        async def in_words(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start" and message["status"] == 413:
                refused = True
            if not refused:
                await send(message)

        await self._app(scope, counting, in_words)
        if refused:  # no length was declared: the library found out while reading
            await _refuse(f"more than {MAX_BODY} bytes", taken, MAX_BODY, receive, scope, send)


async def _refuse(size_text: str, size: int, limit: int, receive: Receive, scope: Scope, send: Send) -> None:
    fault = Fault(
        FaultType.PROTOCOL,
        f"the request has {size_text}; at most {limit}: make images smaller (one has room for about 3 MB, "
        "and base64 adds a third), send fewer at once, or leave out history that the conversation has "
        "already",
        data={"limit": limit, "size": size},
    )
    error = {
        "code": fault.code,
        "message": fault.message,
        "data": {"type": fault.type.value, "retryable": fault.retryable, **fault.data},
    }
    body = {"jsonrpc": "2.0", "id": None, "error": error}
    await drain_body(receive)
    await answer_json(scope, send, 413, body, {"connection": "close"})


async def drain_body(receive: Receive) -> None:
    """Read what a client still sends, up to 64 MiB and for 10 s: it reads no answer before."""
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            await _drain(receive)


async def _drain(receive: Receive) -> None:
    taken = 0
    while taken < DRAIN:
        message = await receive()
        taken += len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body", False):
            return


def _length(scope: Scope) -> int | None:
    for name, value in scope["headers"]:
        if name.lower() == b"content-length" and value.isdigit():
            return int(value[:20])
    return None
