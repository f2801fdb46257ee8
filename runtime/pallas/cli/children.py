"""The processes below this one, ended without asking: for when the fleet cannot do it any more."""

import os
import signal
from contextlib import suppress
from pathlib import Path


def end_children() -> None:
    """Kill every process below this one. On Linux; elsewhere those that hold on to us end by themselves."""
    for pid in _below(os.getpid()):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _below(root: int) -> list[int]:
    """All descendants, those further down last."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            # The name in parentheses may hold anything; what follows its last one is fixed.
            parent = int(entry.read_text("utf-8", "replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.parent.name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found
