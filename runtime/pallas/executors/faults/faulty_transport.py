"""The client of an MCP endpoint whose calls of tools get what is injected into them."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx2

from pallas.telemetry.wire_http import call_in

from .fault_injection import FaultInjection, Send, current_injection

type Inject = Callable[[FaultInjection, str, httpx2.Request, Send], Awaitable[httpx2.Response]]
"""Sends the request of a call of a tool, whose name is given, with its fault."""


def make_faulty(http_client: httpx2.AsyncClient, inject: Inject) -> None:
    """Have the calls of tools that this client sends get faults; nothing changes without an injection."""
    if current_injection() is None:
        return
    # httpx2 takes a transport only when a client is made; ``test_hooks.py`` watches both names.
    ways: dict[str, Any] = vars(http_client)
    ways["_transport"] = _FaultyTransport(ways["_transport"], inject)
    mounts = {each: way and _FaultyTransport(way, inject) for each, way in ways["_mounts"].items()}
    ways["_mounts"] = mounts


class _FaultyTransport(httpx2.AsyncBaseTransport):
    """Sends the requests of calls of tools with what is injected into them, and others as they are."""

    def __init__(self, transport: httpx2.AsyncBaseTransport, inject: Inject) -> None:
        self._transport = transport
        self._inject = inject

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Raises httpx2.TransportError."""
        send = self._transport.handle_async_request
        method, tool = call_in(request) if request.method == "POST" else ("", "")
        injection = current_injection()
        if method != "tools/call" or injection is None:
            return await send(request)
        return await self._inject(injection, tool, request, send)

    async def aclose(self) -> None:
        """Close it."""
        await self._transport.aclose()
