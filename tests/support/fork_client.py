"""What asks a fork server for a process; see ``pallas_process``.

The tests have it. So has each process that the server forked and that starts others: ``install`` is called
there, and ``Sibling`` asks that process's own server, whose forks are children of the one that asks.
"""

import asyncio
import json
import os
import resource
import socket
import subprocess
import sys
import types
from asyncio import base_subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from pallas.cli import version_tests, worker_parent
from pallas.executors.ipc import keeper
from pallas.fleet import parent_death
from pallas.processes import child_program

from .fork_server import MAX_DESCRIPTORS, ROOM, address

LONGEST: Final = 600.0
"""Seconds until the server has imported everything: a server that ended is noticed at once."""
OURS: Final = dict(os.environ)
"""The environment that the server was started with, and the tests were."""
_PYTHON: Final = sys.executable
"""Not that of a test that puts another program in its place."""
_READ_ONCE: Final = (
    *("PYTHON", "HOME", "LANG", "LC_", "TZ", "TMP", "TEMP", "LD_", "MALLOC_", "XDG_DATA_"),
    *("COLUMNS", "LINES", "FORCE_COLOR", "TTY_", "TYPER_", "PILLOW_", "PYDANTIC_"),
    *("OPENAI_LOG", "OPENAI_API_TYPE", "OPENAI_API_VERSION", "AZURE_OPENAI_", "AIOHTTP_"),
    *("FAST_AGENT_", "FASTMCP_", "OTEL_", "PROMETHEUS_", "prometheus_"),
)
"""How the names of variables begin that the interpreter or a library reads when it starts."""
_MINDED: Final = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "TZ", *({"PYTHONPATH"} - {*os.environ}))
"""Those of them that a forked process minds."""
_LAUNCHERS: Final = {keeper.__file__: 4, parent_death.__file__: 2}
"""Scripts that become another command, and where that begins behind the script's path."""
_CHILDREN: Final = (
    *("pallas.cli.import_probe", "pallas.executors.ipc.child", "pallas.server", "pallas.stdio_bridge"),
    "pallas.verdict.fork_program",
)
"""What a forked process starts by ``-m``."""
_ALONE: Final = ("--version", "--help", "bridge")
"""Commands of Pallas that start no Python of ours."""
_OPTIONS: Final = ("-P", "-X", "faulthandler")


def launcher_of(command: Sequence[str]) -> str:
    """The script that becomes the command's program, empty if there is none."""
    return next((each for each in command[1:4] if each in _LAUNCHERS), "")


def program_of(command: Sequence[str]) -> list[str]:
    """The command without its launcher."""
    launcher = launcher_of(command)
    return [*command[command.index(launcher) + _LAUNCHERS[launcher] :]] if launcher else [*command]


def can_fork(command: Sequence[str], env: Mapping[str, str] | None, passed: Sequence[int] = ()) -> bool:
    """Whether the server can start it."""
    theirs = os.environ if env is None else env
    differing = {name for name, _ in {*theirs.items()} ^ {*OURS.items()}} - {*_MINDED}
    return (
        sys.platform == "linux"
        and max(passed, default=0) < MAX_DESCRIPTORS
        and (not launcher_of(command) or _module_of(program_of(command)) in _CHILDREN)
        and not any(name.startswith(_READ_ONCE) for name in differing)
        and sum(len(os.fsencode(each)) + 1 for each in command) < ROOM
    )


def _module_of(program: Sequence[str]) -> str:
    """The module that it runs; empty where it is no Python of ours, or has options that are not known."""
    if program[0] != sys.executable or "-m" not in program[:-1]:
        return ""
    options = program[1 : program.index("-m")]
    return program[program.index("-m") + 1] if {*options} <= {*_OPTIONS} else ""


def is_command(command: Sequence[str]) -> bool:
    """Whether it is a command of `pallas`, and not another program that a test has put in its place."""
    program = program_of(command)
    return program[0] == _PYTHON and _module_of(program) == "pallas.server"


