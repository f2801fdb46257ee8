"""A server of the SDK with one resource, in both protocol versions at one address, which tells of updates."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp_types import (
    EmptyResult,
    ListResourcesResult,
    ReadResourceResult,
    Resource,
    TextResourceContents,
)

from .fake_downstreams import serving

URI = "mem://notes/today"


class NotedServer:
    """``write`` changes the resource and notifies whoever has subscribed to it."""

    def __init__(self) -> None:
        self.text = "first"
        self.following = 0
        """How many streams of the newer version, or sessions of the older one, follow the resource."""
        self._bus = InMemorySubscriptionBus()
        self._sessions: list[Any] = []
        self._listener = ListenHandler(self._bus)
        self.server = Server(
            "noted",
            on_list_resources=self._list,
            on_read_resource=self._read,
            on_subscribe_resource=self._subscribe,
            on_subscriptions_listen=self._listen,
        )

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """Serve it on the loopback; gives its address. Streams that are open end without a word."""
        app = self.server.streamable_http_app()
        async with app.router.lifespan_context(app), serving(app) as origin:
            yield f"{origin}/mcp"

    async def write(self, text: str) -> None:
        """Change the text, and tell of it."""
        self.text = text
        await self._bus.publish(ResourceUpdated(uri=URI))
        for session in self._sessions:
            await session.send_resource_updated(URI)

    def end_streams(self) -> None:
        """End the streams of the newer version, as a server does that stops in peace."""
        self._listener.close()

    async def _listen(self, context: Any, params: Any) -> Any:
        followed = bool(params.notifications.resource_subscriptions)
        self.following += followed
        try:
            return await self._listener(context, params)
        finally:
            self.following -= followed

    async def _list(self, context: Any, params: Any) -> ListResourcesResult:
        note = Resource(uri=URI, name="today", mime_type="text/plain", description="What is to be done.")
        return ListResourcesResult(resources=[note])

    async def _read(self, context: Any, params: Any) -> ReadResourceResult:
        return ReadResourceResult(contents=[TextResourceContents(uri=params.uri, text=self.text)])

    async def _subscribe(self, context: Any, params: Any) -> EmptyResult:
        self.following += 1
        self._sessions.append(context.session)
        return EmptyResult()
