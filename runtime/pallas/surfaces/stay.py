"""One application behind a port, for as long as the port serves it."""

import asyncio
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from .listening_streams import ListeningStreams


class Stay:
    """ASGI application: ``app``, with a count of the requests in flight that came through this port.

    The port may switch to another application before this one's requests have ended: those go on.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = ListeningStreams(app)
        self._under_way: set[asyncio.Task[Any]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        task = asyncio.current_task()
        if task is None:  # only a task can be cancelled
            raise RuntimeError("a request is answered in a task")
        self._under_way.add(task)
        try:
            await self._app(scope, receive, send)
        finally:
            self._under_way.discard(task)

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight."""
        return not self._under_way

    def end_streams(self) -> None:
        """End the streams on which clients only listen; returns at once."""
        self._app.end()

    async def leave(self, seconds: float) -> None:
        """Wait ``seconds`` for the requests in flight, then cancel them. No new ones may be sent here."""
        self.end_streams()
        under_way = self._under_way - {asyncio.current_task()}
        if not under_way:
            return
        _, late = await asyncio.wait(under_way, timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=1.0)
