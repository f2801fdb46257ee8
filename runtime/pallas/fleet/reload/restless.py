"""Files that an agent's own code writes whenever it is loaded: each reload would ask for the next one."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

# Reloads in a row that may each write the file that brings about the next one.
MAX_IN_A_ROW: Final = 10
# How far a file's time may lie behind the clock, in seconds.
_TICK: Final = 0.01


class Restless:
    """Counts how often a file was written while what it concerns was being reloaded because of it."""

    def __init__(self) -> None:
        self._span = (0.0, 0.0)
        self._counts: dict[Path, int] = {}

    def over(self, began: float, ended: float) -> None:
        """A reload was under way in that time (Unix seconds)."""
        self._span = (began, ended)

    def among(self, paths: Iterable[Path]) -> frozenset[Path]:
        """Those of the changed files that are to be left alone until somebody else writes them. Blocks."""
        began, ended = self._span
        self._counts = {
            path: self._counts.get(path, 0) + 1 for path in paths if began <= _written(path) < ended - _TICK
        }
        return frozenset(path for path, count in self._counts.items() if count >= MAX_IN_A_ROW)


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return -1.0
