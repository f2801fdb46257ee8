"""What a test leaves behind is ended or undone: the next one must not find it.

A test that leaves a process, a socket that listens or another working directory fails. Environment variables,
``sys.path``, signal handlers, loggers, fast-agent's log and modules of projects get what they had without a
failure: a fleet sets them for its process, which is the tests' own for many.

It looks after each test. Where fixtures of a module or a class are set up, it looks when they are finished,
and the last test that uses them fails. What a fixture of the session starts may stay until the end.
"""

import gc
import itertools
import logging
import os
import signal
import socket
import sys
import weakref
from collections.abc import Generator, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from types import ModuleType
from typing import Any, Final, NamedTuple

import pytest

MARK: Final = "PALLAS_TEST_PROCESS"
"""A variable with the process number of pytest: processes that lost their parent are known by it."""
GRACE_S: Final = 30
"""Seconds for what a test has told to end."""
START_NOTHING: Final = {"no_server", "forked_children"}
"""Fixtures of modules beside which each test is looked at."""
GLOBALS: Final = (
    # While it is set, fast-agent starts no reader of its log: the last one belongs to a loop that is closed.
    ("fast_agent.core.logging.logger", "LoggingConfig", "_initialized", False),
    ("fast_agent.core.logging.transport", "AsyncEventBus", "_instance", None),
)
"""What fast-agent keeps for its process: module, class, attribute, and its value before there is a fleet."""
_SIGNALS: Final = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCHLD,
    signal.SIGWINCH,
    signal.SIGPIPE,
)


class Leftovers:
    """The pytest plugin that looks."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._wide: list[str] = []
        """Names of the fixtures of modules and classes that are set up."""
        self._listening: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._processes = Processes()
        self._state: dict[str, Any] = {}
        self._loggers: dict[str, LoggerState] = {}
        self._modules: dict[str, ModuleType] = {}
        """Those that are no project's."""
        self._newest: tuple[str, ModuleType] | None = None
        """The last of them."""

    def pytest_sessionstart(self) -> None:
        """Mark what this process starts, and note the sockets that listen."""
        os.environ[MARK] = str(os.getpid())
        listen = socket.socket.listen
        listening = self._listening

        def noted(sock: socket.socket, *backlog: int) -> None:
            listening.add(sock)
            listen(sock, *backlog)

        socket.socket.listen = noted  # type: ignore[method-assign]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """Take what the collection and other plugins made as given."""
        self._processes.given()
        self._state = state()
        self._loggers = loggers()
        self._modules = dict(sys.modules)
        self._listening.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        """Note fixtures that last longer than a test."""
        if fixturedef.scope == "function":
            return (yield)
        before = state()
        try:
            return (yield)
        finally:
            if fixturedef.scope in ("session", "package"):
                after = state()
                changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
                self._expect(changed, after)
                fixturedef.addfinalizer(lambda: self._expect(changed, before))
                self._processes.given()
            elif not fixturedef.argname.startswith("_") and fixturedef.argname not in START_NOTHING:
                self._wide.append(fixturedef.argname)
                fixturedef.addfinalizer(lambda: self._wide.remove(fixturedef.argname))

    def _expect(self, keys: Iterable[str], values: Mapping[str, Any]) -> None:
        self._state |= {key: values.get(key) for key in keys}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Look for what the test left, once its fixtures are finished."""
        try:
            done = yield
        except BaseException:  # the test has failed already
            if not self._wide:
                self.found()
            raise
        if not self._wide and (found := self.found()):
            report = "\n".join(f"  {each}" for each in found)
            pytest.fail(f"{item.nodeid} left behind:\n{report}", pytrace=False)
        return done

    def found(self) -> list[str]:
        """End and undo what was left; returns a line for each thing."""
        lines = [f"process {each}" for each in self._processes.end_new()]
        for sock in self._open_sockets():
            lines.append(f"socket that listens on {sock.getsockname()}")
            sock.close()
        now = state()
        for key in sorted(now.keys() | self._state.keys()):
            if (is_now := now.get(key)) != (was := self._state.get(key)):
                if key == "working directory":
                    lines.append(f"{key}: {was!r} became {is_now!r}")
                undo(key, was)
        restore_loggers(self._loggers)
        self._forget_projects()
        return lines

    def _open_sockets(self) -> list[socket.socket]:
        deadline = monotonic() + GRACE_S
        while found := [each for each in self._listening if each.fileno() != -1]:
            gc.collect()
            if monotonic() > deadline:
                break
            sleep(0.05)
        self._listening.clear()
        return found

    def _forget_projects(self) -> None:
        folder = f"{self._config._tmp_path_factory.getbasetemp()}/"  # type: ignore[attr-defined]
        # New ones are behind all others, of which there are thousands.
        new = list(itertools.takewhile(lambda each: each != self._newest, reversed(sys.modules.items())))
        for name, module in reversed(new):
            if self._modules.get(name) is not module:
                if _place(module).startswith(folder):
                    del sys.modules[name]
                else:
                    self._modules[name] = module
        self._newest = next(reversed(sys.modules.items()), None)


def _place(module: ModuleType) -> str:
    """Its file, or the folder of a package without one."""
    names = getattr(module, "__dict__", {})  # a lazy module is not loaded for this
    return str(names.get("__file__") or next(iter(names.get("__path__") or ()), ""))


class Processes:
    """The processes that this one or its children started."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        """Those that were there before, or are not ours."""

    def given(self) -> None:
        """Let those that run now stay."""
        self._seen = pids()

    def end_new(self) -> list[str]:
        """Kill those that still run after a grace; returns how each is called."""
        deadline = monotonic() + GRACE_S
        while found := self._new():
            if monotonic() > deadline:
                break
            sleep(0.05)
        names = [f"{pid}: {command(pid)}" for pid in found]
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return names

    def _new(self) -> list[int]:
        now = pids()
        self._seen &= now
        found = []
        for pid in now - self._seen:
            if is_ours(pid):
                found.append(pid)
            else:
                self._seen.add(pid)
        return found


def pids() -> set[int]:
    """The numbers of all processes."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208 - for speed


