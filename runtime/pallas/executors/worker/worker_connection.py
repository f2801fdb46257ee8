"""One life of a worker, from its start to its end: its process, what is said to it, and its sessions."""

import asyncio
import logging
import os
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from time import monotonic
from typing import Any, Final

from pallas.config.kinds import WorkerConfig
from pallas.executors.ipc.child_process import (
    ChildProcess,
    children_of,
    end_now,
    log_lines,
    start_below_keeper,
)
from pallas.health.public_reasons import LAST_SAID
from pallas.model import Fault, FaultType
from pallas.model.safe_text import one_line
from pallas.telemetry.log import redact_text

from .json_rpc_peer import METHOD_NOT_FOUND, JsonRpcError, JsonRpcPeer
from .turn_output import TurnOutput
from .worker_dialect import WorkerDialect, detect_dialect
from .worker_limits import WorkerLimits
from .worker_sessions import WorkerSession, WorkerSessions

_LAST_LINES: Final = 20


class WorkerProcess(ChildProcess):
    """A program below a keeper, in a process group of its own, of which nothing outlives this fleet."""

    def __init__(self, agent: str, process: Process, status: int) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        super().__init__(agent, process, status)
        self.stdin, self.stdout = process.stdin, process.stdout
        self._pid: int | None = None
        self.last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        # Nobody looks for anything in its stderr: it goes to the log.
        reading = log_lines(process.stderr, agent, "stderr", clean=_clean, keep=self._keep)
        self._readers = [asyncio.create_task(reading, name=f"{agent}: stderr")]

    @classmethod
    async def start(
        cls, agent: str, command: tuple[str, ...], cwd: Path, env: Mapping[str, str]
    ) -> "WorkerProcess":
        """Start it; ``command`` begins with the path of a program. Raises OSError."""
        reading, writing = os.pipe()
        nothing = os.open(os.devnull, os.O_RDWR)  # in place of the channel that our own children have
        process = None
        try:
            process = await start_below_keeper(
                command, status=writing, channel=nothing, cwd=cwd, stdin=PIPE, env=env
            )
            return cls(agent, process, reading)
        except BaseException:
            os.close(reading)
            end_now(process)
            raise
        finally:
            os.close(writing)
            os.close(nothing)

    @property
    def pid(self) -> int:
        """The program's own, or its keeper's where the system does not tell whose parent that is."""
        if self._pid is None:
            self._pid = next(iter(children_of(self.keeper)), None)
        return self._pid or self.keeper

    @property
    def last_said(self) -> str:
        """The last lines of its stderr in one, for messages; empty where it said nothing."""
        return one_line(" | ".join(list(self.last_lines)[-3:]), 300)

    def hang_up(self) -> None:
        """Close its stdin: most programs take that for the end."""
        self.stdin.close()

    async def close(self) -> None:
        """End it by force if it still is there, with its whole group, and let go of all that is held."""
        self.end(force=True)
        self.stdin.close()
        await self._kill_rest()
        await self._release("was ended")

    def _keep(self, line: str) -> None:
        self.last_lines.append(one_line(line, 200))


def _clean(line: str) -> str:
    return redact_text(line.rstrip("\r"))


log = logging.getLogger(__name__)

# Seconds between the end of its stdout and its own, whichever comes first.
_LAST: Final = 1.0
# Of what closing may take: how much the end of its stdin has, SIGTERM, and force.
_HANG_UP: Final = 1.0
_TERM: Final = 2.0
_FORCE: Final = 0.5


