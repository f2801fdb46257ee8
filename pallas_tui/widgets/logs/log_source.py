"""A log that is followed over rotation, indexed from its end and searched; all off the loop that draws."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final

from ...text import count
from .log_index import Index, OpenLogFile, Scan, lines_before, scan
from .log_query import AllRows, FoundRows, LogQuery, Rows, Search, find_in

MOST: Final = 16
"""Rotated files that are looked for: ``name.1`` to ``name.16``."""

Identity = tuple[int, int]

POLL: Final = 0.25
"""Seconds between two looks at a file that does not grow."""
PUBLISH_EVERY: Final = 0.1
MAX_LINES: Final = 2_000_000
"""Lines that are indexed at most; older ones are left out."""
MAX_FILES: Final = 16
"""Files that are held open at most; the oldest are closed first, and their lines removed."""
TAIL: Final = 256 * 1024
SLICE: Final = 1024 * 1024
_UNFINISHED: Final = 1024 * 1024
_SLICES: Final = 16


class LogSource:
    """The lines of the log at ``path``, found by ``follow``, which runs while the user looks.

    ``rows`` are the lines that match the query, ``found`` those of them that ``find`` searches for;
    ``changed`` is called when they were replaced, at most ten times a second, on the loop of ``follow``. The
    rotated files of the log are its history. Lines stay readable after rotation; a truncated file begins
    again.
    """

    def __init__(
        self, path: Path, changed: Callable[[], None] = lambda: None, *, slice_size: int = SLICE
    ) -> None:
        self.path = path
        self.changed = changed
        self.query = LogQuery()
        self.sought = LogQuery()
        self.rows: Rows = AllRows(0, 0)
        self.found: FoundRows | None = None
        self.index = Index()
        self._search: Search | None = None
        self._finding: Search | None = None
        self._slice = slice_size
        self._files: list[OpenLogFile] = []
        self._ends: dict[OpenLogFile, int] = {}
        self._states: dict[OpenLogFile, tuple[int, int]] = {}
        self._head = 0  # text before that offset of the oldest file is not indexed yet
        self._complete = False  # there is no file older than the oldest one
        self._beside: Identity | None = None
        self._open = False  # the last line of the newest file has no newline yet
        self._wake = asyncio.Event()
        self._due = False
        self._published = 0.0

    @property
    def exists(self) -> bool:
        """Whether there is, or was, such a file."""
        return bool(self._files)

    @property
    def busy(self) -> str:
        """The work in progress, in words; empty when all is found."""
        for word, search in (("searching", self._search), ("finding", self._finding)):
            if search is not None and not search.done:
                return f"{word} {100 * search.searched // len(self.index)}%"
        return "reading older lines" if self._backfilling else ""

    @property
    def trouble(self) -> str:
        """The error of a search, in words."""
        return next((search.trouble for search in self._searches() if search.trouble), "")

    @property
    def slowness(self) -> str:
        """How many lines a regex was given up on, in words."""
        slow = sum(search.slow for search in self._searches())
        return f"{count(slow, 'line')} took too long" if slow and not self.trouble else ""

    @property
    def paths(self) -> list[Path]:
        """Return the paths that the log's files may have."""
        return paths_of(self.path)

    def is_searched_from(self, number: int) -> bool:
        """Return whether ``found`` is complete from that line to the end."""
        return self._finding is None or self._finding.done or self._finding.low <= number

    @property
    def finding(self) -> bool:
        """Whether ``find`` may still find matches in known lines."""
        return self._finding is not None and not self._finding.done

    def ask(self, query: LogQuery) -> None:
        """Replace the query; matches are published by ``changed``. The search for the query before ends."""
        if query != self.query:
            self.query = query
            self._search = Search(query, self.index) if query else None
            self._seek()
            self._publish()
            self._wake.set()

    def find(self, pattern: str) -> None:
        """Search the lines that match the query for a regex; the empty one ends that."""
        if pattern != self.sought.pattern:
            self.sought = LogQuery(pattern=pattern)
            self._seek()
            self._publish()
            self._wake.set()

    def read(self, number: int, limit: int) -> tuple[bytes, int]:
        """Return the first ``limit`` bytes of a line, and how many it has; nothing when it is gone."""
        return self.index.read(number, limit)

    async def follow(self) -> None:
        """Index, search and follow until cancelled; can be called again and goes on from there."""
        while True:
            worked = await self._grow()
            worked = await self._backfill() or worked
            worked = await self._look() or worked
            if self._due and (not worked or self._is_time):
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
        """Take in new lines; go on in the new file when the log was rotated."""
        if not self._files:
            return await self._begin()
        worked = False
        if len(self._files) > 1 and not self._open:
            worked = await self._grow_rotated(self._files[-2])
        return await self._grow_newest(self._files[-1]) or worked or self._rotate()

    async def _grow_newest(self, file: OpenLogFile) -> bool:
        end, state = self._ends[file], file.state
        size = state[0]
        if state == self._states.get(file) and size == end:
            return False
        if file.was_rewritten() or size < end:
            self._start_over(file)
        elif size > end:
            await self._read_on(file, end, size)
        self._states[file] = state
        return True

    async def _grow_rotated(self, file: OpenLogFile) -> bool:
        """Take in lines that another process wrote to a file after its rotation: its last record or two."""
        end, (size, _) = self._ends[file], file.state
        if size <= end:
            return False
        data = await asyncio.to_thread(file.read, end, min(size, end + self._slice))
        found = scan(data[: data.rfind(b"\n") + 1], end)
        if found.end == end:
            return False
        self.index.append(file, found)
        self._ends[file] = found.end
        self._due = True
        return True

    async def _begin(self) -> bool:
        """Open the log and show its end."""
        file = OpenLogFile.open(self.path)
        if file is None:
            return False
        try:
            start, data = await asyncio.to_thread(lines_before, file, file.state[0], TAIL)
            found = await asyncio.to_thread(scan, data, start)
        except BaseException:
            file.close()
            raise
        # Together, and after the last wait: if follow is cancelled in between, the next one begins again.
        self._files, self._head = [file], start
        self._append(file, found)
        self._publish()
        return True

    async def _read_on(self, file: OpenLogFile, end: int, size: int) -> None:
        again = self._open and self.index.blocks and self.index.blocks[-1].file is file
        start = self.index.blocks[-1].starts[-1] if again else end
        if end - start > _UNFINISHED:
            again, start = False, end
        found = await asyncio.to_thread(_scan_file, file, start, min(size, end + self._slice))
        if again:
            self.index.take_back()
            for search in self._searches():
                search.adjust()
        self._append(file, found)
        if again:  # a published row was removed: replace it before anything is drawn
            self._publish()

    def _append(self, file: OpenLogFile, found: Scan) -> None:
        self.index.append(file, found)
        self._ends[file], self._open = found.end, found.open
        if self.index.trim(MAX_LINES):
            self._head, self._complete = 0, True
            self._adjusted()
        self._due = True

    def _rotate(self) -> bool:
        """Go on in the next file if the path has become another file.

        One after the other: several may have been added since, and each is read to its end first.
        """
        there = identity_at(self.path)
        if there is None or there == self._files[-1].identity:
            return self._look_before()
        if (file := newer(self.path, self._files[-1])) is None:
            return False
        self._files.append(file)
        self._ends[file], self._open = 0, False
        while len(self._files) > MAX_FILES:
            self._let_go(self._files.pop(0))
        return True

    def _look_before(self) -> bool:
        """Look for an older file, which may come later: a remote fleet sends newest lines first."""
        if not self._complete or len(self._files) > 1:
            return False
        beside = identity_at(paths_of(self.path)[1])
        if beside is None or beside == self._beside:
            return False
        self._beside, self._complete = beside, False
        return True

    def _let_go(self, oldest: OpenLogFile) -> None:
        if any(block.file is oldest for block in self.index.blocks):
            self.index.drop(oldest)
            self._adjusted()
        self._head, self._complete = 0, True
        self._ends.pop(oldest, None)
        self._states.pop(oldest, None)
        oldest.close()

    def _start_over(self, file: OpenLogFile) -> None:
        """Forget all lines: the file was truncated."""
        self.index.cut(file)
        self._ends[file], self._open = 0, False
        if file is self._files[0]:
            self._head, self._complete = 0, False
        self._adjusted()

    async def _backfill(self) -> bool:
        """Index some of the lines before the known ones."""
        if not self._backfilling:
            return False
        file, end = self._files[0], self._head
        if end == 0:
            return self._go_back(file)
        slices = await asyncio.to_thread(_slices_before, file, end, self._slice)
        for start, found in slices:
            if self._head == end and self._files[0] is file:
                self.index.prepend(file, found)
                self._head = end = start
        self._due = True
        return True

    def _go_back(self, file: OpenLogFile) -> bool:
        """Open the file before the oldest one, which is completely indexed."""
        if (before := older(self.path, file)) is None:
            self._complete = self._due = True  # no line is new, but the state of reading changed
        else:
            self._files.insert(0, before)
            self._head = self._ends[before] = before.state[0]
        return True

    @property
    def _backfilling(self) -> bool:
        if not self._files or len(self.index) >= MAX_LINES:
            return False
        return self._head > 0 or (not self._complete and len(self._files) < MAX_FILES)

    async def _look(self) -> bool:
        """Search some lines, for the query first."""
        for search in self._searches():
            if not (parts := search.upcoming()):
                continue
            outcomes = await asyncio.to_thread(find_in, parts, search.query, partial(self._is_over, search))
            for part, outcome in zip(parts, outcomes, strict=False):
                search.take(part, outcome)
            self._due = True
            return True
        return False

    def _is_over(self, search: Search) -> bool:
        return search is not self._search and search is not self._finding

    def _searches(self) -> Iterator[Search]:
        if self._search is not None:
            yield self._search
        if self._finding is not None:
            yield self._finding

    def _seek(self) -> None:
        both = replace(self.query, pattern=self.sought.pattern)
        self._finding = Search(both, self.index) if self.sought else None

    def _adjusted(self) -> None:
        """Publish that lines are gone before anything is drawn."""
        for search in self._searches():
            search.adjust()
        self._publish()

    @property
    def _is_time(self) -> bool:
        """Return whether to publish during work: now and then, and the first match at once."""
        if monotonic() - self._published >= PUBLISH_EVERY:
            return True
        return self._search is not None and not len(self.rows) and len(self._search.rows()) > 0

    def _publish(self) -> None:
        self._due, self._published = False, monotonic()
        search = self._search
        self.rows = search.rows() if search is not None else AllRows(self.index.first, self.index.stop)
        self.found = self._finding.rows() if self._finding is not None else None
        self.changed()


