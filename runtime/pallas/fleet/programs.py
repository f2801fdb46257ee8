"""Programs of the project under ``servers:``: started, watched and stopped with the fleet."""

import asyncio
import logging
import os
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from time import monotonic, time
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import httpx2

from pallas.config import ServerConfig
from pallas.config.command import program_problem
from pallas.config.files import is_file, shown
from pallas.model import AgentState, Notice, ServerSnapshot
from pallas.model.redaction import redact_text
from pallas.processes.child_environment import program_environment, withheld_in
from pallas.safe_text import one_line, sanitize
from pallas.telemetry.event_hub import EventHub
from pallas.telemetry.log.server_output import server_lines

from .parent_death import leashed
from .reload.import_scan import command_files
from .supervisor.restart_policy import AfterFailure, RestartPolicy

log = logging.getLogger(__name__)

_LINE_LIMIT: Final = 64 * 1024
_TERM_TIMEOUT: Final = 2.0
_POLL: Final = 0.03
_AGAIN: Final = "; it is started again"
# Seconds for what a program that ended wrote last; a child of it may keep its output open.
_LAST_LINES_S: Final = 5.0


class Program:
    """One entry of ``servers:`` as a child process in its own group, started again when it fails.

    Its output goes to the log, line by line. ``start`` returns when its URL answers, or when it is clear that
    it does not for now; ``state`` and ``error`` tell which. Notices report what happens later.
    """

    def __init__(self, config: ServerConfig, hub: EventHub | None = None) -> None:
        self.config = config
        self.state = AgentState.WAITING
        self.since = time()
        self.error = ""
        self._hub = hub
        self._policy = RestartPolicy(config.restart)
        self._restarts = 0
        self._restart_at: float | None = None
        self._process: Process | None = None
        self._life: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._last_line = ""

    def adopt(self, config: ServerConfig) -> None:
        """Follow this configuration from now on; it differs in what needs no other process."""
        if self.config.restart != config.restart:
            self._policy.adopt(config.restart)
        self.config = config

    def snapshot(self) -> ServerSnapshot:
        """The program as a value. Safe from any thread."""
        process = self._process
        return ServerSnapshot(
            name=self.config.name,
            state=self.state,
            url=self.config.url,
            pid=process.pid if process is not None and process.returncode is None else None,
            error=self.error,
            transport=self.config.transport,
            since=self.since,
            restarts=self._restarts,
            crashes=self._policy.crashes,
            restart_at=self._restart_at,
        )

    async def start(self) -> None:
        """Start it and wait until its URL answers, ``start_timeout`` at most. Never raises."""
        self._life = asyncio.create_task(self._live(), name=f"server {self.config.name}")
        await self._settled.wait()

    async def stop(self) -> None:
        """SIGTERM to its whole group, then SIGKILL; returns when it is gone."""
        if self._life is None:
            return
        self._move(AgentState.STOPPING)
        self._life.cancel()
        await asyncio.wait({self._life})  # it ends its process, within bounds of its own
        self._life = None
        self._restart_at = None
        self._move(AgentState.STOPPED)

    async def _live(self) -> None:
        """Run it again and again, as its policy says."""
        while True:
            try:
                well = await self._run()
            except _Wrong as wrong:  # nothing but an edit helps
                self._fail(AgentState.ERROR, str(wrong))
                return
            except Exception as error:
                log.exception("server %s: it could not be supervised", self.config.name)
                self.error, well = f"internal error ({type(error).__name__})", False
            decision = self._policy.ended() if well else self._policy.failed()
            if decision.after is AfterFailure.STAY_DOWN:
                self._fail(AgentState.STOPPED if well else AgentState.ERROR, self.error)
                return
            if decision.after is AfterFailure.CRASH_LOOP:
                within = f"{self.config.restart.within:g} s"
                self._fail(
                    AgentState.CRASH_LOOP,
                    f"{self.error}; failure {decision.crashes} within {within}, so it stays down: fix "
                    f"it, then start the fleet again or save {self.config.where.file}",
                )
                return
            self._restart_at = time() + decision.delay_s
            self._fail(AgentState.BACKOFF, f"{self.error}{_AGAIN} in {decision.delay_s:.1f} s")
            await asyncio.sleep(decision.delay_s)
            self._restart_at = None
            self._restarts += 1

    async def _run(self) -> bool:
        """One life of the process; whether it ended well. Raises _Wrong."""
        self._move(AgentState.CONNECTING)
        process = await self._spawn()
        self._process, self._last_line = process, ""
        assert process.stdout is not None
        assert process.stderr is not None
        readers = [
            asyncio.create_task(self._read(process.stdout, "stdout")),
            asyncio.create_task(self._read(process.stderr, "stderr")),
        ]
        try:
            if await self._answers(process):
                self._ready()
                await _exit_of(process)
            if process.returncode is not None:
                await asyncio.wait(readers, timeout=_LAST_LINES_S)
                last = f": {self._last_line}" if self._last_line else ""
                self.error = one_line(redact_text(f"it ended {_how(process.returncode)}{last}"), 300)
                if hint := withheld_in([self._last_line], program_environment(self.config.env)):
                    log.warning("server %s: %s", self.config.name, hint)
            return process.returncode == 0
        finally:
            await self._end(process)
            for reader in readers:
                reader.cancel()

    async def _spawn(self) -> Process:
        program = self.config.command[0]
        search = os.pathsep.join((self.config.env.get("PATH", ""), os.environ.get("PATH", "")))
        if shutil.which(program, path=search) is None and not (self.config.cwd / program).is_file():
            raise _Wrong(f"{program}: no such program; correct command at {self.config.where}")
        try:
            return await asyncio.create_subprocess_exec(
                *leashed(_command(self.config)),
                cwd=self.config.cwd,
                env=program_environment(self.config.env),
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=PIPE,
                limit=_LINE_LIMIT,
                start_new_session=True,
            )
        except OSError as error:
            raise _Wrong(f"{program}: {error.strerror or error}; see {self.config.where}") from error

    async def _answers(self, process: Process) -> bool:
        """Whether its URL answers before it ends and before ``start_timeout``; ``error`` says why not."""
        deadline = monotonic() + self.config.start_timeout
        async with httpx2.AsyncClient(timeout=1.0, trust_env=False, verify=False) as client:
            while monotonic() < deadline:
                if process.returncode is not None:
                    return False
                try:
                    async with client.stream("GET", self.config.url):
                        return True
                except httpx2.HTTPError:
                    await asyncio.sleep(_POLL)
        self.error = (
            f"{self.config.url} did not answer within {self.config.start_timeout:g} s; "
            f"correct url or start_timeout at {self.config.where}"
        )
        return False

    def _ready(self) -> None:
        self._policy.well()
        self.error = ""
        self._move(AgentState.READY)
        log.info("server %s is ready at %s", self.config.name, self.config.url)
        if self._restarts:
            self._tell("info", "it is back")
        self._settled.set()

    async def _end(self, process: Process) -> None:
        """End its whole group: what it left behind there goes too, whether or not the leader went."""
        try:
            if process.returncode is None:
                _signal(process, signal.SIGTERM)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_TERM_TIMEOUT):
                        await _exit_of(process)
        finally:  # also when the caller is cancelled
            _signal(process, signal.SIGKILL)
        with suppress(TimeoutError):
            async with asyncio.timeout(_TERM_TIMEOUT):
                await _exit_of(process)

    def _fail(self, state: AgentState, reason: str) -> None:
        self.error = one_line(redact_text(reason), 400)
        self._move(state)
        if state is AgentState.STOPPED:
            log.info("server %s: %s", self.config.name, self.error)
        else:
            log.error("server %s: %s", self.config.name, self.error)
            self._tell("warning" if state is AgentState.BACKOFF else "error", self.error)
        self._settled.set()

    def _tell(self, level: Literal["info", "warning", "error"], text: str) -> None:
        if self._hub is not None:
            text = one_line(f"server {self.config.name}: {text}", 400)
            self._hub.publish(Notice(level=level, text=text))

    def _move(self, state: AgentState) -> None:
        self.state, self.since = state, time()

    async def _read(self, stream: asyncio.StreamReader, source: str) -> None:
        log = server_lines(self.config.name, source)
        while True:
            try:
                raw = await stream.readline()
            except ValueError:  # a line over the limit is dropped
                continue
            if not raw:
                log.flush()
                return
            line = sanitize(raw.decode(errors="replace").rstrip("\n"), 8_192)
            if line.strip():
                self._last_line = one_line(redact_text(line), 160)
                log.take(line)


