"""The processes below this one: what agents and servers start ends with the fleet, daemons included."""

import ctypes
import logging
import os
import signal
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import sleep
from typing import Final

from pallas.processes.child_program import outlives

log = logging.getLogger(__name__)

_PR_SET_CHILD_SUBREAPER: Final = 36
# Seconds between two checks for adopted processes that have ended.
_REAP: Final = 20.0
_SWEEPS: Final = 5
_SETTLE: Final = 0.05


@contextmanager
def ending_children() -> Iterator[frozenset[int]]:
    """At the end of the block, kill what was started in it and still runs, daemons included (on Linux).

    Yields the processes that ran before. For a process that runs agents' code: a command, never a library
    inside another program.
    """
    others = children()
    with adopting():
        try:
            yield others
        finally:
            _sweep(others)


def _sweep(others: Collection[int]) -> None:
    """Kill the processes below this one except ``others``; killing one may bring its children here."""
    for _ in range(_SWEEPS):
        if not (left := end_children(but=others)):
            return
        log.warning("%d processes that did not end with the fleet were killed", left)
        sleep(_SETTLE)


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
    """Kill every process below this one except ``but``, and return how many there were.

    Programs that may outlive this process (``child_program.outliving``) are left.
    """
    left = [pid for pid in children() if pid not in but and not outlives(pid)]
    for pid in left:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return len(left)
