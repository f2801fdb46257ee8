"""Processes of `python -m pallas.server`, forked from one that has imported everything.

A true start imports fast-agent, fastmcp, SQLAlchemy and two thousand modules more; the suite starts hundreds
of processes. ``start``, ``run`` and ``start_async`` are ``subprocess.Popen``, ``subprocess.run`` and
``asyncio.create_subprocess_exec`` of a process that ``fork_server`` forks. There is one such server for each
process of pytest, from the first start to the end, whatever way that ends; fleets that still run then are
asked to end. Within ``forked_children`` these are such ones too, where the fleet or the workbench is in the
tests' own process: isolated agents, the imports of `pallas check`, stdio bridges, recorded tests and replays.

What a forked process starts of those is forked as well. Before it becomes a fleet it forks a server of its
own, which has imported everything and nothing else. That makes children of the fleet, not of itself: they are
waited for, sent signals and ended with their parent as always. It is one more process below the fleet, which
ends with it; ``below`` leaves it out. ``forks=False`` is a fleet whose children start truly.

As in a true start: the arguments (``sys.argv``, ``sys.orig_argv``, the command line in ``/proc``), the
environment, the working directory, ``sys.path``, the descriptors (0, 1 and 2 alone), how the standard streams
are buffered, the session, the process group, the umask, the limit of open files, how signals are handled,
``__main__``, what is done at the interpreter's end, and its status.

Not so: modules are imported before anything asks for them, so an import that is missing, that takes long or
that goes around in a circle shows in a true start only. Modules are not destroyed at the end, so nothing is
finalized then that was not released. ``/proc/PID/environ`` and the parent are the fork server's, and all
processes have the same seed of hashes. Tests of imports, of the start itself, of what ``/proc`` says or of a
terminal call ``subprocess``.

The interpreter and libraries read some variables once, when they start. Where one of those differs from the
tests' own, the start is a true one; so it is where the system cannot fork in this way. Isolated handlers have
a ``TMPDIR`` of their own and so start truly, which their limits of memory need: a forked process holds more.
"""

import asyncio
import atexit
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from pallas.cli import import_check
from pallas.executors.ipc import child_process
from pallas.fleet import programs
from pallas.verdict import warm_judge

from . import fork_client
from .fork_client import LONGEST, OURS
from .fork_server import ROOM

_SERVER: Final = Path(__file__).with_name("fork_server.py")


def start(
    *arguments: str,
    module: str = "pallas.server",
    constants: Mapping[str, float] | None = None,
    memory: int | None = None,
    forks: bool | None = None,
    **options: Any,
) -> subprocess.Popen[Any]:
    """``subprocess.Popen([sys.executable, "-m", module, *arguments], **options)``.

    ``constants`` are values there for some of a module's, ``package.module.NAME``: deadlines that no test has
    to wait for. A true start has its own. ``memory`` is how many bytes of address space it may have.
    ``forks`` is whether what it starts of Pallas is forked too: else where it is the command line.
    """
    command = [sys.executable, "-m", module, *arguments]
    if not _can_fork(command, options):
        if memory is not None:
            options["preexec_fn"] = lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        return subprocess.Popen(command, **options)
    given = {"constants": dict(constants) if constants else None, "memory": memory, "siblings": forks}
    more = {name: value for name, value in given.items() if value is not None}
    return _Forked(command, more=more, **options)


