"""Which folders of a project are watched, and which file names are ignored."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from pallas.config.envfile import ENV_FILE

# If there are more, that is reported and the rest is not watched.
MAX_FOLDERS: Final = 4_000
_MOST_IN_TREE: Final = 500
_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})
# Files that editors, compilers and programs leave in a user's folders.
_LEFT: Final = ("~", ".swp", ".swo", ".swx", ".tmp", ".bak", ".orig", ".pyc", ".log")
_TESTS: Final = Path("tests") / "agents"
_DATABASE: Final = (".sqlite", ".sqlite3", ".db", "-journal", "-wal", "-shm")


def is_skipped(folder: Path) -> bool:
    """Return whether the folder is hidden, or holds compiled code or installed packages."""
    name = folder.name
    return name.startswith(".") or name in _SKIPPED or (folder / "pyvenv.cfg").exists()


def may_matter(path: Path, root: Path) -> bool:
    """Return whether a person could have written a file of that name. Used where the project says nothing."""
    if not path.is_relative_to(root):
        return False
    parts = path.relative_to(root).parts
    name = parts[-1] if parts else ""
    if name in _SKIPPED or name.endswith((*_LEFT, *_DATABASE)) or name.startswith(("#", "4913")):
        return False
    hidden = any(part.startswith(".") or part in _SKIPPED for part in parts[:-1])
    return not hidden and (not name.startswith(".") or name == ENV_FILE)


def folders_of(
    root: Path, others: Iterable[Path] = (), trees: Iterable[Path] = ()
) -> tuple[frozenset[str], bool]:
    """Return the folders to look at, and whether there are more than that. Blocks.

    ``others`` are folders outside ``root``, or hidden ones; of ``trees`` the folders in them count, too.
    Folders that do not exist are left out.
    """
    found = {str(each) for each in others if each.is_dir()}
    for tree in trees:
        with suppress(OSError):
            found |= {str(each) for each in sorted(tree.iterdir())[:_MOST_IN_TREE] if each.is_dir()}
    for folder, below, _ in root.walk():
        found.add(str(folder))
        if len(found) >= MAX_FOLDERS:
            return frozenset(found), True
        below[:] = [name for name in below if not is_skipped(folder / name)]
    return frozenset(found), False


def stamps(folders: Iterable[str]) -> dict[str, tuple[int, int, int]]:
    """Every file in these folders with what changes when it is written. Blocks."""
    return {path: (status.st_ino, status.st_size, status.st_mtime_ns) for path, status in _entries(folders)}


def changed_since(folders: Iterable[str], since: float) -> frozenset[Path]:
    """The existing files that were put or written there after ``since`` (Unix seconds). Blocks."""
    return frozenset(Path(path) for path, status in _entries(folders) if status.st_ctime >= since)


def changed_at(path: Path) -> float:
    """When a file was written or put there (Unix seconds), for any date; 0 without one. Blocks."""
    try:
        return path.stat().st_ctime
    except OSError:
        return 0.0


def _entries(folders: Iterable[str]) -> Iterator[tuple[str, os.stat_result]]:
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:  # it may have just gone, or not be read
            for entry in entries:
                with suppress(OSError):  # also a link to nothing, as an editor's lock
                    yield entry.path, entry.stat()


def is_of_tests(path: Path, root: Path) -> bool:
    """Whether a path is of a test or its recording, and not what a test may write."""
    return (
        path.is_relative_to(root / _TESTS) and path.suffix in (".yaml", ".jsonl") and may_matter(path, root)
    )
