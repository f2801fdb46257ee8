"""The process that has imported everything and forks `python -m pallas.server`; see ``pallas_process``.

Run as a script with the descriptor of a socket. Each message on it is one start: the descriptors of a JSON
file (what to start), of the standard streams, of a socket for the process's number and its end, and of what
else the process is given. The script is single-threaded, has no event loop and ends when the socket closes.
It imports nothing of the tests but ``fork_client``, which what it forks asks its own server with.
"""

import atexit
import ctypes
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import resource
import runpy
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

ROOM: Final = 4096
"""Bytes that a command line may have: ``/proc`` shows it from memory that is there when a process starts."""
MAX_DESCRIPTORS: Final = 900
"""Descriptors that a process is given have lower numbers than this."""
_install: Final[list[Callable[[], None]]] = []
"""``fork_client.install``, once it was imported."""
_SKIPPED: Final = ("pallas.server", "pallas.ledger.migrations.", "pallas.templates.")
"""Modules that do something when they are imported: the entry, and scripts of Alembic and of new projects."""
_JUDGE: Final = "pallas.verdict.fork_program"
"""The program that forks a judge for each request."""
_LATER: Final = (
    "PIL.Image",
    "anyio._backends._asyncio",
    "anyio._core._subprocesses",
    "encodings.idna",
    "fast_agent.core.agent_card_loader",
    "fast_agent.core.environment_lifecycle",
    "fast_agent.hooks.session_history",
    "fast_agent.llm.internal.passthrough",
    "fast_agent.llm.model_info",
    "fast_agent.llm.provider.openai.llm_generic",
    "fast_agent.llm.provider_key_manager",
    "fast_agent.plugins.post_user_turn",
    "fast_agent.tools.attach_media",
    "fast_agent.tools.composite_filesystem_runtime",
    "fast_agent.tools.edit_file_engine",
    "fast_agent.tools.environment_filesystem_runtime",
    "fast_agent.tools.local_filesystem_runtime",
    "fastmcp.apps.app",
    "fastmcp.server.providers.prefab_synthesis",
    "fastmcp.server.sessions",
    "griffe",
    "httpcore2",
    "openai.resources.chat",
    "openai.types.chat.completions",
    "pydantic.v1",
    "truststore",
    "typer._click.decorators",
    "uvicorn.lifespan.off",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
    "uvloop",
)
"""What a fleet that starts imports and Pallas does not name: libraries import it when they need it."""


_DEATH_SIGNAL: Final = 1
"""The number of ``prctl`` for the signal that a process gets when its parent ends."""
_CLONE: Final = {"x86_64": 56, "aarch64": 220}
_CLONE_PARENT: Final = 0x8000


def address(pid: int) -> str:
    """Where the server of a process that was forked is asked."""
    return f"\0forks-of-{pid}"


def main() -> dict[str, Any] | None:
    """Serve until the socket closes, then None; in a forked process what to run there."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    _import_everything()
    # A process that a test kills removes no folder of its own: they are in this one.
    tempfile.tempdir = tempfile.mkdtemp(prefix=f"pallas-forks-{os.getpid()}-")
    children: dict[int, tuple[int, socket.socket]] = {}
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == requests.fileno():
                data, descriptors, _, _ = socket.recv_fds(requests, 16, 16)
                if not data:
                    for pid, _ in children.values():  # their tests were killed
                        os.kill(pid, signal.SIGTERM)
                    shutil.rmtree(tempfile.gettempdir(), ignore_errors=True)
                    return None
                if (wanted := _fork(descriptors, children, poll)) is not None:
                    return wanted
            else:
                poll.unregister(descriptor)
                os.close(descriptor)
                pid, status = children.pop(descriptor)
                _, ended = os.waitpid(pid, 0)
                with status, suppress(OSError):  # nobody waits for it any more
                    status.send(str(ended).encode())


def _import_everything() -> None:
    """Import all of Pallas and what it uses; nothing of it may start a thread."""
    del sys.path[0]  # this file's folder: its modules have common names
    gc.disable()
    import pallas
    from pallas.processes import import_seam

    import_seam.install()  # as a true start does
    for found in pkgutil.walk_packages(pallas.__path__, "pallas."):
        if not found.name.startswith(_SKIPPED) and not found.name.endswith(".__main__"):
            importlib.import_module(found.name)
    for name in _LATER:
        importlib.import_module(name)
    # Under another name than in the tests' process, and where no test's project finds them.
    sys.modules["support.fork_server"] = sys.modules["__main__"]
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from support import fork_client

    del sys.path[0]
    for name in ("support", "support.fork_server", "support.fork_client"):
        del sys.modules[name]
    _install.append(fork_client.install)
    gc.enable()
    gc.freeze()  # else the first collection in each child would copy all of it
    if len(threads := list(Path("/proc/self/task").iterdir())) > 1:
        raise RuntimeError(f"imports started threads, a fork would lose them: {threads}")


def _fork(
    descriptors: list[int], children: dict[int, tuple[int, socket.socket]], poll: select.poll
) -> dict[str, Any] | None:
    """Start a process; in it, what to run."""
    file, *streams, theirs = descriptors[:5]
    passed = descriptors[5:]
    wanted = _read(file)
    if not (pid := os.fork()):
        return _start(wanted, streams, passed)
    for stream in (*streams, *passed):
        os.close(stream)
    status = socket.socket(fileno=theirs)
    ours = os.pidfd_open(pid)
    children[ours] = pid, status
    poll.register(ours, select.POLLIN)
    with suppress(OSError):
        socket.send_fds(status, [str(pid).encode()], [ours])
    return None


def _read(file: int) -> dict[str, Any]:
    with open(file, "rb") as payload:
        payload.seek(0)
        wanted: dict[str, Any] = json.load(payload)
    return wanted


def _start(wanted: dict[str, Any], streams: list[int], passed: list[int]) -> dict[str, Any]:
    """In a process that was forked: what to run there, or in one that this one's server forked."""
    if wanted["session"]:
        os.setsid()
    if wanted["siblings"] and (asked := _serve_siblings()) is not None:
        return _start(*asked)
    _become(wanted, streams, passed)
    return wanted


