"""Programs of the project that run beside the agents: started, watched and stopped with the fleet."""

import asyncio
import logging
import os
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

import httpx2

from pallas.config import ServerConfig
from pallas.log import redact_text
from pallas.model import AgentState, ServerSnapshot
from pallas.text import one_line, sanitize

from . import leash

log = logging.getLogger(__name__)

_LINE_LIMIT: Final = 64 * 1024
_TERM_TIMEOUT: Final = 2.0
_POLL: Final = 0.1


def _leashed(command: tuple[str, ...]) -> tuple[str, ...]:
    """The command as a child that does not outlive us, even when we are killed."""
    if sys.platform != "linux":
        return command
    return (sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), *command)


class Program:
    """One entry of ``servers:`` as a child process in a group of its own.

    Its output goes to the log, line by line. ``start`` returns when its URL answers, or when it is
    clear that it will not; ``state`` and ``error`` tell which.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.state = AgentState.WAITING
        self.error = ""
        self._process: Process | None = None
        self._readers: list[asyncio.Task[None]] = []
        self._watch: asyncio.Task[None] | None = None
        self._last_line = ""

    def snapshot(self) -> ServerSnapshot:
        """The program as a value. Safe from any thread."""
        process = self._process
        return ServerSnapshot(
            name=self.config.name,
            state=self.state,
            url=self.config.url,
            pid=process.pid if process is not None and process.returncode is None else None,
            error=self.error,
        )

    async def start(self) -> None:
        """Start it and wait until its URL answers, ``start_timeout`` at most. Never raises."""
        self.state = AgentState.CONNECTING
        program = self.config.command[0]
        search = os.pathsep.join((self.config.env.get("PATH", ""), os.environ.get("PATH", "")))
        if shutil.which(program, path=search) is None and not (self.config.cwd / program).is_file():
            self._fail(f"{program}: no such program; correct command at {self.config.where}")
            return
        try:
            self._process = await asyncio.create_subprocess_exec(
                *_leashed(self.config.command),
                cwd=self.config.cwd,
                env={**os.environ, **self.config.env},
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=PIPE,
                limit=_LINE_LIMIT,
                start_new_session=True,
            )
        except OSError as error:
            self._fail(f"{program}: {error.strerror or error}; see {self.config.where}")
            return
        process = self._process
        assert process.stdout is not None
        assert process.stderr is not None
        self._readers = [
            asyncio.create_task(self._read(process.stdout, "stdout")),
            asyncio.create_task(self._read(process.stderr, "stderr")),
        ]
        self._watch = asyncio.create_task(self._wait(process))
        if await self._answers(process):
            self.state = AgentState.READY
            log.info("server %s is ready at %s", self.config.name, self.config.url)

    async def stop(self) -> None:
        """SIGTERM to its whole group, then SIGKILL; returns when it is gone."""
        process = self._process
        if process is None:
            return
        self.state = AgentState.STOPPING
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_TERM_TIMEOUT):
                await process.wait()
        except TimeoutError:
            pass
        # What it left behind in its group goes too, whether or not the leader went by itself.
        self._signal(signal.SIGKILL)
        with suppress(TimeoutError):
            async with asyncio.timeout(_TERM_TIMEOUT):
                await process.wait()
        for task in (*self._readers, self._watch):
            if task is not None:
                task.cancel()
        self.state = AgentState.STOPPED

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    async def _answers(self, process: Process) -> bool:
        deadline = monotonic() + self.config.start_timeout
        async with httpx2.AsyncClient(timeout=1.0, trust_env=False) as client:
            while monotonic() < deadline:
                if process.returncode is not None:
                    await self._ended(process)
                    return False
                try:
                    async with client.stream("GET", self.config.url):
                        return True
                except httpx2.HTTPError:
                    await asyncio.sleep(_POLL)
        self._fail(
            f"{self.config.url} did not answer within {self.config.start_timeout:g} s; "
            f"correct url or start_timeout at {self.config.where}"
        )
        return False

    async def _wait(self, process: Process) -> None:
        await process.wait()
        if self.state is AgentState.READY:
            await self._ended(process)

    async def _ended(self, process: Process) -> None:
        await asyncio.wait(self._readers, timeout=1.0)
        last = f": {self._last_line}" if self._last_line else ""
        self._fail(f"it ended with status {process.returncode}{last}")

    def _fail(self, reason: str) -> None:
        self.error, self.state = one_line(redact_text(reason), 300), AgentState.ERROR
        log.error("server %s: %s", self.config.name, self.error)

    async def _read(self, stream: asyncio.StreamReader, source: str) -> None:
        logger = logging.getLogger(f"pallas.servers.{self.config.name}")
        while True:
            try:
                raw = await stream.readline()
            except ValueError:  # a line over the limit: what was read of it is dropped
                continue
            if not raw:
                return
            line = sanitize(raw.decode(errors="replace").rstrip("\n"), 8_192)
            if line.strip():
                self._last_line = one_line(redact_text(line), 160)
                logger.info("%s", line, extra={"source": source})


def children_use_our_python() -> None:
    """Let ``command: python`` of a project mean the interpreter that runs Pallas."""
    ours = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", os.defpath)
    if path.split(os.pathsep)[0] != ours:
        os.environ["PATH"] = ours + os.pathsep + path
