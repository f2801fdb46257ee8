"""Read ranges of the fleet's log and its rotated files, and of no other file."""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAX_RANGE: Final = 1024 * 1024
"""Bytes of one answer."""
_BACKUPS: Final = 20
_ID: Final = re.compile(r"[0-9a-f]{1,16}-[0-9a-f]{1,16}")


@dataclass(frozen=True, slots=True)
class LogPart:
    """One file of the log: ``id`` stays the same while it is renamed, ``size`` is its bytes now."""

    id: str
    size: int


@dataclass(frozen=True, slots=True)
class LogBytes:
    """Some bytes of one file from ``offset`` on, its size now, and the file that was begun after it.

    ``size`` below ``offset``: the file was truncated. ``newer`` is empty for the file that is written now.
    """

    id: str
    offset: int
    size: int
    newer: str
    data: bytes


class LogFiles:
    """Reads the log at ``path`` and the files that rotation made of it. Blocks as a disk does."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def parts(self) -> tuple[LogPart, ...]:
        """Every file there is, the one that is written now first."""
        return tuple(LogPart(_id(state), state.st_size) for _, state in self._files())

    def read(self, part: str, offset: int, limit: int) -> LogBytes | None:
        """At most ``limit`` bytes of a file; None when there is no such file (any more)."""
        if not _ID.fullmatch(part):
            return None
        newer = ""
        for path, state in self._files():
            if _id(state) == part:
                return _bytes(path, part, offset, min(limit, MAX_RANGE), newer)
            newer = _id(state)
        return None

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        suffixes = ("", *(f".{number}" for number in range(1, _BACKUPS + 1)))
        for suffix in suffixes:
            path = self._path.with_name(self._path.name + suffix)
            with suppress(OSError):
                state = path.stat()
                if stat.S_ISREG(state.st_mode):
                    yield path, state


def _bytes(path: Path, part: str, offset: int, limit: int, newer: str) -> LogBytes | None:
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            state = os.fstat(descriptor)
            if _id(state) == part:  # it may have been rotated just now
                data = os.pread(descriptor, max(0, min(limit, state.st_size - offset)), offset)
                return LogBytes(part, offset, state.st_size, newer, data)
        finally:
            os.close(descriptor)
    return None


def _id(state: os.stat_result) -> str:
    return f"{state.st_dev:x}-{state.st_ino:x}"
