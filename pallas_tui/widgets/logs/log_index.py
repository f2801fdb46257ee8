"""An index of the lines of a log file and their levels; the file itself is not held in memory."""

import json
import os
import re
from array import array
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate, compress
from pathlib import Path
from typing import Final, Self

LEVELS: Final = ("", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
"""Names by their number; 0 is a line without a level."""
DEBUG, INFO, WARNING, ERROR = 1, 2, 3, 4

_BY_LETTER: Final = {
    ord(letter): number
    for number, letters in enumerate(("", "dt", "in", "w", "e", "cf"))
    for letter in letters
}
_LEVEL: Final = re.compile(rb'"level"\s*:\s*"([A-Za-z])')
_SAMPLE: Final = 8
_ELSEWHERE: Final = 255
# A line that never ends is cut there, so that the same megabytes are not read again and again.
_LONGEST: Final = 32 * 1024 * 1024
_BLOCK_LINES: Final = 8_192
_HEAD: Final = 128


class OpenLogFile:
    """An open log file, read with ``pread``: a truncated file returns fewer bytes, never an error.

    It stays readable after it was renamed or deleted, until ``close``.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        status = os.fstat(fd)
        self.identity = (status.st_dev, status.st_ino)
        self._head = self.read(0, _HEAD)

    @classmethod
    def open(cls, path: Path) -> Self | None:
        """Open the file at ``path``; return None when no file can be read there."""
        try:
            return cls(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        except OSError:
            return None

    @property
    def state(self) -> tuple[int, int]:
        """Its size now, and its time of change: another pair means that it changed."""
        try:
            status = os.fstat(self._fd)
        except OSError:
            return 0, 0
        return status.st_size, status.st_mtime_ns

    def read(self, start: int, end: int) -> bytes:
        """Return bytes ``start`` to ``end``, fewer where the file ends before. Blocks on the disk."""
        parts = []
        try:
            while start < end and (part := os.pread(self._fd, end - start, start)):
                parts.append(part)
                start += len(part)
        except OSError:  # closed, or a disk error: there is nothing to show
            pass
        return b"".join(parts)

    def was_rewritten(self) -> bool:
        """Return whether the beginning changed: another program truncated the file and wrote again."""
        before, self._head = self._head, self.read(0, _HEAD)
        return not self._head.startswith(before)

    def close(self) -> None:
        """Close the file; safe to call twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


@dataclass(frozen=True, slots=True)
class Scan:
    """The lines found in some bytes: where each starts, its level, and where the last one ends.

    ``open`` says that the last line has no newline yet.
    """

    starts: array[int]
    levels: bytearray
    end: int
    open: bool


def scan(data: bytes, base: int) -> Scan:
    """Find the lines in ``data``, which begins with a line, at offset ``base`` of its file.

    Empty lines are left out.
    """
    lines = data.split(b"\n")
    unfinished = bool(lines[-1])
    # Each line is one longer than the text between the newlines.
    starts = array("Q", accumulate(map(len, lines), lambda at, length: at + length + 1, initial=base))
    starts.pop()
    if b"" in lines:
        non_empty = [bool(line) for line in lines]
        starts, lines = array("Q", compress(starts, non_empty)), [line for line in lines if line]
    return Scan(starts, _levels(lines), base + len(data), unfinished)


def _levels(lines: list[bytes]) -> bytearray:
    """Return the level of each line: its own, not one within a value.

    The lines of one program have it all at the same place: that place is tried first.
    """
    found = next((mark for line in lines[:_SAMPLE] if (mark := _plain_mark(line))), None)
    if found is None:
        return bytearray(map(_level_of, lines))
    at = slice(found.start(), found.end())
    marks = [line[at] for line in lines]
    known = {mark: _level_of(mark) if _LEVEL.fullmatch(mark) else _ELSEWHERE for mark in set(marks)}
    levels = bytearray(map(known.__getitem__, marks))
    number = -1
    while (number := levels.find(_ELSEWHERE, number + 1)) >= 0:
        levels[number] = _level_of(lines[number])
    return levels


def _plain_mark(line: bytes) -> re.Match[bytes] | None:
    """Return where a line has its level; None if that may be the level of a value within it."""
    mark = _LEVEL.search(line)
    return mark if mark and line.count(b"{", 0, mark.start()) < 2 else None


def _level_of(line: bytes) -> int:
    mark = _LEVEL.search(line)
    if not mark:
        return 0
    if line.count(b"{", 0, mark.start()) < 2:
        return _BY_LETTER.get(mark[1][0] | 0x20, 0)
    try:
        level = json.loads(line)["level"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return 0
    return _BY_LETTER.get(ord(level[0].lower()), 0) if isinstance(level, str) and level else 0


def lines_before(file: OpenLogFile, end: int, size: int) -> tuple[int, bytes]:
    """Return about ``size`` bytes of whole lines that end at ``end``: their offset and bytes."""
    start = max(0, end - size)
    while True:
        data = file.read(start, end)
        if start == 0:
            return 0, data
        cut = data.find(b"\n") + 1
        if 0 < cut < len(data):
            return start + cut, data[cut:]
        if end - start >= _LONGEST:
            return start, data
        start = max(0, end - 4 * (end - start))


@dataclass(frozen=True, slots=True)
class Part:
    """Some lines of a block, for a thread to read while the block grows."""

    file: OpenLogFile
    low: int
    high: int
    starts: array[int]
    levels: bytes
    end: int


@dataclass(slots=True, eq=False)
class LineBlock:
    """Consecutive lines. ``first`` is the number of the first, ``end`` the offset after the last."""

    file: OpenLogFile
    first: int
    starts: array[int]
    levels: bytearray
    end: int

    @property
    def stop(self) -> int:
        """The number after that of the last line."""
        return self.first + len(self.starts)

    def part(self, low: int, high: int) -> "Part":
        """Return a copy of the index of the lines from ``low`` up to ``high``."""
        at, to = low - self.first, high - self.first
        end = self.bounds(high - 1)[1]
        return Part(self.file, low, high, self.starts[at:to], bytes(self.levels[at:to]), end)

    def bounds(self, number: int) -> tuple[int, int]:
        """Return where line ``number`` starts and ends, its newline included."""
        at = number - self.first
        return self.starts[at], self.starts[at + 1] if at + 1 < len(self.starts) else self.end


class Index:
    """All known lines, numbered: a line keeps its number also when older ones are found before it.

    ``epoch`` changes when numbers were removed and may be used again.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.blocks: list[LineBlock] = []
        self.first = 0
        self.stop = 0

    def __len__(self) -> int:
        return self.stop - self.first

    def block(self, number: int) -> LineBlock | None:
        """Return the block that has the line; None where it is not, or no longer, known."""
        if not self.first <= number < self.stop:
            return None
        return self.blocks[bisect_right(self.blocks, number, key=lambda block: block.first) - 1]

    def read(self, number: int, limit: int) -> tuple[bytes, int]:
        """Return the first ``limit`` bytes of a line without its newline, and how many it has in all."""
        block = self.block(number)
        if block is None:
            return b"", 0
        start, end = block.bounds(number)
        return block.file.read(start, min(end, start + limit)).rstrip(b"\r\n"), end - start

    def prepend(self, file: OpenLogFile, found: Scan) -> None:
        """Add older lines, which end where the first known one starts."""
        if found.starts:
            self.first -= len(found.starts)
            self.blocks.insert(0, LineBlock(file, self.first, found.starts, found.levels, found.end))

    def append(self, file: OpenLogFile, found: Scan) -> None:
        """Add newer lines."""
        last = self.blocks[-1] if self.blocks else None
        if last is not None and last.file is file and len(last.starts) + len(found.starts) <= _BLOCK_LINES:
            last.starts.extend(found.starts)
            last.levels.extend(found.levels)
            last.end = found.end
        elif found.starts:
            self.blocks.append(LineBlock(file, self.stop, found.starts, found.levels, found.end))
        self.stop += len(found.starts)

    def take_back(self) -> int:
        """Remove the last line, which had no newline yet; return where it starts."""
        block = self.blocks[-1]
        block.levels.pop()
        start = block.end = block.starts.pop()
        self.stop -= 1
        if not block.starts:
            self.blocks.pop()
        return start

    def trim(self, most: int) -> bool:
        """Remove the oldest blocks while there are more than ``most`` lines; return whether any went."""
        before = self.first
        while len(self) > most and len(self.blocks) > 1:
            self.blocks.pop(0)
            self.first = self.blocks[0].first
        return self.first != before

    def drop(self, file: OpenLogFile) -> None:
        """Remove all lines up to the last one of a file, which has the oldest ones."""
        while any(block.file is file for block in self.blocks):
            self.blocks.pop(0)
        self.first = self.blocks[0].first if self.blocks else self.stop

    def cut(self, file: OpenLogFile) -> None:
        """Remove all lines from the first one of a file on, which has the newest ones."""
        self.epoch += 1
        while any(block.file is file for block in self.blocks):
            self.stop = self.blocks.pop().first
