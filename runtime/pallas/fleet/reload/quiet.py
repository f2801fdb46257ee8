"""Waiting a moment until files that are being written are whole."""

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path
from time import monotonic
from typing import Final

# Seconds that a file may be missing or empty before that is taken for what was meant.
_WHOLE: Final = 0.25
# From so many files at once on somebody is putting another state of the project there.
_MANY: Final = 20
# Seconds without another change that are waited for then, and how long at most.
_CALM: Final = 0.15
_MOST: Final = 5.0
_LOOK: Final = 0.02


async def until_quiet(root: Path, count: Callable[[], int], paths: Callable[[], Collection[Path]]) -> None:
    """Until nobody seems to be in the middle of writing: not a version control system, nor an editor.

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
        if done and (now - began >= _WHOLE or not any(map(_is_unfinished, list(paths())[:_MANY]))):
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
