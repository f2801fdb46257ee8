"""The tasks that run a project's own code: owned, left when they ignore a cancellation, and ended
together."""

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, Final

from pallas.deadlines import cancel_and_wait
from pallas.safe_text import one_line

from .handler_faults import Exited

log = logging.getLogger(__name__)

GRACE: Final = 1.0
"""Seconds that cancelled work has to end; after that it is left running and its output ignored."""


class HandlerTasks:
    """Tasks of one agent, in one event loop."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def own[T](self, work: Awaitable[T], name: str) -> asyncio.Task[T]:
        """Return a task for ``work``; if its code calls ``exit`` or raises KeyboardInterrupt, it raises
        Exited."""
        task = asyncio.create_task(_guarded(work), name=one_line(name, 200))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def leave(self, task: asyncio.Task[Any], what: str) -> None:
        """Cancel a task, and wait a moment for it; ``what`` is its name in the log if it goes on."""
        await cancel_and_wait(task, seconds=GRACE)
        if not task.done():
            log.warning(
                "%s: %s continues though it was cancelled; catch asyncio.CancelledError only to clean up, "
                "and raise it again",
                self._agent,
                what,
                extra={"agent": self._agent},
            )

    async def end(self, timeout_s: float, *, grace_s: float = 0.0) -> None:
        """Wait until no task is left: after ``grace_s`` seconds they are cancelled, then they have
        ``timeout_s``."""
        if self._tasks and grace_s > 0:
            await asyncio.wait(set(self._tasks), timeout=grace_s)
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await asyncio.wait(tasks)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # no caller retrieves the exception of a task that was left


async def _guarded[T](work: Awaitable[T]) -> T:
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:  # these exceptions from a task would end the loop
        raise Exited(str(error)) from error
