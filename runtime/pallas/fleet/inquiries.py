"""Questions that somebody waits for: each in a task of its own, with a deadline, cancelled once at most."""

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, Final

from pallas.model import Fault, FaultType

# Tasks at one time: whoever asks in a loop is told to wait.
MAX_INQUIRIES: Final = 100
# Seconds that cancelled ones have to close what they opened, when the fleet stops.
_CLOSE_TIMEOUT: Final = 2.5


class Inquiries:
    """Owns what is asked of one fleet. Belongs to its event loop.

    Whoever waits may go, or be told that it took too long, at once; the task then closes what it opened
    (a child process, a session) undisturbed: a second cancel in the middle of that would leave it behind.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    async def run[T](self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """The result of ``work``. Raises TimeoutError after ``seconds``, Fault when it cannot be done now."""
        if self._closed or len(self._tasks) >= MAX_INQUIRIES:
            work.close()
            if self._closed:
                raise Fault(FaultType.TRANSPORT, "the fleet is stopping")
            raise Fault(
                FaultType.TRANSPORT, f"{MAX_INQUIRIES} questions are being answered; ask again in a moment"
            )
        # An empty context: nothing of who asks, nor of its own request, goes along.
        task = asyncio.create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._done)
        try:
            await asyncio.wait({task}, timeout=seconds)
        except asyncio.CancelledError:
            _cancel(task)
            raise
        if not task.done():
            _cancel(task)
            raise TimeoutError
        if task.cancelled():
            raise Fault(FaultType.TRANSPORT, "the fleet is stopping")
        return task.result()

    async def close(self) -> None:
        """Cancel all of them and wait a moment until they have closed what they opened."""
        self._closed = True
        for task in self._tasks:
            _cancel(task)
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=_CLOSE_TIMEOUT)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # nobody may be waiting for it any more


def _cancel(task: asyncio.Task[Any]) -> None:
    if not task.cancelling():
        task.cancel()