def _serve_siblings() -> tuple[dict[str, Any], list[int], list[int]] | None:
    """Fork a server that forks children of this process. In each of those returns what it shall be.

    The server ends with this process. It is not asked through a descriptor: this process has no more of them
    than one that was truly started.
    """
    pid = os.getpid()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(address(pid))
    listening.listen(16)
    if os.fork():
        listening.close()
        return None
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != pid:
        os._exit(0)
    return _serve(socket.socket(fileno=os.dup2(listening.detach(), 3)))


def _serve_each_judge() -> None:
    """Give each judge that this process forks a server of its own, while it has not loaded a project yet.

    Its first deed is to lead a session.
    """
    truly = os.setsid

    def setsid() -> None:
        os.setsid = truly
        truly()
        if (asked := _serve_siblings()) is not None:
            _run_to_the_end(_launch(_start(*asked)))

    os.setsid = setsid


def _serve(listening: socket.socket) -> tuple[dict[str, Any], list[int], list[int]]:
    """Fork a child of this process's parent whenever that asks; in the child return what it shall be."""
    os.closerange(listening.fileno() + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):  # others read those until they are closed
        os.dup2(nothing, number)
    _show([sys.executable, __file__, "for", str(os.getppid())])
    # Those that a group is sent are for its other processes.
    heard = {
        each: signal.signal(each, signal.SIG_IGN)
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
    }
    while True:
        asking, _ = listening.accept()
        with asking, suppress(OSError):
            _, descriptors, _, _ = socket.recv_fds(asking, 16, 16)
            if not descriptors:
                continue
            wanted = _read(descriptors[0])
            if not (pid := _fork_sibling()):
                for number, how in heard.items():
                    signal.signal(number, how)
                return wanted, descriptors[1:4], descriptors[4:]
            for each in descriptors[1:]:
                os.close(each)
            asking.send(str(pid).encode())


def _fork_sibling() -> int:
    """``os.fork``, but its parent is that of this process."""
    library, interpreter = ctypes.PyDLL(None, use_errno=True), ctypes.pythonapi
    library.pthread_self.restype = ctypes.c_void_p
    words = (ctypes.c_int * 512).from_address(library.pthread_self())
    # Where the C library keeps the thread's number: its own `fork` would put the new one there.
    (place,) = (index for index, word in enumerate(words) if word == os.getpid())
    flags = _CLONE_PARENT | signal.SIGCHLD
    interpreter.PyOS_BeforeFork()
    pid: int = library.syscall(*map(ctypes.c_long, (_CLONE[os.uname().machine], flags, 0, 0, 0, 0)))
    if pid:
        interpreter.PyOS_AfterFork_Parent()
        if pid < 0:
            raise OSError(ctypes.get_errno(), "clone")
    else:
        words[place] = os.getpid()
        interpreter.PyOS_AfterFork_Child()
    return pid