def run(
    *arguments: str,
    input: Any = None,  # noqa: A002 - its name there
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """``subprocess.run`` of such a process."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return fork_client.ended(start(*arguments, **options), input, timeout=timeout, check=check)


async def start_async(
    *arguments: str, module: str = "pallas.server", forks: bool | None = None, **options: Any
) -> asyncio.subprocess.Process:
    """``asyncio.create_subprocess_exec(sys.executable, "-m", module, *arguments, **options)``."""
    return await _exec(sys.executable, "-m", module, *arguments, forks=forks, **options)


@contextmanager
def forked_children() -> Iterator[None]:
    """Fork what a fleet in this process starts of Pallas, and the imports of `pallas check`.

    Their parent is the fork server then, in place of this process, and they end with that.
    """
    _server.wait_ready()
    asking = types.ModuleType("asyncio")
    asking.__dict__.update(asyncio.__dict__, create_subprocess_exec=_exec)
    with pytest.MonkeyPatch.context() as patch:
        for each in (child_process, import_check, programs, warm_judge):
            patch.setattr(each, "asyncio", asking)
        for module, name, forking in fork_client.forking_commands(_Forked):
            patch.setattr(module, name, forking)
        yield


async def _exec(*command: str, forks: bool | None = None, **options: Any) -> asyncio.subprocess.Process:
    """``asyncio.create_subprocess_exec``, forked where it can be; ``forks`` as for ``start``."""
    if not _can_fork(command, options):
        return await asyncio.create_subprocess_exec(*command, **options)
    popen = partial(_Forked, more={} if forks is None else {"siblings": forks})
    return await fork_client.start_async(popen, command, options)


def _can_fork(command: Sequence[str], options: Mapping[str, Any]) -> bool:
    return not {*options} & {"preexec_fn", "process_group", "user", "group"} and fork_client.can_fork(
        command, options.get("env"), options.get("pass_fds", ())
    )


class _Server:
    """The server of this process; ``fork`` starts it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False

    def fork(
        self, wanted: Mapping[str, Any], streams: Sequence[int], status: int, passed: Sequence[int]
    ) -> None:
        """Ask for a process, as ``fork_client.send`` does; ``status`` is a socket for its number and end."""
        self.start()
        with self._lock:
            if self._requests is not None:
                fork_client.send(self._requests, wanted, streams, passed, status)

    def start(self) -> int:
        """Start it if it does not run; returns the number of its process."""
        with self._lock:
            if self._process is None:
                self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with theirs:
                    self._process = subprocess.Popen(
                        [sys.executable, str(_SERVER), str(theirs.fileno()), "-" * ROOM],
                        pass_fds=[theirs.fileno()],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        cwd=_SERVER.parent,
                        env=OURS,
                    )
                atexit.register(self.end)
            return self._process.pid

    def wait_ready(self) -> None:
        """Wait until it has imported everything: an event loop that asks for a process waits in that call."""
        if not self._ready:
            run("--version", stdout=subprocess.DEVNULL, timeout=LONGEST)
            self._ready = True

    def end(self) -> None:
        """Close the socket: the server ends by itself."""
        if self._requests is not None and self._process is not None:
            self._requests.close()
            self._process.wait(LONGEST)

    @property
    def pid(self) -> int | None:
        """Its process, once it was started."""
        return self._process.pid if self._process is not None else None


_server: Final = _Server()


def below(pid: int | None = None) -> list[psutil.Process]:
    """Every process that this one started, or another, at whatever remove; not the servers, which stay."""
    try:
        found = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:  # it ended this moment
        return []
    return [each for each in found if not _is_server(each)]


def _is_server(process: psutil.Process) -> bool:
    try:
        return str(_SERVER) in process.cmdline()[:2]
    except psutil.Error:  # it ended meanwhile, or is about to
        return False


class _Forked(subprocess.Popen[Any]):
    """A process whose parent is the fork server, which says how it ended."""

    _status: socket.socket
    _pidfd: int
    # Of the standard library, which says nothing of their types.
    _waitpid_lock: threading.Lock
    _close_pipe_fds: Callable[..., None]

    def __init__(
        self,
        *args: Any,
        more: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self._more = dict(more or {})
        super().__init__(*args, **options)

    def _execute_child(  # type: ignore[no-untyped-def]  # of the standard library
        self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell,
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, restore_signals, gid, gids, uid, umask,
        start_new_session, process_group,
    ):  # fmt: skip
        command = [*args]
        if launcher := fork_client.launcher_of(command):
            command[command.index(launcher) + 1] = str(_server.start())  # its parent
        wanted = fork_client.described(
            command, cwd=cwd, env=env, passed=pass_fds, session=start_new_session, umask=umask, **self._more
        )
        self._status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            _server.fork(wanted, (p2cread, c2pwrite, errwrite), theirs.fileno(), pass_fds)
        self._status.settimeout(LONGEST)
        number, descriptors, _, _ = socket.recv_fds(self._status, 16, 1)
        if not number:
            self._status.close()
            raise RuntimeError("the fork server ended; what it wrote to stderr says why")
        self.pid, (self._pidfd,) = int(number), descriptors
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)

    def fileno(self) -> int:
        """A descriptor that is readable once the process has ended."""
        return self._status.fileno()

    def close(self) -> None:
        """The process has ended: what was held for it was released then."""

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        return self._look(0)

    def _wait(self, timeout: float | None) -> int:
        if (status := self._look(timeout)) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return status

    def _look(self, timeout: float | None) -> int | None:
        with self._waitpid_lock:
            if self.returncode is None and self._child_created:
                waiting = select.poll()
                waiting.register(self._status, select.POLLIN)
                if waiting.poll(None if timeout is None else max(0.0, timeout) * 1000):
                    ended = self._status.recv(16)
                    self._status.close()
                    os.close(self._pidfd)
                    # Without a word of it the server is gone, and the process with it for all that is known.
                    self.returncode = os.waitstatus_to_exitcode(int(ended)) if ended else -signal.SIGKILL
            return self.returncode

    def send_signal(self, sig: int) -> None:
        """Send a signal, if it has not ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it ended this moment
                signal.pidfd_send_signal(self._pidfd, sig)