def described(
    command: Sequence[str],
    *,
    cwd: Any,
    env: Mapping[str, str] | None,
    passed: Sequence[int],
    session: bool,
    umask: int,
    **more: Any,
) -> dict[str, Any]:
    """What the server is told of a process. Raises FileNotFoundError."""
    folder = os.fspath(cwd or Path.cwd())
    if not Path(folder).is_dir():
        raise FileNotFoundError(2, "No such file or directory", folder)
    launcher, program = launcher_of(command), program_of(command)
    begin = program.index("-m")
    limits = (resource.RLIMIT_NOFILE, resource.RLIMIT_AS)
    return {
        "command": [*command],
        "launcher": Path(launcher).stem,
        "launched": command[command.index(launcher) + 1 :] if launcher else (),
        "module": program[begin + 1],
        "arguments": program[begin + 2 :],
        "safe_path": "-P" in program[:begin],
        "passed": [*passed],
        "constants": {},
        "environment": dict(os.environ if env is None else env),
        "cwd": folder,
        "session": session,
        "umask": _umask() if umask < 0 else umask,
        "limits": {each: resource.getrlimit(each)[0] for each in limits},
        "siblings": program[begin + 1] == "pallas.server" and not {*program} & {*_ALONE},
    } | more


def send(
    server: socket.socket,
    wanted: Mapping[str, Any],
    streams: Sequence[int],
    passed: Sequence[int],
    *more: int,
) -> None:
    """Ask for a process. ``streams`` are what it shall have as 0, 1 and 2; ours where it is -1."""
    payload = os.memfd_create("start")
    try:
        os.write(payload, json.dumps(wanted).encode())
        standard = [mine if given == -1 else given for mine, given in enumerate(streams)]
        socket.send_fds(server, [b"start"], [payload, *standard, *more, *passed])
    finally:
        os.close(payload)


def _umask() -> int:
    """This process's, without changing it."""
    status = Path("/proc/self/status").read_text("utf-8")
    return int(next(line for line in status.splitlines() if line.startswith("Umask:")).split()[1], 8)


class Sibling(subprocess.Popen[Any]):
    """A child of this process, forked by the server that is another; a true start where that one is gone."""

    # Of the standard library, which says nothing of its type.
    _close_pipe_fds: Callable[..., None]

    def _execute_child(  # type: ignore[no-untyped-def]  # of the standard library
        self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell,
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, restore_signals, gid, gids, uid, umask,
        start_new_session, process_group,
    ):  # fmt: skip
        wanted = described(args, cwd=cwd, env=env, passed=pass_fds, session=start_new_session, umask=umask)
        with suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
            server.settimeout(LONGEST)
            server.connect(address(os.getpid()))
            send(server, wanted, (p2cread, c2pwrite, errwrite), pass_fds)
            self.pid = int(server.recv(16))
            self._child_created = True
            self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)
        if not self._child_created:
            super()._execute_child(  # type: ignore[misc]
                args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags,
                shell, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, restore_signals, gid, gids,
                uid, umask, start_new_session, process_group,
            )  # fmt: skip
        self._pidfd = os.pidfd_open(self.pid)

    def fileno(self) -> int:
        """A descriptor that is readable once the process has ended."""
        return self._pidfd

    def close(self) -> None:
        """The process has ended."""
        os.close(self._pidfd)


class Transport(base_subprocess.BaseSubprocessTransport):
    """What asyncio knows of a process that was forked."""

    _proc: Any

    def __init__(self, *args: Any, popen: Callable[..., Any], **options: Any) -> None:
        self._popen = popen
        super().__init__(*args, **options)

    def _start(self, args: Any, shell: bool, *_: Any, **options: Any) -> None:
        self._proc = self._popen(args, **options)
        self._loop.add_reader(self._proc.fileno(), self._has_ended, self._proc.fileno())

    def _has_ended(self, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)
        self._process_exited(self._proc.wait())
        self._proc.close()