def _become(wanted: dict[str, Any], streams: list[int], passed: list[int]) -> None:
    """Make this process what a new one would be."""
    for number, given in enumerate(streams):
        os.dup2(given, number)
    above = [fcntl.fcntl(each, fcntl.F_DUPFD, MAX_DESCRIPTORS) for each in passed]
    os.closerange(3, MAX_DESCRIPTORS)
    os.closerange(max(above, default=MAX_DESCRIPTORS - 1) + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    wanted["above"] = above
    os.umask(wanted["umask"])
    for which, soft in wanted["limits"].items():
        _, most = resource.getrlimit(int(which))
        resource.setrlimit(int(which), (soft, most))
    if (memory := wanted.get("memory")) is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    if wanted["siblings"] or wanted["module"] == _JUDGE:
        _install[0]()
    if wanted["module"] == _JUDGE:
        _serve_each_judge()
    os.chdir(wanted["cwd"])
    if (places := wanted["environment"].get("PYTHONPATH")) != os.environ.get("PYTHONPATH"):
        sys.path[:0] = places.split(os.pathsep)
    os.environ.clear()
    os.environ.update(wanted["environment"])
    time.tzset()
    for name, value in wanted["constants"].items():
        module, _, attribute = name.rpartition(".")
        if not hasattr(sys.modules[module], attribute):
            raise AttributeError(name)
        setattr(sys.modules[module], attribute, value)
    if not wanted["safe_path"]:
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as a text
    sys.argv = ["-m", *wanted["arguments"]]
    sys.orig_argv = wanted["command"]
    _show(sys.orig_argv)
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        stream = _stream(number, mode, unbuffered=unbuffered, like=getattr(sys, name))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


class _ProgramStarts(BaseException):
    """Raised in place of an ``exec``; the argument is the command."""


def _exec(_: str, command: list[str]) -> NoReturn:
    raise _ProgramStarts(command)


def _launch(wanted: dict[str, Any]) -> str:
    """Do what is done before the program starts; return its module, all else as after an ``exec``."""
    from pallas.executors.ipc import keeper
    from pallas.fleet import parent_death

    # Not before `main` is left: its sockets close numbers that these descriptors get.
    for number, given in zip(wanted["passed"], wanted["above"], strict=True):
        os.dup2(given, number)
        os.close(given)
    if not wanted["launcher"]:
        return str(wanted["module"])
    kept = wanted["launcher"] == "keeper"
    truly = os.execv, os.execvp
    os.execv = os.execvp = _exec  # type: ignore[assignment]  # they do return, by raising
    try:
        if kept:
            parent, status, channel, *command = wanted["launched"]
            keeper.main(int(parent), int(status), int(channel), command)
        else:
            parent, *command = wanted["launched"]
            parent_death.main(int(parent), command)
    except _ProgramStarts:
        os.execv, os.execvp = truly  # type: ignore[assignment]
    else:
        os._exit(0)
    if kept:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.closerange(3, int(channel))
        os.closerange(int(channel) + 1, MAX_DESCRIPTORS)
    sys.argv, sys.orig_argv = ["-m", *wanted["arguments"]], command
    _show(command)
    return str(wanted["module"])


def _stream(number: int, mode: str, *, unbuffered: bool, like: io.TextIOWrapper) -> io.TextIOWrapper:
    """A standard stream as the interpreter makes it."""
    size = 0 if unbuffered and mode == "w" else -1
    binary: Any = open(number, f"{mode}b", buffering=size, closefd=False)  # noqa: SIM115
    raw = binary.raw if size else binary
    raw.name = like.name
    lines = not unbuffered and (number == 2 or raw.isatty())
    text: Any = io.TextIOWrapper(
        binary, like.encoding, like.errors, "\n", line_buffering=lines, write_through=unbuffered
    )
    text.mode = mode
    return text  # type: ignore[no-any-return]


def _show(command: list[str]) -> None:
    """Write the command line over this process's own, where ``/proc`` shows it."""
    fields = Path("/proc/self/stat").read_text("ascii").rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    line = b"".join(os.fsencode(each) + b"\0" for each in command)
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, line, min(len(line), end - begin))


def _run(module: str) -> None:
    """Do what `python -m` does with it, but for what the interpreter does last.

    After its threads have ended and what is registered for the end is done, it would destroy each module: in
    a forked process that copies most of the memory, a fifth of a second.
    """
    status: list[int] = []

    def end() -> None:
        if status:
            with suppress(Exception):  # else the interpreter says it, and has a status for it
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status[0])

    atexit.register(end)  # the first is called last
    try:
        runpy._run_module_as_main(module)  # type: ignore[attr-defined]  # what `python -m` calls
    except SystemExit as ends:
        if isinstance(ends.code, int | None):
            status.append((ends.code or 0) & 255)
        raise
    status.append(0)


def _run_to_the_end(module: str) -> NoReturn:
    """Do that, and what the interpreter does behind it: nothing goes back to where the process was forked."""
    try:
        _run(module)
    except SystemExit:
        pass
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]  # waits for the other threads, as at its end
    atexit._run_exitfuncs()  # the last of them ends the process if it has a status
    os._exit(1)


if __name__ == "__main__":
    if (_wanted := main()) is None:
        os._exit(0)
    _run(_launch(_wanted))
