"""A real MCP server on a real socket that notes which credential came with each request."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastmcp import FastMCP
from starlette.responses import Response
from starlette.types import ASGIApp

from pallas.cli.bearer_check import echo
from pallas.cli.bearer_check.echo import HeardRequest, serving

__all__ = ["HeardRequest", "Recorder", "recording"]


class Recorder(echo.RequestRecorder):
    """A recorder that can be told to make trouble.

    ``demand`` answers 401 to any request without a bearer. ``moved_to`` redirects ``moves`` tool calls.
    ``lose`` answers 404 to that many tool calls, as a server does that no longer knows the session.
    """

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app)
        self.demand = False
        self.moved_to = ""
        self.moves = 1_000_000
        self.lose = 0

    def answer(self, request: HeardRequest) -> Response | None:
        """What to answer in place of the server."""
        if self.demand and not request.authorization:
            return Response('{"error": "invalid_token"}', 401, {"WWW-Authenticate": "Bearer"})
        if request.what != "tools/call":
            return None
        if self.moved_to and self.moves > 0:
            self.moves -= 1
            return Response(status_code=307, headers={"Location": self.moved_to})
        if self.lose > 0:
            self.lose -= 1
            return Response(status_code=404)
        return None


@asynccontextmanager
async def recording() -> AsyncIterator[Recorder]:
    """A server with the tools ``note`` (answers its text), ``wait`` (for ever) and ``fail``; both eras."""
    server: FastMCP = FastMCP("recorder")

    @server.tool
    async def note(text: str) -> str:
        """Say it back."""
        await asyncio.sleep(0)
        return f"noted {text}"

    @server.tool
    async def wait(text: str) -> str:
        """Never answer."""
        await asyncio.Event().wait()
        return text

    @server.tool
    async def fail(text: str) -> str:
        """Fail."""
        raise ValueError("kaput")

    async with serving(server, Recorder) as recorder:
        assert isinstance(recorder, Recorder)
        yield recorder
