"""The state of changed files: edited or only touched, complete or still being written, and by what."""

import asyncio
import hashlib
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from time import monotonic
from typing import Final

from pallas.config.envfile import ENV_FILE

from .watched_folders import changed_at

# Reloads in a row that may each write the file that brings about the next one.
MAX_IN_A_ROW: Final = 10
# How far a file's time may lie behind the clock, in seconds.
_TICK: Final = 0.01

# Seconds that a file may be missing or empty before that is taken as intended.
UNFINISHED: Final = 0.25
# With so many changed files at once, a tool is checking out another state of the project.
_MANY: Final = 20
# Seconds without another change that are waited for then, and how long at most.
_CALM: Final = 0.15
_MOST: Final = 5.0
_LOOK: Final = 0.02

_MAX_SEARCHED: Final = 1 << 20

# Larger ones are compared by size and time alone.
_MAX_BYTES: Final = 8 * 1024 * 1024


class SelfWrites:
    """Counts how often a file was written while what it concerns was being reloaded because of it."""

    def __init__(self) -> None:
        self._span = (0.0, 0.0)
        self._counts: dict[Path, int] = {}

    def finish(self, began: float, ended: float) -> None:
        """A reload was under way in that time (Unix seconds)."""
        self._span = (began, ended)

    @property
    def left(self) -> frozenset[Path]:
        """The files that are left alone."""
        return frozenset(path for path, count in self._counts.items() if count >= MAX_IN_A_ROW)

    def among(self, paths: Iterable[Path]) -> frozenset[Path]:
        """Return the changed files to leave alone until another program writes them. Blocks."""
        began, ended = self._span
        self._counts = {
            path: self._counts.get(path, 0) + 1 for path in paths if began <= _written(path) < ended - _TICK
        }
        return self.left


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return -1.0


async def until_quiet(root: Path, count: Callable[[], int], paths: Callable[[], Collection[Path]]) -> None:
    """Wait until no version control system and no editor seems to be in the middle of writing.

    ``paths`` are those that changed so far, ``count`` how many.
    """
    lock = _lock(root)
    began = calm = monotonic()
    known = count()
    while (now := monotonic()) - began < _MOST:
        if count() != known:
            known, calm = count(), now
        busy = lock is not None and lock.exists()
        done = not busy and (known < _MANY or now - calm >= _CALM)
        if done and (now - began >= UNFINISHED or not any(map(_is_unfinished, list(paths())[:_MANY]))):
            return
        await asyncio.sleep(_LOOK)


def _is_unfinished(path: Path) -> bool:
    """Whether a file is not there, or holds nothing, as in the middle of being replaced."""
    try:
        return path.stat().st_size == 0 and path.name != "__init__.py"
    except OSError:
        return True


def _lock(root: Path) -> Path | None:
    """What git holds while it writes files, of the project or a folder above it."""
    for folder in (root, *root.parents):
        if (folder / ".git").is_dir():
            return folder / ".git" / "index.lock"
    return None


class WordSearch:
    """Whether files hold words; each is read once, its first MiB."""

    def __init__(self) -> None:
        self._texts: dict[Path, str] = {}

    def __call__(self, path: Path, word: str) -> bool:
        if path.name == ENV_FILE:
            return False
        if path not in self._texts:
            try:
                with path.open("rb") as file:
                    self._texts[path] = file.read(_MAX_SEARCHED).decode("utf-8", "replace")
            except OSError:
                self._texts[path] = ""
        return word in self._texts[path]


class FileFingerprints:
    """Remembers files by their contents. Every method blocks; one at a time."""

    def __init__(self) -> None:
        self._marks: dict[Path, bytes] = {}

    def different(self, paths: Iterable[Path]) -> frozenset[Path]:
        """Those that do not hold what they held, and those of which nothing is known."""
        return frozenset(path for path in paths if self._marks.get(path) != _mark(path))

    def note(self, paths: Iterable[Path]) -> None:
        """Remember the contents of these files as those that are acted on."""
        for path in paths:
            self._marks[path] = _mark(path)

    def note_new(self, paths: Iterable[Path], since: float) -> frozenset[Path]:
        """Remember files that are not known yet, unless they changed after ``since`` (Unix seconds).

        Those were read at an unknown moment; they are returned.
        """
        later = set()
        for path in paths:
            if path in self._marks:
                continue
            mark = _mark(path)
            # Asked last: a text written between the two is not taken for the one that was read.
            if changed_at(path) < since:
                self._marks[path] = mark
            else:
                later.add(path)
        return frozenset(later)

    def store(self, paths: frozenset[Path]) -> None:
        """Forget all others."""
        self._marks = {path: mark for path, mark in self._marks.items() if path in paths}


def _mark(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size > _MAX_BYTES:
                return f"{status.st_size} {status.st_mtime_ns}".encode()
            return hashlib.blake2b(file.read(_MAX_BYTES), digest_size=16).digest()
    except OSError as error:
        return type(error).__name__.encode()