async def connect(
    popen: Callable[..., Any],
    command: Sequence[str],
    protocol: asyncio.SubprocessProtocol,
    options: dict[str, Any],
) -> asyncio.SubprocessTransport:
    """The transport of ``loop.subprocess_exec``, by a ``subprocess.Popen``."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    standard = {name: options.pop(name, None) for name in ("stdin", "stdout", "stderr")}
    transport = Transport(
        loop, protocol, command, False, **standard, bufsize=0, waiter=ready, popen=popen, **options
    )
    try:
        await ready
    except BaseException:
        transport.close()
        await transport._wait()  # type: ignore[attr-defined]  # as asyncio does
        raise
    return transport


async def start_async(
    popen: Callable[..., Any], command: Sequence[str], options: dict[str, Any]
) -> asyncio.subprocess.Process:
    """``asyncio.create_subprocess_exec`` by a ``subprocess.Popen``."""
    loop = asyncio.get_running_loop()
    protocol = asyncio.subprocess.SubprocessStreamProtocol(limit=options.pop("limit", 2**16), loop=loop)
    transport = await connect(popen, command, protocol, options)
    return asyncio.subprocess.Process(transport, protocol, loop)


class ForkingLoop:
    """The running event loop, but for `pallas` commands: its ``subprocess_exec`` forks those."""

    def __init__(self, popen: Callable[..., Any]) -> None:
        self._popen = popen
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def subprocess_exec(
        self, protocol_factory: Callable[[], asyncio.SubprocessProtocol], *command: str, **options: Any
    ) -> tuple[asyncio.SubprocessTransport, asyncio.SubprocessProtocol]:
        """As the loop's own."""
        if not is_command(command) or not can_fork(command, options.get("env")):
            return await self._loop.subprocess_exec(protocol_factory, *command, **options)
        protocol = protocol_factory()
        return await connect(self._popen, command, protocol, options), protocol


def forking_commands(popen: Callable[..., Any]) -> list[tuple[types.ModuleType, str, types.ModuleType]]:
    """What has tests and replays forked that Pallas runs: each a module, a name there, and its value."""
    running, waiting = types.ModuleType("asyncio"), types.ModuleType("subprocess")
    running.__dict__.update(asyncio.__dict__, get_running_loop=partial(ForkingLoop, popen))
    waiting.__dict__.update(subprocess.__dict__, run=partial(_run, popen))
    return [(child_program, "asyncio", running), (version_tests, "subprocess", waiting)]


def _run(
    popen: Callable[..., Any], command: Sequence[str], *, timeout: float, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """``subprocess.run`` of what prints something."""
    del options["capture_output"]
    options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    is_forked = is_command(command) and can_fork(command, options.get("env"))
    process = popen(command, **options) if is_forked else subprocess.Popen(command, **options)
    return ended(process, None, timeout=timeout, check=check)


def ended(
    started: subprocess.Popen[Any],
    input: Any,  # noqa: A002 - its name there
    *,
    timeout: float | None,
    check: bool,
) -> subprocess.CompletedProcess[Any]:
    """What ``subprocess.run`` returns of a process."""
    with started as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def _fork_workers() -> None:
    """Fork the worker processes of a fleet, which lead no process group then."""

    def popen(command: Sequence[str], *, process_group: int, **options: Any) -> subprocess.Popen[Any]:
        if can_fork(command, options["env"], options["pass_fds"]):
            return Sibling(command, **options)
        return subprocess.Popen(command, process_group=process_group, **options)

    forking = types.ModuleType("subprocess")
    forking.__dict__.update(subprocess.__dict__, Popen=popen)
    worker_parent.subprocess = forking  # type: ignore[attr-defined]


def install() -> None:
    """Fork here what asyncio starts of Pallas."""
    _fork_workers()
    for module, name, forking in forking_commands(Sibling):
        setattr(module, name, forking)
    truly = asyncio.create_subprocess_exec

    async def start(*command: Any, **options: Any) -> asyncio.subprocess.Process:
        known = ("stdin", "stdout", "stderr", "limit", "cwd", "env", "pass_fds", "start_new_session")
        if not (
            {*options} <= {*known}
            and all(isinstance(each, str) for each in command)
            and _module_of(program_of(command)) in _CHILDREN
            and can_fork(command, options.get("env"), options.get("pass_fds", ()))
        ):
            return await truly(*command, **options)
        return await start_async(Sibling, command, options)

    asyncio.create_subprocess_exec = start
