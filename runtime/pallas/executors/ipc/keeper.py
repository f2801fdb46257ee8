"""Run by path, as a script: starts an agent's program, and leaves none of its processes behind.

Stdio servers run in sessions of their own, so a signal to the process group does not reach them. This process
is the parent of the program and a child of the fleet: on Linux it adopts every process below it that loses
its parent, and ends them all when the program ends, however that ended. It writes how to the descriptor
``status``, in one line, at once. SIGTERM ends the program in order, and by force after ``GRACE``; SIGUSR1
ends it by force; the end of the fleet arrives as a SIGTERM. It imports nothing of Pallas, so that it starts
in a few milliseconds.
"""

import ctypes
import os
import select
import signal
import sys
from contextlib import suppress
from time import monotonic

GRACE = 2.0
# Seconds for the processes that are left to end by themselves, and until this process gives up on them.
_LEAVE = 0.3
_GIVE_UP = 3.0
_POLL = 0.02
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LINUX = sys.platform == "linux"


def main(parent: int, status: int, channel: int, command: list[str]) -> None:
    """Run ``command``, which gets the descriptor ``channel``; return when no process of it is left."""
    os.set_inheritable(status, False)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != parent:  # the fleet ended before this asked for the signal
        return
    waking, wake = os.pipe()
    os.set_blocking(waking, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, lambda which, _: signals.append(which))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(1)
        os.set_inheritable(channel, True)
        try:
            os.execv(command[0], command)
        except OSError as error:
            os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(127)
    os.close(channel)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # the fleet reads these until they are closed
        os.dup2(nothing, descriptor)
    ended = _wait(pid, waking, signals)
    code = os.waitstatus_to_exitcode(ended)
    with suppress(OSError):
        os.write(status, (f"exit {code}\n" if code >= 0 else f"signal {-code}\n").encode())
    _sweep()


def _wait(pid: int, waking: int, signals: list[int]) -> int:
    """Wait until the program ends, and return its wait status. Other children that ended are reaped."""
    by_force: float | None = None
    while True:
        while True:
            try:
                found, how = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return 0
            if found == pid:
                return how
            if found == 0:
                break
        while signals:
            if signals.pop() == signal.SIGUSR1:
                by_force = 0.0
            elif by_force is None:
                by_force = monotonic() + GRACE
                os.kill(pid, signal.SIGTERM)
        left = None if by_force is None else by_force - monotonic()
        if left is not None and left <= 0:
            os.kill(pid, signal.SIGKILL)
            left = 1.0
        select.select([waking], [], [], left)
        with suppress(BlockingIOError):
            while os.read(waking, 512):
                pass


def _sweep() -> None:
    """End all processes that are left below this one."""
    began = monotonic()
    asked = False
    while monotonic() - began < _GIVE_UP:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        late = monotonic() - began > _LEAVE
        if late or not asked:
            for pid in _below(os.getpid()):
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
            asked = True
        select.select([], [], [], _POLL)


def _below(root: int) -> list[int]:
    """Return every process that descends from ``root``; none where the system does not say."""
    children: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - pathlib takes longer to import than all of this
    except OSError:
        return []
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    after = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            children.setdefault(int(after[1]), []).append(int(name))
    found: list[int] = []
    wanted = [root]
    while wanted:
        wanted += (each := children.get(wanted.pop(), []))
        found += each
    return found


def _prctl(option: int, value: int) -> None:
    if _LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(option, value)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