class Programs:
    """The programs under ``servers:`` of one project, by name. Belongs to the fleet's event loop.

    With ``here`` false another process runs them, and this has none, also after a reload.
    """

    def __init__(self, servers: Mapping[str, ServerConfig], hub: EventHub, *, here: bool = True) -> None:
        self._hub = hub
        self._here = here
        self._by_name = {name: Program(each, hub) for name, each in servers.items()} if here else {}
        self.were_started = asyncio.Event()
        """Set once each program answers, or does not for now."""

    def __iter__(self) -> Iterator[Program]:
        return iter(tuple(self._by_name.values()))

    async def start(self) -> None:
        """Start all of them; what goes wrong with one keeps no other from its start."""
        try:
            await _all(program.start() for program in self)
        finally:
            self.were_started.set()

    async def change(
        self, stop: Iterable[str], restart: Mapping[str, Sequence[str]], servers: Mapping[str, ServerConfig]
    ) -> None:
        """Stop some programs, and start others as ``servers`` says now; ``restart`` gives the reasons."""
        if not self._here:
            return
        for name, program in self._by_name.items():
            # One that was kept goes on as it was started.
            if name in servers and name not in restart and _run_of(program.config) == _run_of(servers[name]):
                program.adopt(servers[name])
        leaving = [self._by_name.pop(name) for name in stop if name in self._by_name]
        await _all(program.stop() for program in leaving)
        await _all(self._exchange(servers[name], why) for name, why in restart.items())
        self._by_name = {name: self._by_name[name] for name in servers if name in self._by_name}

    async def _exchange(self, config: ServerConfig, why: Sequence[str]) -> None:
        """Start a program as ``config`` says; one that runs goes on, or comes back, if this one does not."""
        name, reasons = config.name, ", ".join(why)
        before, fresh = self._by_name.get(name), Program(config, self._hub)
        if before is None or before.state is not AgentState.READY:
            if before is not None:
                await before.stop()
            self._by_name[name] = fresh
            log.info("server %s: started again because of %s", name, reasons)
            await fresh.start()
            return
        if problem := await asyncio.to_thread(_unfit, config):
            self._keep(before, f"{problem}; the running program stays in use")
            return
        apart = _port_of(config) != _port_of(before.config)
        if not apart:
            await before.stop()
            self._by_name[name] = fresh
        log.info("server %s: started again because of %s", name, reasons)
        await fresh.start()
        if fresh.state is AgentState.READY:
            self._by_name[name] = fresh
            if apart:
                await before.stop()
        elif apart:
            await fresh.stop()
            self._keep(before, f"{_why(fresh)}; the running program stays in use at {before.config.url}")
        elif _run_of(config) != _run_of(before.config):
            await self._bring_back(before.config, fresh)
        else:
            why = "its own files changed, so it cannot run as before: correct them"
            self._say(f"server {name}: {_why(fresh)}; {why}")

    async def _bring_back(self, config: ServerConfig, failed: Program) -> None:
        """Run a program as it was in place of one that did not start; the files are those of now."""
        await failed.stop()
        back = self._by_name[config.name] = Program(config, self._hub)
        await back.start()
        if back.state is AgentState.READY:
            self._keep(back, f"{_why(failed)}; it runs again as it did before")

    def _keep(self, program: Program, text: str) -> None:
        self._say(f"server {program.config.name}: not restarted: {text}")

    def _say(self, text: str) -> None:
        text = one_line(text, 400)
        log.error("%s", text)
        self._hub.publish(Notice(level="error", text=text))


