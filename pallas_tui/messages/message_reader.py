"""Reads the messages of one run with their XML: page by page while it runs, all once it is over."""

import asyncio
from collections.abc import Awaitable
from typing import Final

from pallas.model import Fault
from pallas.safe_text import one_line

from .message_book import MessageBook

READ_EVERY: Final = 1.0
"""Seconds between two reads while the run goes on."""


class Reader:
    """Reads into ``book``. ``problem`` says in one line why the last read failed, empty if it did not."""

    def __init__(self, book: MessageBook) -> None:
        self._book = book
        self.problem = ""
        self.busy = False
        self._read_at = float("-inf")
        self._over: set[tuple[str, int]] = set()
        """Runs that were read after their end, each with its last number then."""

    def forget_read(self) -> None:
        """Read everything again, at the user's request."""
        self.problem = ""
        self._read_at = float("-inf")
        self._over.clear()

    def due(self, run_id: str, running: bool, now: float) -> bool:
        """Return whether it is time to read messages that the user did not select."""
        if self.busy or not run_id:
            return False
        messages = self._book.run(run_id)
        if not running:
            return (run_id, messages.last if messages is not None else 0) not in self._over
        unread = messages is None or messages.unread() <= messages.last
        return not self.problem and unread and not 0 <= now - self._read_at < READ_EVERY

    async def follow(self, run_ids: tuple[str, ...], running: bool, now: float) -> None:
        """Read the next messages of the first of these runs; with ``running`` off, all messages of all."""
        self._read_at = now
        await self._guarded(self._page(run_ids[0]) if running else self._all(run_ids))
        if not running:
            messages = self._book.run(run_ids[0])
            self._over.add((run_ids[0], messages.last if messages is not None else 0))

    async def one(self, run_id: str, number: int) -> None:
        """Read the message that the user selected, and those that follow it."""
        await self._guarded(self._read(run_id, number - 1))

    async def _guarded(self, work: Awaitable[object]) -> None:
        self.busy = True
        try:
            await work
            self.problem = ""
        except Fault as fault:
            self.problem = f"The messages could not be read: {fault.message}"
        except Exception as error:  # a remote fleet may raise other errors
            what = f"{type(error).__name__}: {one_line(str(error), 160)}"
            self.problem = f"The messages could not be read: {what}"
        finally:
            self.busy = False

    async def _page(self, run_id: str) -> None:
        messages = self._book.run(run_id)
        await self._read(run_id, messages.unread() - 1 if messages is not None else 0)

    async def _all(self, run_ids: tuple[str, ...]) -> None:
        for place, run_id in enumerate(run_ids):
            messages = self._book.run(run_id)
            if place and messages is None:
                continue  # an agent of another kind
            after = messages.unread() - 1 if messages is not None else 0
            while (last := await self._read(run_id, after)) > after:
                after = last
                await asyncio.sleep(0)

    async def _read(self, run_id: str, after: int) -> int:
        messages = self._book.run(run_id)
        return await self._book.read(run_id, messages.agent if messages is not None else "", after)
