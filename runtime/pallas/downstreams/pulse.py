"""Whether a server answers: it is asked something small."""

import asyncio
from contextlib import suppress
from typing import Final

from mcp import Client, MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from .http_requests import CallFate, call_fate
from .opening import is_closed

# HTTP statuses by which a server refuses a caller.
_REFUSALS: Final = frozenset({401, 403})


class Pulse:
    """Asks the server of one connection; one that does not answer pings is asked for its tools instead."""

    def __init__(self) -> None:
        self._ignores_pings = False

    async def ask(self, client: Client) -> None:
        """Ask it. Raises ConnectionError, also for an HTTP status that refuses, and the SDK's errors."""
        try:
            if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                await client.session.send_discover(client.protocol_version)
            else:
                await self.ping(client)
        except MCPError as error:
            fate = call_fate.get() or CallFate()
            if fate.status in _REFUSALS or fate.status >= 500:
                raise ConnectionError(f"HTTP {fate.status}") from error
            if is_closed(error) or fate.unsent or fate.broken or fate.no_session:
                raise

    async def ping(self, client: Client) -> None:
        """Ping one with a handshake. Raises the SDK's errors."""
        await (client.list_tools() if self._ignores_pings else client.session.send_ping())

    async def lists(self, client: Client | None, seconds: float) -> bool:
        """Return whether one that did not answer a ping lists its tools: some know no ping."""
        if self._ignores_pings or client is None or client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return False
        with suppress(TimeoutError, MCPError):
            async with asyncio.timeout(seconds):
                await client.list_tools()
            self._ignores_pings = True
            return True
        return False
