"""The tasks in which a project's own code works for callers: owned, left when cancelled, ended together."""

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, Final

from pallas.model.safe_text import one_line

from .handler_faults import Exited

log = logging.getLogger(__name__)

GRACE: Final = 1.0
"""Seconds that work which was cancelled has to end; then it is left to itself, and heard no more."""


class HandlerTasks:
    """Tasks of one agent, in one event loop."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def own[T](self, work: Awaitable[T], name: str) -> asyncio.Task[T]:
        """A task for that; where its code calls ``exit`` or raises KeyboardInterrupt it raises Exited."""
        task = asyncio.create_task(_guarded(work), name=one_line(name, 200))
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    async def leave(self, task: asyncio.Task[Any], what: str) -> None:
        """Cancel it, and wait a moment for it; ``what`` is how the log calls it if it goes on."""
        task.cancel()
        await asyncio.wait({task}, timeout=GRACE)
        if not task.done():
            log.warning(
                "%s: %s goes on though it was cancelled; catch asyncio.CancelledError only to clean up, and "
                "raise it again",
                self._agent,
                what,
                extra={"agent": self._agent},
            )

    async def end(self, timeout: float, *, patience: float = 0.0) -> None:
        """Until none is left: after ``patience`` seconds they are cancelled, then they have ``timeout``."""
        if self._tasks and patience > 0:
            await asyncio.wait(set(self._tasks), timeout=patience)
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await asyncio.wait(tasks)

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # of one that was left nobody asks any more


async def _guarded[T](work: Awaitable[T]) -> T:
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:  # a loop ends when that comes out of a task
        raise Exited(str(error)) from error