def paths_of(path: Path) -> list[Path]:
    """Return the paths of the log and its older files, newest first."""
    return [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, MOST + 1))]


def identity_at(path: Path) -> Identity | None:
    """Return the identity of the file at ``path``, None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def newer(path: Path, newest: OpenLogFile) -> OpenLogFile | None:
    """Open the file that was written next after ``newest``; return None where there is none.

    If ``newest`` is no longer on disk, that is the oldest one that was written later.
    """
    family = _family(path)
    there = _place(family, newest)
    if there is not None:
        found = family[max(there - 1, 0) : there]
    else:
        last = newest.state[1]
        found = [file for place, file in enumerate(family) if place == 0 or file.state[1] > last][-1:]
    return _keep(family, found)


def older(path: Path, oldest: OpenLogFile) -> OpenLogFile | None:
    """Open the file that was written before ``oldest``; return None where there is none left."""
    family = _family(path)
    there = _place(family, oldest)
    return _keep(family, [] if there is None else family[there + 1 : there + 2])


def _place(family: list[OpenLogFile], wanted: OpenLogFile) -> int | None:
    return next((place for place, file in enumerate(family) if file.identity == wanted.identity), None)


def _keep(family: list[OpenLogFile], found: list[OpenLogFile]) -> OpenLogFile | None:
    for file in family:
        if file not in found:
            file.close()
    return found[0] if found else None


def _family(path: Path) -> list[OpenLogFile]:
    """Return all existing files, newest first.

    Rotation moves files in the same direction as this search: a file that moves during it may be found twice,
    but is never missed.
    """
    family: dict[Identity, OpenLogFile] = {}
    for each in paths_of(path):
        if (file := OpenLogFile.open(each)) is None:
            continue
        # Found twice: its later place is the true one.
        if (before := family.pop(file.identity, None)) is not None:
            before.close()
        family[file.identity] = file
    return list(family.values())


def _scan_file(file: OpenLogFile, start: int, end: int) -> Scan:
    return scan(file.read(start, end), start)


def _slices_before(file: OpenLogFile, end: int, size: int) -> list[tuple[int, Scan]]:
    """Return some slices of lines before ``end``, newest first."""
    slices: list[tuple[int, Scan]] = []
    while end > 0 and len(slices) < _SLICES:
        end, data = lines_before(file, end, size)
        slices.append((end, scan(data, end)))
    return slices
