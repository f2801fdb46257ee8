"""Waits for tasks, each with a deadline."""

import asyncio
from time import monotonic
from typing import Any, Final

# Seconds. Time beyond this in which other code blocks the loop does not count.
_SLICE: Final = 0.5


async def done_within(seconds: float, work: asyncio.Future[Any]) -> bool:
    """Whether ``work`` is done within ``seconds``. It is not cancelled, and its exception is not retrieved.

    Time in which something else blocked the event loop does not count: a fleet that starts makes one agent
    after the other.
    """
    left = seconds
    while left > 0 and not work.done():
        piece, began = min(_SLICE, left), monotonic()
        await asyncio.wait({work}, timeout=piece)
        left -= min(piece, monotonic() - began)
    return work.done()


async def cancel_and_wait(*tasks: asyncio.Future[Any], seconds: float) -> None:
    """Cancel tasks and wait for their ends, at most that many seconds. Exceptions are not retrieved."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=seconds)