class _Wrong(Exception):
    """It cannot be started at all, and trying again would not help."""


def _unfit(config: ServerConfig) -> str:
    """Why a program cannot be started, as far as its files show. Blocks."""
    if problem := program_problem(config.command, config.cwd, config.env.get("PATH")):
        return f"{problem} ({config.where})"
    for path in sorted(command_files(config.command, config.cwd, config.cwd)):
        if path.suffix == ".py" and is_file(path):
            name = shown(config.cwd, path)
            try:
                compile(path.read_bytes(), path.name, "exec", dont_inherit=True)
            except SyntaxError as error:
                return f"{name}:{error.lineno}: is not valid Python: {error.msg}"
            except (OSError, ValueError) as error:
                return f"{name}: cannot be read: {type(error).__name__}"
    return ""


def _why(program: Program) -> str:
    """Why a program that was ended did not start."""
    return program.error.partition(_AGAIN)[0]


def _port_of(config: ServerConfig) -> tuple[str | None, int | None]:
    parts = urlsplit(config.url)
    return parts.hostname, parts.port


def _run_of(config: ServerConfig) -> tuple[Any, ...]:
    """What decides which process runs."""
    return config.command, config.cwd, config.env, config.transport, config.url


def _signal(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


async def _exit_of(process: Process) -> None:
    """Until it has ended; the caller bounds it.

    ``Process.wait`` waits for its pipes as well, which a child that it left behind may hold open for ever.
    """
    while process.returncode is None:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(_POLL)


def _how(status: int) -> str:
    """How a process ended, in words."""
    if status >= 0:
        return f"with status {status}"
    try:
        return f"by {signal.Signals(-status).name}"
    except ValueError:
        return f"by signal {-status}"


def _command(config: ServerConfig) -> tuple[str, ...]:
    """The command to run: a server that speaks over standard streams is served by our bridge."""
    if config.transport == "http":
        return config.command
    return (sys.executable, "-P", "-m", "pallas.stdio_bridge", config.url, *config.command)


async def _all(work: Iterable[Awaitable[None]]) -> None:
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(outcome, Exception):
            log.error("a program of the project: %s", outcome, exc_info=outcome)
