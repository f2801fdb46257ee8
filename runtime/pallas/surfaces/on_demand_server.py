"""An MCP server of the fleet's port that is created with its first request."""

import asyncio
import importlib
from collections.abc import Callable
from contextvars import Context
from typing import Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from pallas.telemetry.log import reapply_logging

from .app_lifespan import Lifespan
from .ingress import AgentMount, not_yet, slashless
from .listening_streams import ListeningStreams


class Tells(Protocol):
    """A server whose tools may change."""

    async def tell(self) -> None:
        """Notify sessions if the tools have changed; never raises."""


class OnDemand:
    """One MCP server and its ``place``, created with the first request.

    ``make`` returns the server, its notifier of changes and its application; ``needs`` is a heavy module
    that is imported first, in a thread. ``owner`` names the server in the log.
    """

    def __init__(self, owner: str, make: Callable[[], tuple[Tells | None, ASGIApp]], *, needs: str) -> None:
        self._owner = owner
        self._make = make
        self._needs = needs
        self._lock = asyncio.Lock()
        self._server: Tells | None = None
        self._lifespan: Lifespan | None = None
        self._streams: ListeningStreams | None = None
        self._closed = False
        self.place = AgentMount(())
        self.place.serve(self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the server."""
        async with self._lock:
            if self._streams is None and not self._closed:
                if self._lifespan is not None:  # the first caller went away too soon
                    await self._lifespan.stop()
                await self._begin()
        if self._streams is None:
            await not_yet(scope, receive, send)
        else:
            await self._streams(scope, receive, send)

    async def _begin(self) -> None:
        await asyncio.to_thread(importlib.import_module, self._needs)
        reapply_logging()  # FastMCP sets up its own when it is imported
        self._server, app = self._make()
        lifespan = self._lifespan = Lifespan(app, self._owner)
        # In an empty context: the server must not inherit that of the first caller.
        await asyncio.create_task(lifespan.start(), context=Context())
        self._streams = ListeningStreams(slashless(app))

    async def tell(self) -> None:
        """Notify sessions if the tools have changed."""
        if self._server is not None:
            await self._server.tell()

    async def close(self) -> None:
        """Refuse new requests; those in progress have two seconds."""
        self._closed = True
        if self._streams is not None:
            self._streams.end()
        await self.place.leave()
        if self._lifespan is not None:
            await self._lifespan.stop()
