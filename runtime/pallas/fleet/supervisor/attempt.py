"""One attempt at a start: bounded in time, given up whole, and over before the next begins."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

from pallas.deadlines import done_within

# Seconds that whoever cancels a start waits for its clean-up; that goes on by itself after it.
_GRACE: Final = 1.0


class Attempt:
    """Runs one thing at a time with a limit; one that is given up cleans up in a task of its own."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None

    async def within[T](self, seconds: float, work: Coroutine[Any, Any, T], name: str) -> T:
        """What ``work`` returns or raises. Raises TimeoutError after ``seconds``: then it is cancelled.

        The clean-up of the one before, where that was given up, does not count. Neither does time in which
        something else blocked the event loop (``done_within``).
        """
        try:
            await self.over()
        except BaseException:
            work.close()
            raise
        task = asyncio.create_task(work, name=name)
        self._task = task
        try:
            await done_within(seconds, task)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task}, timeout=_GRACE)
            raise
        if not task.done():
            task.cancel()
            raise TimeoutError
        return task.result()

    async def over(self) -> None:
        """Until what was given up has cleaned up; the caller bounds it."""
        if self._task is not None and not self._task.done():
            await asyncio.wait({self._task})

    async def close(self) -> None:
        """Give up what is under way, in about a second."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_GRACE)
        if self._task is not None and self._task.done():
            with suppress(BaseException):
                self._task.exception()  # nobody asks for it any more
