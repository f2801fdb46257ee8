"""What files held when they were last acted on, to tell an edit from a file that was only touched."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from .folders import changed_at

# Larger ones are told apart by size and time alone.
_MAX_BYTES: Final = 8 * 1024 * 1024


class Contents:
    """Remembers files by their contents. Every method blocks; one at a time."""

    def __init__(self) -> None:
        self._marks: dict[Path, bytes] = {}

    def different(self, paths: Iterable[Path]) -> frozenset[Path]:
        """Those that do not hold what they held, and those of which nothing is known."""
        return frozenset(path for path in paths if self._marks.get(path) != _mark(path))

    def note(self, paths: Iterable[Path]) -> None:
        """What they hold now is what is acted on."""
        for path in paths:
            self._marks[path] = _mark(path)

    def note_new(self, paths: Iterable[Path], since: float) -> frozenset[Path]:
        """The same for files of which nothing is known, unless they changed after ``since`` (Unix seconds).

        Those were read at some time between, and nobody can say what they held then; they are given back.
        """
        later = set()
        for path in paths:
            if path in self._marks:
                continue
            mark = _mark(path)
            # Asked last: what is written between the two is not taken for what was read.
            if changed_at(path) < since:
                self._marks[path] = mark
            else:
                later.add(path)
        return frozenset(later)

    def keep(self, paths: frozenset[Path]) -> None:
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
