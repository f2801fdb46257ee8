"""Recordings that were read already: a fork has those that its parent read."""

from pathlib import Path
from typing import Final

from pallas.model import Recording
from pallas.recordings.recording_folder import read

MAX_CACHED: Final = 300
"""Recordings that are remembered."""

type _Mark = tuple[tuple[str, int, int], ...]
_read: Final[dict[Path, tuple[_Mark, Recording]]] = {}


def read_cached(path: Path) -> Recording:
    """The recording in a folder or an archive, as it is now. Raises BadRecording, OSError. Blocks."""
    mark = _mark(path)
    known = _read.pop(path, None)
    recording = known[1] if known is not None and known[0] == mark else read(path)
    _read[path] = mark, recording
    if len(_read) > MAX_CACHED:
        del _read[next(iter(_read))]
    return recording


def cached_paths() -> tuple[str, ...]:
    """What is remembered."""
    return tuple(map(str, _read))


def _mark(path: Path) -> _Mark:
    files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    status = [(each, each.stat()) for each in files]
    return tuple((str(each), found.st_mtime_ns, found.st_size) for each, found in status)
