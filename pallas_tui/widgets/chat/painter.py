"""How often a conversation draws the text that streams."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from textual.widget import MountError

PAINT_EVERY: Final = 0.25
"""Seconds between two paints, however fast the text streams."""


class Painter:
    """Calls ``changed`` once after any number of ``touch``, and ``paint`` if it is ``seen``."""

    def __init__(
        self, paint: Callable[[], Awaitable[None]], seen: Callable[[], bool], changed: Callable[[], object]
    ) -> None:
        self._paint, self._seen, self._changed = paint, seen, changed
        self._dirty = asyncio.Event()

    def touch(self) -> None:
        """Note a change."""
        self._dirty.set()

    async def run(self) -> None:
        """Paint until cancelled, or until the screen is gone."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            self._changed()
            if self._seen():
                try:
                    await self._paint()
                except MountError:  # the screen is gone in the middle of it
                    return
            await asyncio.sleep(PAINT_EVERY)
