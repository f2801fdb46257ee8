"""The process that has imported everything and forks `python -m pallas.server`; see ``pallas_process``.

Run as a script with the descriptor of a socket. Each message on it is one start: the descriptors of a JSON
file (what to start), of the standard streams, of a socket for the process's number and its end, and of what
else the process is given. The script is single-threaded, has no event loop and ends when the socket closes.
It imports nothing of the tests.
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
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

ROOM: Final = 4096
"""Bytes that a command line may have: ``/proc`` shows it from memory that is there when a process starts."""
MAX_DESCRIPTORS: Final = 900
"""Descriptors that a process is given have lower numbers than this."""
_SKIPPED: Final = ("pallas.server", "pallas.ledger.migrations.", "pallas.templates.")
"""Modules that do something when they are imported: the entry, and scripts of Alembic and of new projects."""
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


def main() -> dict[str, Any] | None:
    """Serve until the socket closes, then None; in a forked process what to run there."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    _import_everything()
    children: dict[int, tuple[int, socket.socket]] = {}
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == requests.fileno():
                data, descriptors, _, _ = socket.recv_fds(requests, 16, 16)
                if not data:
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

    for found in pkgutil.walk_packages(pallas.__path__, "pallas."):
        if not found.name.startswith(_SKIPPED) and not found.name.endswith(".__main__"):
            importlib.import_module(found.name)
    for name in _LATER:
        importlib.import_module(name)
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
    with open(file, "rb") as payload:  # noqa: PTH123 - a descriptor
        payload.seek(0)
        wanted: dict[str, Any] = json.load(payload)
    if not (pid := os.fork()):
        _become(wanted, streams, passed)
        return wanted
    for stream in (*streams, *passed):
        os.close(stream)
    status = socket.socket(fileno=theirs)
    ours = os.pidfd_open(pid)
    children[ours] = pid, status
    poll.register(ours, select.POLLIN)
    with suppress(OSError):
        socket.send_fds(status, [str(pid).encode()], [ours])
    return None


def _become(wanted: dict[str, Any], streams: list[int], passed: list[int]) -> None:
    """Make this process what a new one would be."""
    if wanted["session"]:
        os.setsid()
    for number, given in enumerate(streams):
        os.dup2(given, number)
    above = [fcntl.fcntl(each, fcntl.F_DUPFD, MAX_DESCRIPTORS) for each in passed]
    os.closerange(3, MAX_DESCRIPTORS)
    os.closerange(max(above, default=MAX_DESCRIPTORS - 1) + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    wanted["above"] = above
    os.umask(wanted["umask"])
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted["files"], most))
    if (memory := wanted["memory"]) is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    os.chdir(wanted["cwd"])
    if (places := wanted["environment"].get("PYTHONPATH")) != os.environ.get("PYTHONPATH"):
        sys.path[:0] = places.split(os.pathsep)
    os.environ.clear()
    os.environ.update(wanted["environment"])
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
    """Raised in the keeper's child in place of its ``exec``; the argument is the command."""


def _exec(_: str, command: list[str]) -> NoReturn:
    raise _ProgramStarts(command)


def _keep(wanted: dict[str, Any]) -> str:
    """Run the keeper to its end; in its child return the module to run, all else as after an ``exec``."""
    from pallas.executors.ipc import keeper

    # Not before `main` is left: its sockets close numbers that these descriptors get.
    for number, given in zip(wanted["passed"], wanted["above"], strict=True):
        os.dup2(given, number)
        os.close(given)
    parent, status, channel, *command = wanted["arguments"]
    execv, os.execv = os.execv, _exec  # type: ignore[assignment]  # it does return, by raising
    try:
        keeper.main(int(parent), int(status), int(channel), command)
    except _ProgramStarts:
        os.execv = execv
    else:
        os._exit(0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.closerange(3, int(channel))
    os.closerange(int(channel) + 1, MAX_DESCRIPTORS)
    module = command.index("-m") + 1
    sys.argv, sys.orig_argv = ["-m", *command[module + 1 :]], command
    _show(command)
    return command[module]


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


if __name__ == "__main__":
    if (_wanted := main()) is None:
        os._exit(0)
    _run(_keep(_wanted) if _wanted["keeper"] else _wanted["module"])
