"""A log file as it grows: followed, indexed from its end, searched; all off the loop that draws."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

from .index import Index, LogFile, Scan, lines_before, scan
from .query import AllRows, Query, Rows, Search, find

POLL: Final = 0.25
"""Seconds between two looks at a file that does not grow."""
PUBLISH_EVERY: Final = 0.1
MAX_LINES: Final = 2_000_000
"""Lines that are indexed at most; older ones are left out."""
TAIL: Final = 256 * 1024
SLICE: Final = 1024 * 1024
_UNFINISHED: Final = 1024 * 1024
_FILES: Final = 2


class LogSource:
    """The lines of the log at ``path``, found by ``follow``, which runs while somebody looks.

    ``rows`` are those that the query wants; ``changed`` is called when they were replaced, at most ten
    times a second, on the loop of ``follow``. After rotation the older file stays readable until the
    next rotation; a truncated file begins anew.
    """

    def __init__(
        self, path: Path, changed: Callable[[], None] = lambda: None, *, slice_size: int = SLICE
    ) -> None:
        self.path = path
        self.changed = changed
        self.query = Query()
        self.rows: Rows = AllRows(0, 0)
        self.index = Index()
        self._search: Search | None = None
        self._slice = slice_size
        self._files: list[LogFile] = []
        self._head = 0  # what stands before that offset of the oldest file is not indexed yet
        self._state = (0, 0)
        self._open = False  # the last line has no newline yet
        self._wake = asyncio.Event()
        self._due = False
        self._published = 0.0

    @property
    def exists(self) -> bool:
        """Whether there is, or was, such a file."""
        return bool(self._files)

    @property
    def busy(self) -> str:
        """What is still going on, in words, empty when all is found."""
        if self._search is not None and not self._search.done:
            return f"searching {100 * self._search.searched // len(self.index)}%"
        if self._backfilling:
            return "reading older lines"
        return ""

    def ask(self, query: Query) -> None:
        """Want other lines from now on; what is found comes by ``changed``."""
        if query != self.query:
            self.query = query
            self._search = Search(query, self.index) if query else None
            self._publish()
            self._wake.set()

    def read(self, number: int, limit: int) -> tuple[bytes, int]:
        """The first ``limit`` bytes of a line, and how many it has; nothing when it is gone."""
        return self.index.read(number, limit)

    async def follow(self) -> None:
        """Index, search and follow until cancelled; can be called again and goes on where it was."""
        while True:
            worked = await self._grow()
            worked = await self._backfill() or worked
            worked = await self._look() or worked
            if self._due and (not worked or monotonic() - self._published >= PUBLISH_EVERY):
                self._publish()
            if not worked:
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL):
                        await self._wake.wait()
                self._wake.clear()

    def close(self) -> None:
        """Close the files; nothing can be read after that."""
        for file in self._files:
            file.close()

    # One step of each kind of work; each returns whether there may be more to do at once.

    async def _grow(self) -> bool:
        """Take in what was written since; go over to the new file when the log was rotated."""
        if not self._files:
            return await self._begin()
        file = self._files[-1]
        end, state = self._end_of(file), file.state
        size = state[0]
        if state == self._state and size == end:
            return self._rotate(file)
        if file.was_rewritten() or size < end:
            self._start_over()
        elif size > end:
            await self._read_on(file, end, size)
        self._state = state
        return True

    async def _begin(self) -> bool:
        """Open the log and show its end."""
        file = LogFile.open(self.path)
        if file is None:
            return False
        try:
            start, data = await asyncio.to_thread(lines_before, file, file.state[0], TAIL)
            found = await asyncio.to_thread(scan, data, start)
        except BaseException:
            file.close()
            raise
        # Together, and after the last wait: a follow that was cancelled in between begins anew.
        self._files, self._head = [file], start
        self._append(file, found)
        self._publish()
        return True

    async def _read_on(self, file: LogFile, end: int, size: int) -> None:
        again = self._open and self.index.blocks and self.index.blocks[-1].file is file
        start = self.index.blocks[-1].starts[-1] if again else end
        if end - start > _UNFINISHED:
            again, start = False, end
        found = await asyncio.to_thread(_scan_file, file, start, min(size, end + self._slice))
        if again:
            self.index.take_back()
            if self._search is not None:
                self._search.adjust()
        self._append(file, found)
        if again:  # a published row was taken away: replace it before anything is drawn
            self._publish()

    def _append(self, file: LogFile, found: Scan) -> None:
        self.index.append(file, found)
        self._open = found.open
        if self.index.trim(MAX_LINES):
            self._head = 0
            self._adjusted()
        self._due = True

    def _rotate(self, file: LogFile) -> bool:
        """The path may have become another file: go on there."""
        try:
            status = self.path.stat()
        except OSError:
            return False
        if (status.st_dev, status.st_ino) == file.identity or (new := LogFile.open(self.path)) is None:
            return False
        self._files.append(new)
        self._open = False
        while len(self._files) > _FILES:
            oldest = self._files.pop(0)
            if any(block.file is oldest for block in self.index.blocks):
                self.index.drop(oldest)
                self._head = 0
                self._adjusted()
            oldest.close()
        return True

    def _start_over(self) -> None:
        """The file was truncated: nothing that was known of it is true."""
        file = self._files.pop()
        for each in self._files:
            each.close()
        self._files = [file]
        self.index.clear()
        self._head, self._open = 0, False
        self._adjusted()

    async def _backfill(self) -> bool:
        """Index some of what stands before the lines that are known."""
        if not self._backfilling:
            return False
        file, end = self.index.blocks[0].file, self._head
        start, data = await asyncio.to_thread(lines_before, file, end, self._slice)
        found = await asyncio.to_thread(scan, data, start)
        if self._head == end and self.index.blocks and self.index.blocks[0].file is file:
            self.index.prepend(file, found)
            self._head = start
            self._due = True
        return True

    @property
    def _backfilling(self) -> bool:
        return self._head > 0 and bool(self.index.blocks) and len(self.index) < MAX_LINES

    async def _look(self) -> bool:
        """Search some lines."""
        search = self._search
        if search is None or (part := search.next()) is None:
            return False
        search.take(part, await asyncio.to_thread(find, part, search.query))
        self._due = True
        return True

    def _end_of(self, file: LogFile) -> int:
        last = self.index.blocks[-1] if self.index.blocks else None
        return last.end if last is not None and last.file is file else 0

    def _adjusted(self) -> None:
        """Lines that were published are gone: say so before anything is drawn."""
        if self._search is not None:
            self._search.adjust()
        self._publish()

    def _publish(self) -> None:
        self._due, self._published = False, monotonic()
        search = self._search
        self.rows = search.rows() if search is not None else AllRows(self.index.first, self.index.stop)
        self.changed()


def _scan_file(file: LogFile, start: int, end: int) -> Scan:
    return scan(file.read(start, end), start)
