"""Waiting with a limit that a blocked event loop does not use up."""

import asyncio
from time import monotonic
from typing import Any, Final

# A loop that is blocked by other code for longer than this does not count against who waits.
_SLICE: Final = 0.5


async def done_within(seconds: float, work: asyncio.Future[Any]) -> bool:
    """Whether it is done by then; it is left as it is, and what it raises is not looked at.

    Time in which something else blocked the event loop does not count: a fleet that starts makes one agent
    after the other.
    """
    left = seconds
    while left > 0 and not work.done():
        piece, began = min(_SLICE, left), monotonic()
        await asyncio.wait({work}, timeout=piece)
        left -= min(piece, monotonic() - began)
    return work.done()
