"""The timing of a conversation's paints: after changes, and only as often as there is time."""

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Final

from textual.widget import MountError

PAINT_EVERY: Final = 0.1
"""Least seconds between two paints, however fast the text streams."""
MAX_PAUSE: Final = 2.0
"""Most seconds: after a busy moment the conversation must soon be shown again."""


class Painter:
    """Calls ``paint`` once after any number of ``touch``; never while ``seen`` is false."""

    def __init__(self, paint: Callable[[], Awaitable[None]], seen: Callable[[], bool]) -> None:
        self._paint, self._seen = paint, seen
        self._dirty = asyncio.Event()

    def touch(self) -> None:
        """Note a change."""
        self._dirty.set()

    async def run(self) -> None:
        """Paint until cancelled, or until the screen is gone."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            started = perf_counter()
            if self._seen():
                try:
                    await self._paint()
                except MountError:  # the screen is gone in the middle of it
                    return
            # The longer a paint takes, the longer the pause: the keys get most of the time.
            await asyncio.sleep(min(MAX_PAUSE, max(PAINT_EVERY, 4 * (perf_counter() - started))))
