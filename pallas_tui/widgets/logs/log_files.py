"""The files of one log: the one that is written, and the older ones that rotation has left beside it."""

from pathlib import Path
from typing import Final

from .log_index import OpenLogFile

MOST: Final = 16
"""Rotated files that are looked for: ``name.1`` to ``name.16``."""

Identity = tuple[int, int]


def paths_of(path: Path) -> list[Path]:
    """The log and where its older files are looked for, newest first."""
    return [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, MOST + 1))]


def identity_at(path: Path) -> Identity | None:
    """Which file is at ``path`` now, None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def newer(path: Path, newest: OpenLogFile) -> OpenLogFile | None:
    """The file that was written next after ``newest``, opened; None where there is none.

    Where ``newest`` is no longer on disk that is the oldest one that was written later.
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
    """The file that was written before ``oldest``, opened; None where there is none any more."""
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
    """All files there are, newest first.

    Rotation moves files the way that is gone here: one that moves meanwhile is met twice, never missed.
    """
    family: dict[Identity, OpenLogFile] = {}
    for each in paths_of(path):
        if (file := OpenLogFile.open(each)) is None:
            continue
        # Met twice: its later place is the true one.
        if (before := family.pop(file.identity, None)) is not None:
            before.close()
        family[file.identity] = file
    return list(family.values())
