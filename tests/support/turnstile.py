"""A real MCP server whose one tool answers when the test lets it: runs last for as long as wanted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fastmcp import FastMCP

from pallas.surfaces.listener import Listener, bind


@dataclass
class Turnstile:
    """``arrived`` are those who called ``go``; each waits until ``open`` is set, or its own ``let(name)``."""

    url: str = ""
    arrived: list[str] = field(default_factory=list)
    open: asyncio.Event = field(default_factory=asyncio.Event)
    _own: dict[str, asyncio.Event] = field(default_factory=dict)

    def let(self, name: str) -> None:
        """Let this one through, now or when it comes."""
        self._own.setdefault(name, asyncio.Event()).set()

    async def go(self, who: str) -> str:
        """Wait for one's turn."""
        self.arrived.append(who)
        waits = [
            asyncio.ensure_future(event.wait())
            for event in (self.open, self._own.setdefault(who, asyncio.Event()))
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return f"{who} went through"


@asynccontextmanager
async def turnstile() -> AsyncIterator[Turnstile]:
    """One on a free port, in this loop; the tool is ``go(who)``."""
    stile = Turnstile()
    server: FastMCP = FastMCP("turnstile")
    server.tool(stile.go, output_schema=None)
    sock = bind("127.0.0.1", 0, "turnstile")
    stile.url = f"http://127.0.0.1:{sock.getsockname()[1]}/mcp"
    listener = Listener(server.http_app(path="/mcp"), sock)
    await listener.start()
    try:
        yield stile
    finally:
        stile.open.set()
        await listener.stop()
