"""A client of one MCP server that a task of its own enters and leaves, for one user at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mcp import Client

    from .opening import Callbacks, Opener, Settings
    from .transports import Transport

CLOSE_SECONDS: Final = 2.0
"""How long it may take to leave; after that its task is cancelled, and may take as long again."""
# The task of a broken connection ends right after the call that failed.
_CAUSE_SECONDS: Final = 0.5


class ClientTask:
    """Enters the client that ``opener`` gives, and leaves it when it is closed. It is not opened again.

    Unlike ``Connection`` it lists nothing and repeats nothing: whether a call may be made again, its user
    decides. Nothing of MCP is imported before it is opened.
    """

    client: "Client"
    """There once it was opened."""

    def __init__(self, name: str, opener: "Callable[[], Awaitable[Opener]]") -> None:
        self._name = name
        self._opener = opener
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def was_opened(self) -> bool:
        """Whether an opening was begun."""
        return self._task is not None

    @property
    def is_lost(self) -> bool:
        """Whether it was opened, and is not any more."""
        return self._task is not None and self._task.done()

    async def open(self, seconds: float) -> None:
        """Connect, once, within ``seconds``. Raises the SDK's errors, httpx2's, OSError, and TimeoutError."""
        if self._task is not None:
            return
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._own(ready), name=self._name)
        try:
            await asyncio.wait({self._task, ready}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                return
            if self._task.done():
                self._task.result()
            raise TimeoutError
        except BaseException:
            await self._end()
            raise
        finally:
            ready.cancel()

    async def cause_of(self, error: Exception) -> BaseException:
        """Return why the connection was lost, if that made a call fail; otherwise the error."""
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED

        if self._task is None or not isinstance(error, MCPError) or error.code != CONNECTION_CLOSED:
            return error
        await asyncio.wait({self._task}, timeout=_CAUSE_SECONDS)
        if not self._task.done() or self._task.cancelled():
            return error
        return self._task.exception() or error

    async def close(self) -> None:
        """Leave the client, its session too, within 4 s."""
        self._stop.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)
        await self._end()

    async def _own(self, ready: asyncio.Future[None]) -> None:
        opener = await self._opener()
        async with opener.entered() as client:
            self.client = client
            if not ready.done():
                ready.set_result(None)
            await self._stop.wait()

    async def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(Exception, asyncio.CancelledError):
                await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)
            if self._task.done() and not self._task.cancelled():
                self._task.exception()  # retrieved: asyncio reports nothing at exit


def plain_opener(
    name: str, transport: "Transport", settings: "Settings", callbacks: "Callbacks | None" = None
) -> "Opener":
    """Return an opener for a connection whose findings nobody reads."""
    from pallas.safe_text import one_line

    from .opening import Callbacks, Heard, Opener
    from .transports import Link
    from .usable_results import usable_result

    async def nothing(message: Any) -> None: ...

    heard = Heard(usable_result, nothing, lambda client: None)
    link = Link(one_line(name, 80))
    return Opener(name, transport, settings, callbacks or Callbacks(), heard, link, {})
