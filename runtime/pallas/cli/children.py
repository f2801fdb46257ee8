"""The processes below this one, ended without asking: for when the fleet could not do it."""

import os
import signal
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path


def children() -> frozenset[int]:
    """The processes below this one, at any depth. On Linux; elsewhere none are known."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            # The name in parentheses may hold anything; what follows its last one is fixed.
            state, parent = entry.read_text("utf-8", "replace").rpartition(")")[2].split()[:2]
            if state != "Z":
                parents.setdefault(int(parent), []).append(int(entry.parent.name))
    found: set[int] = set()
    waiting = [os.getpid()]
    while waiting:
        below = parents.get(waiting.pop(), [])
        waiting += below
        found.update(below)
    return frozenset(found)


def end_children(but: Collection[int] = ()) -> int:
    """Kill every process below this one except those; how many there were."""
    left = [pid for pid in children() if pid not in but]
    for pid in left:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return len(left)
