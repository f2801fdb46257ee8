"""One application behind a port, for as long as it stays there."""

import asyncio
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from .listening_streams import ListeningStreams


class Stay:
    """ASGI application: ``app``, and which of its requests are under way by this way in.

    The way in may become another application's before this one's requests are over: those go on.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = ListeningStreams(app)
        self._under_way: set[asyncio.Task[Any]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        task = asyncio.current_task()
        if task is None:  # only a task can be told to end
            raise RuntimeError("a request is answered in a task")
        self._under_way.add(task)
        try:
            await self._app(scope, receive, send)
        finally:
            self._under_way.discard(task)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._under_way

    def end_streams(self) -> None:
        """End the streams on which somebody only listens; returns at once."""
        self._app.end()

    async def leave(self, seconds: float) -> None:
        """Requests under way have ``seconds``, then they are cancelled. Nobody may send others here."""
        self.end_streams()
        under_way = self._under_way - {asyncio.current_task()}
        if not under_way:
            return
        _, late = await asyncio.wait(under_way, timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=1.0)