class WorkerConnection:
    """A worker that runs. ``broke`` is told once how it ended, where nobody had asked for that."""

    def __init__(
        self,
        name: str,
        config: WorkerConfig,
        process: WorkerProcess,
        limits: WorkerLimits,
        broke: Callable[[str], None],
    ) -> None:
        self._name = name
        self._config = config
        self._limits = limits
        self._broke = broke
        self._how = ""
        self._leaving = False
        self._chores: set[asyncio.Task[Any]] = set()
        self._dialect: WorkerDialect | None = None
        self.process = process
        self.tellings: dict[str, TurnOutput] = {}
        self.peer = JsonRpcPeer(
            name,
            process.stdout,
            process.stdin,
            limits,
            heard=self._heard,
            asked=self._asked,
            broke=lambda why: process.end(why, force=True),
        )
        self.conversations = WorkerSessions(limits.sessions, self._close_session)
        self._watch = asyncio.create_task(self._mind(), name=f"{name}: worker")

    @classmethod
    async def start(
        cls,
        name: str,
        config: WorkerConfig,
        command: tuple[str, ...],
        env: Mapping[str, str],
        limits: WorkerLimits,
        broke: Callable[[str], None],
    ) -> "WorkerConnection":
        """Start it; it is not spoken to yet. Raises Fault (TRANSPORT)."""
        try:
            process = await WorkerProcess.start(name, command, Path(config.cwd), env)
        except OSError as error:
            raise Fault(
                FaultType.TRANSPORT,
                f"{name}: its worker cannot be started: {error.strerror or type(error).__name__}",
            ) from error
        return cls(name, config, process, limits, broke)

    async def greet(self) -> None:
        """Find out how to speak with it. Raises Fault."""
        self._dialect = await detect_dialect(self._name, self._config, self.peer)

    @property
    def dialect(self) -> WorkerDialect:
        """How it is spoken to, once it was greeted."""
        if self._dialect is None:
            raise Fault(FaultType.TRANSPORT, f"{self._name}: its worker is not ready; try again in a moment")
        return self._dialect

    @property
    def over(self) -> bool:
        """Whether it has ended, or is about to."""
        return bool(self._how) or self._leaving or self.process.ended.done()

    def death(self) -> Fault:
        """What a call is told that it cannot answer any more."""
        text = f"{self._name}: its worker {self._ending()}; try again in a moment"
        return Fault(FaultType.TRANSPORT, text, data={"stage": "worker"}, cause=self._said())

    async def open(self) -> str:
        """The id of a new session there; one that nobody waits for any more is closed again. Raises Fault."""
        opening = self._own(self.dialect.open(), "session")
        try:
            await asyncio.wait({opening})
        except asyncio.CancelledError:
            opening.add_done_callback(self._unwanted)
            raise
        return opening.result()

    def see_off(self, kept: WorkerSession, answer: asyncio.Future[Any]) -> None:
        """A turn was cancelled: ask for its end, and keep its session closed to others until that came.

        One that does not end in time loses its session: the worker may be about that for long.
        """
        self.dialect.cancel(kept.id)
        self._own(self._see_off(kept, answer), "cancelled turn")

    def answered(self, kept: WorkerSession) -> None:
        """A session is free again."""
        self.tellings.pop(kept.id, None)
        kept.lock.release()
        self.conversations.free(kept)

    async def close(self, timeout: float) -> None:
        """Let it finish, then hang up, then ask, then end it, with all that it started.

        In about ``timeout`` seconds: calls in flight have what is left of them after its end.
        """
        self._leaving = True
        until = monotonic() + timeout
        try:
            drain = min(self._limits.drain, timeout - _TERM - _FORCE)
            if drain > 0 and (left := self.peer.in_flight):
                await asyncio.wait(left, timeout=drain)
            if not self.process.ended.done():
                self.process.hang_up()
                await self._ended(min(_HANG_UP, (until - monotonic()) / 2))
            if not self.process.ended.done():
                self.process.end()
                await self._ended(min(_TERM, until - monotonic() - _FORCE))
        finally:  # also for who is cancelled in the middle of it
            self.process.end(force=True)
        await self.process.close()
        self.peer.fail(self.death())
        tasks: set[asyncio.Task[Any]] = {self._watch, *self._chores}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=_LAST)

    def _ending(self) -> str:
        ended = self.process.ended
        how = self._how or (ended.result() if ended.done() else "")
        if not how:
            return "is being stopped"
        return how

    def _said(self) -> str:
        """The last that it wrote to stderr, for operators."""
        said = self.process.last_said
        return f"{LAST_SAID}{said}".removeprefix("; ") if said else ""

    async def _ended(self, seconds: float) -> None:
        if seconds > 0:
            await asyncio.wait({self.process.ended}, timeout=seconds)

    async def _see_off(self, kept: WorkerSession, answer: asyncio.Future[Any]) -> None:
        try:
            done, _ = await asyncio.wait({answer}, timeout=self._limits.cancel)
            if not done or answer.cancelled() or isinstance(answer.exception(), Fault):
                self.conversations.drop(kept)
        finally:
            self.peer.forget(answer)
            self.answered(kept)

    async def _mind(self) -> None:
        """Until it has ended; then everyone who waits for it hears how."""
        process, reading = self.process, self.peer.reading
        both: set[asyncio.Future[Any]] = {process.ended, reading}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(both, timeout=_LAST)  # its last answers, or its last word
        if reading.done() and not reading.cancelled() and (error := reading.exception()) is not None:
            log.error("%s: its stdout cannot be read", self._name, exc_info=error)
        if not process.ended.done():
            process.end("closed its stdout and was ended", force=True)
            await asyncio.wait({process.ended}, timeout=_TERM)
        await process.read_out()
        self._how = process.ended.result() if process.ended.done() else "does not end"
        fault = self.death()
        self.peer.fail(fault)
        if not self._leaving:
            said = self.process.last_said
            how = f"its worker {self._ending()}{LAST_SAID if said else ''}{said}"
            self._broke(one_line(how, 400))

    def _own[T](self, work: Coroutine[Any, Any, T], what: str) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name=f"{self._name}: {what}")
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)
        return task

    def _unwanted(self, opening: asyncio.Task[str]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._close_session(opening.result())

    def _close_session(self, session: str) -> None:
        if not self.over:
            self.dialect.close(session)

    def _heard(self, method: str, params: Mapping[str, Any]) -> None:
        if method == "session/update" and self._dialect is not None and self.tellings:
            found = self._dialect.heard(params)
            telling = self.tellings.get(found[0]) if found is not None else None
            if found is not None and telling is not None:
                self._dialect.tell(found[1], telling)

    def _asked(self, method: str, params: Mapping[str, Any]) -> Any:
        if method == "session/request_permission" and self._dialect is not None:
            session = params.get("sessionId")
            telling = self.tellings.get(session) if isinstance(session, str) else None
            live = telling if telling is not None and not telling.over else None
            return self._dialect.permit(params, live)
        raise JsonRpcError(METHOD_NOT_FOUND, f"Method not found: {one_line(method, 60)}")
