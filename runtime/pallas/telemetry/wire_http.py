"""Records the HTTP traffic of runs, byte by byte as it passes.

Only for a run that has a record (``wire_record``); otherwise this costs the look-up of a context variable.
"""

import json
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import httpx2

from pallas.telemetry.trace_context import current_call, current_run
from pallas.telemetry.wire_record import Body, OpenExchange, method_in

# Bytes of a request's body that are read for the name of its tool.
_MAX_NAMED: Final = 65_536


def call_in(request: httpx2.Request) -> tuple[str, str]:
    """The JSON-RPC method of a request, and the tool that it calls; empty if it says none."""
    try:
        body = request.content
    except httpx2.RequestNotRead:
        body = b""
    method = str(request.headers.get("mcp-method") or method_in(body))
    if method != "tools/call" or len(body) > _MAX_NAMED:
        return method, ""
    try:
        tool = json.loads(body)["params"]["name"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return method, ""
    return method, tool if isinstance(tool, str) else ""


def sent(peer: str, request: httpx2.Request) -> OpenExchange | None:
    """Record a request that is being sent; None if its run is not recorded."""
    run = current_run()
    if run is None or run.wire is None or request.method != "POST":
        return None
    try:
        body = request.content
    except httpx2.RequestNotRead:
        return None
    method = method_in(body)
    return run.wire.begin(
        "downstream",
        peer,
        method,
        body,
        headers=request.headers.multi_items(),
        span_id=current_call() if method == "tools/call" else "",
    )


def answered(exchange: OpenExchange, response: httpx2.Response) -> None:
    """Record the response: its head now, its body while it is read."""
    exchange.head(response.status_code, response.headers.multi_items())
    response.stream = _Kept(response, exchange)


class _Kept(httpx2.AsyncByteStream):
    """A response's bytes, passed on unchanged; a bounded part of them is recorded."""

    def __init__(self, response: httpx2.Response, exchange: OpenExchange) -> None:
        stream: Any = response.stream
        self._stream = stream
        self._exchange = exchange
        self._body = Body(events=response.headers.get("content-type", "").startswith("text/event-stream"))
        self._decode = _decoder(response.headers.get("content-encoding", ""))
        self._is_ended = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._stream:
            self._body.feed(self._decode(data))
            yield data
        self._end()

    async def aclose(self) -> None:
        """Finish the record, because the response was read or its reader wants no more."""
        self._end()
        await self._stream.aclose()

    def _end(self) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._exchange.end(*self._body.end())


def _decoder(encoding: str) -> Callable[[bytes], bytes]:
    """A decoder of a body's content encoding; for an unknown encoding it yields nothing."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return bytes
    if name not in ("gzip", "deflate"):
        return lambda data: b""
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)

    def plain(data: bytes) -> bytes:
        try:
            return inflate.decompress(data, 1 << 20)
        except zlib.error:
            return b""

    return plain
