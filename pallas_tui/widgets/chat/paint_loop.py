"""When a conversation is painted: after changes, and not more often than there is time for."""

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Final

from textual.widget import MountError

PAINT_EVERY: Final = 0.1
"""Seconds between two paintings at least, however fast the text comes."""
MAX_PAUSE: Final = 2.0
"""Seconds at most: a machine that was busy once must not keep a conversation from being seen."""


class Painter:
    """Calls ``paint`` after ``touch``, however often that was called; nothing while ``seen`` is false."""

    def __init__(self, paint: Callable[[], Awaitable[None]], seen: Callable[[], bool]) -> None:
        self._paint, self._seen = paint, seen
        self._dirty = asyncio.Event()

    def touch(self) -> None:
        """Something changed."""
        self._dirty.set()

    async def run(self) -> None:
        """Until cancelled, or until the screen goes away."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            started = perf_counter()
            if self._seen():
                try:
                    await self._paint()
                except MountError:  # the screen goes away in the middle of it
                    return
            # What takes long is done less often: the keys get most of the time.
            await asyncio.sleep(min(MAX_PAUSE, max(PAINT_EVERY, 4 * (perf_counter() - started))))