def is_ours(pid: int) -> bool:
    """Whether this process, or one that it started, started the process, which still runs."""
    try:
        parent, is_dead = parent_of(pid)
        if is_dead:
            return False
        if is_helper(pid):
            return False
        while parent > 1:
            if parent == os.getpid():
                return True
            if is_database(parent):
                return False
            parent, _ = parent_of(parent)
        if is_database(pid):
            return False
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return f"{MARK}={os.getpid()}".encode() in environment
    except (OSError, ValueError):  # it ended, or is another user's
        return False


def parent_of(pid: int) -> tuple[int, bool]:
    """The parent's number, and whether the process has ended and waits for its parent."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    return int(fields[1]), fields[0] in "ZX"


def command(pid: int) -> str:
    """Its command line, or its name."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")[:200]
    return "ended"


def is_helper(pid: int) -> bool:
    """Whether it is a fork server, or a tracker of multiprocessing: those end with this process."""
    words = command(pid)
    return "fork_server.py" in words or "multiprocessing.resource_tracker" in words


def is_database(pid: int) -> bool:
    """Whether it is a PostgreSQL server of ``support.databases`` or the shell that ends it."""
    return "pallas-pg-" in command(pid) and "pytest" not in command(pid)


def state() -> dict[str, Any]:
    """What of this process tests must leave as it was."""
    found: dict[str, Any] = {
        f"environment variable {name}": value
        for name, value in os.environ.items()
        if not name.startswith("PYTEST_")
    }
    try:
        found["working directory"] = str(Path.cwd())
    except OSError:  # it was deleted
        found["working directory"] = None
    found["sys.path"] = list(dict.fromkeys(sys.path))  # fast-agent removes what is there twice
    found |= {f"handler of {number.name}": signal.getsignal(number) for number in _SIGNALS}
    for module, owner, name, unset in GLOBALS:
        found[f"global {name}"] = getattr(getattr(sys.modules.get(module), owner, None), name, unset)
    return found


def undo(key: str, value: Any) -> None:
    """Set it to what it was; None is absent."""
    what, _, name = key.rpartition(" ")
    match what:
        case "environment variable" if value is None:
            os.environ.pop(name, None)
        case "environment variable":
            os.environ[name] = value
        case "working":
            os.chdir(value or "/")
        case "handler of":
            signal.signal(signal.Signals[name], value)
        case "global":
            module, owner = next((module, owner) for module, owner, known, _ in GLOBALS if known == name)
            setattr(getattr(sys.modules[module], owner), name, value)
        case _:
            sys.path[:] = value


class LoggerState(NamedTuple):
    """What can be set of a logger."""

    level: int
    handlers: list[logging.Handler]
    disabled: bool
    propagate: bool


UNSET: Final = LoggerState(logging.NOTSET, [], disabled=False, propagate=True)


def loggers() -> dict[str, LoggerState]:
    """Those that differ from a new one, by name; pytest's handlers do not count."""
    found = {}
    for name, logger in [("root", logging.root), *logging.root.manager.loggerDict.items()]:
        if isinstance(logger, logging.Logger):
            handlers = [each for each in logger.handlers if not _is_of_pytest(each)]
            now = LoggerState(logger.level, handlers, logger.disabled, logger.propagate)
            if now != UNSET:
                found[name] = now
    return found


def restore_loggers(before: Mapping[str, LoggerState]) -> None:
    """Give each logger what it had."""
    logging.disable(logging.NOTSET)
    now = loggers()
    for name in now.keys() | before.keys():
        if now.get(name) != (wanted := before.get(name, UNSET)):
            logger = logging.root if name == "root" else logging.getLogger(name)
            logger.setLevel(wanted.level)
            logger.handlers[:] = [*wanted.handlers, *filter(_is_of_pytest, logger.handlers)]
            logger.disabled, logger.propagate = wanted.disabled, wanted.propagate


def _is_of_pytest(handler: logging.Handler) -> bool:
    return type(handler).__module__ == "_pytest.logging"
