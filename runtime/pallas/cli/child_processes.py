"""Find and kill the processes below this one, when the fleet could not do it."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36
# Seconds between two checks for adopted processes that have ended.
_REAP: Final = 20.0


@contextmanager
def adopting() -> Iterator[None]:
    """Within the block, processes below this one that lose their parent become its children. On Linux.

    A stdio server's daemon is then found by ``children`` and ended with the fleet. Adopted processes that end
    by themselves are reaped, since no parent waits for them.
    """
    if sys.platform != "linux" or ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        yield
        return
    over = threading.Event()

    def reap() -> None:
        while not over.wait(_REAP):
            reap_adopted()

    threading.Thread(target=reap, name="orphans", daemon=True).start()
    try:
        yield
    finally:
        over.set()
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def reap_adopted() -> None:
    """Reap the ended children that this process did not start.

    A process that it starts is in its own session or leads one. An adopted process that leads a session is
    left.
    """
    own, session = os.getpid(), os.getsid(0)
    for name in os.listdir("/proc"):  # noqa: PTH208 - a path for each takes longer than reading it
        if not name.isdigit():
            continue
        with suppress(OSError, ValueError, IndexError):
            state, parent, _, its_session = _stat(Path("/proc", name, "stat"))[:4]
            if state == "Z" and int(parent) == own and int(its_session) not in (session, int(name)):
                os.waitpid(int(name), os.WNOHANG)


def _stat(file: Path) -> list[str]:
    # The name in parentheses may contain any character; the fields after its last one are fixed.
    return file.read_text("utf-8", "replace").rpartition(")")[2].split()


def children(of: int | None = None) -> frozenset[int]:
    """Return the processes below this one, or below ``of``, at any depth. On Linux; empty elsewhere."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            state, parent = _stat(entry)[:2]
            if state != "Z":
                parents.setdefault(int(parent), []).append(int(entry.parent.name))
    found: set[int] = set()
    waiting = [of or os.getpid()]
    while waiting:
        below = parents.get(waiting.pop(), [])
        waiting += below
        found.update(below)
    return frozenset(found)


def end_children(but: Collection[int] = ()) -> int:
    """Kill every process below this one except ``but``, and return how many there were."""
    left = [pid for pid in children() if pid not in but]
    for pid in left:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return len(left)
