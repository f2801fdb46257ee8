"""A running worker: its process, its dialect and its sessions, from its start to its end."""

import asyncio
import logging
import os
import re
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from pallas.config.kinds import WorkerConfig
from pallas.deadlines import cancel_and_wait
from pallas.executors.ipc.child_process import (
    ChildProcess,
    children_of,
    log_lines,
    start_below_keeper,
)
from pallas.health.public_reasons import LAST_SAID
from pallas.model import Fault, FaultType
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line

from .json_rpc_peer import METHOD_NOT_FOUND, JsonRpcError, JsonRpcPeer
from .turn_output import TurnOutput
from .worker_dialect import SimpleDialect, WorkerDialect
from .worker_limits import WorkerLimits
from .worker_sessions import WorkerSession, WorkerSessions

if TYPE_CHECKING:
    from .acp_dialect import AcpDialect

log = logging.getLogger(__name__)

_LAST_LINES: Final = 20
# Between the end of its stdout and its own end, whichever comes first.
_LAST_S: Final = 1.0
# When it is closed: after the end of its stdin, after SIGTERM, and for its end by force.
_HANG_UP_S: Final = 1.0
_TERM_S: Final = 2.0
_FORCE_S: Final = 0.5
_UNKNOWN: Final = re.compile(
    r"\b(?:unknown|unsupported|invalid|no such)\s+method\b"
    r"|\bmethod\b.{0,60}\b(?:not (?:found|known|supported|implemented)|unknown|unsupported)\b",
    re.IGNORECASE,
)
_HINT: Final = "set dialect: ndjson for a worker that does not speak the Agent Client Protocol"


class WorkerChild(ChildProcess):
    """The program of a worker, below a keeper, with pipes for stdin and stdout."""

    def __init__(self, agent: str, process: Process, status: int) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        super().__init__(agent, process, status)
        self.stdin, self.stdout = process.stdin, process.stdout
        self._pid: int | None = None
        self.last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        # No code reads its stderr: it goes to the log.
        reading = log_lines(process.stderr, agent, "stderr", clean=_clean, on_line=self._keep_line)
        self._readers = [asyncio.create_task(reading, name=f"{agent}: stderr")]

    @classmethod
    async def start(
        cls, agent: str, command: tuple[str, ...], cwd: Path, env: Mapping[str, str]
    ) -> "WorkerChild":
        """Start it; ``command`` begins with the path of a program. Raises OSError."""
        nothing = os.open(os.devnull, os.O_RDWR)  # in place of the channel that children of Pallas have
        try:
            process, status = await start_below_keeper(command, channel=nothing, cwd=cwd, stdin=PIPE, env=env)
        finally:
            os.close(nothing)
        return cls(agent, process, status)

    @property
    def pid(self) -> int:
        """The program's pid, or its keeper's if the system does not say which children that has."""
        if self._pid is None:
            self._pid = next(iter(children_of(self.keeper)), None)
        return self._pid or self.keeper

    @property
    def last_said(self) -> str:
        """The last lines of its stderr in one line, for messages; empty if there are none."""
        return one_line(" | ".join(list(self.last_lines)[-3:]), 300)

    def hang_up(self) -> None:
        """Close its stdin, which ends most programs."""
        self.stdin.close()

    async def close(self) -> None:
        """End it by force if it still runs, with its whole group, and release all that is held for it."""
        self.end(force=True)
        self.stdin.close()
        await self._kill_rest()
        await self._release("was ended")

    def _keep_line(self, line: str) -> None:
        self.last_lines.append(one_line(line, 200))


def _clean(line: str) -> str:
    return redact_text(line.rstrip("\r"))


class WorkerConnection:
    """A running worker. ``on_end`` gets how it ended, once, unless it was closed."""

    def __init__(
        self,
        name: str,
        config: WorkerConfig,
        process: WorkerChild,
        limits: WorkerLimits,
        on_end: Callable[[str], None],
    ) -> None:
        self._name = name
        self._config = config
        self._limits = limits
        self._on_end = on_end
        self._ended = ""
        self._is_leaving = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._dialect: WorkerDialect | None = None
        self.process = process
        self.outputs: dict[str, TurnOutput] = {}
        self.peer = JsonRpcPeer(
            name,
            process.stdout,
            process.stdin,
            limits,
            on_notification=self._on_notification,
            on_request=self._on_request,
            on_broken=lambda why: process.end(why, force=True),
        )
        self.sessions = WorkerSessions(limits.sessions, self._close_session)
        self._watcher = asyncio.create_task(self._watch(), name=f"{name}: worker")

    @classmethod
    async def start(
        cls,
        name: str,
        config: WorkerConfig,
        command: tuple[str, ...],
        env: Mapping[str, str],
        limits: WorkerLimits,
        on_end: Callable[[str], None],
    ) -> "WorkerConnection":
        """Start it, without a handshake. Raises Fault (TRANSPORT)."""
        try:
            process = await WorkerChild.start(name, command, Path(config.cwd), env)
        except OSError as error:
            raise Fault(
                FaultType.TRANSPORT,
                f"{name}: its worker cannot be started: {error.strerror or type(error).__name__}",
            ) from error
        return cls(name, config, process, limits, on_end)

    async def greet(self) -> None:
        """Find out its dialect. Raises Fault: TRANSPORT if it ended by itself, whatever it wrote before."""
        try:
            self._dialect = await detect_dialect(self._name, self._config, self.peer)
        except Fault as fault:
            if fault.type is not FaultType.PROTOCOL:
                raise
            await asyncio.wait({self._watcher}, timeout=_LAST_S)
            if not self._ended or self.process.was_ended:
                raise
            text = f"{fault.message}; then it {self._ended}"
            raise Fault(
                FaultType.TRANSPORT, text, data={"stage": "worker"}, cause=self._stderr_hint()
            ) from None

    @property
    def dialect(self) -> WorkerDialect:
        """Its dialect, once ``greet`` has run. Raises Fault before."""
        if self._dialect is None:
            raise Fault(FaultType.TRANSPORT, f"{self._name}: its worker is not ready; try again in a moment")
        return self._dialect

    @property
    def is_ended(self) -> bool:
        """Whether it has ended, or is about to."""
        return bool(self._ended) or self._is_leaving or self.process.ended.done()

    def end_fault(self) -> Fault:
        """Return the Fault for calls that it cannot answer any more."""
        text = f"{self._name}: its worker {self._how_it_ended()}; try again in a moment"
        return Fault(FaultType.TRANSPORT, text, data={"stage": "worker"}, cause=self._stderr_hint())

    async def crash(self) -> None:
        """Have it end as by SIGKILL; returns when that was noticed."""
        self.process.end(force=True)
        await asyncio.wait({self._watcher}, timeout=_LAST_S + _TERM_S)

    async def open(self) -> str:
        """Open a session there and return its id; it is closed again if this is cancelled. Raises Fault."""
        opening = self._start_task(self.dialect.open(), "session")
        try:
            await asyncio.wait({opening})
        except asyncio.CancelledError:
            opening.add_done_callback(self._close_unwanted)
            raise
        return opening.result()

    def cancel_turn(self, session: WorkerSession, answer: asyncio.Future[Any]) -> None:
        """Cancel a turn there; its session takes no other turn until the worker has ended this one.

        If the worker does not end it in time, the session is dropped: it may be busy for long.
        """
        self.dialect.cancel(session.id)
        self._start_task(self._wait_cancelled(session, answer), "cancelled turn")

    def finish_turn(self, session: WorkerSession) -> None:
        """Free the session of a turn that is over."""
        self.outputs.pop(session.id, None)
        session.lock.release()
        self.sessions.free(session)

    async def close(self, timeout_s: float) -> None:
        """Let its calls finish, then close its stdin, then send SIGTERM, then end it and all that it started.

        All in about ``timeout_s`` seconds; calls in flight get what is left of that after the other steps.
        """
        self._is_leaving = True
        until = monotonic() + timeout_s
        try:
            drain = min(self._limits.drain, timeout_s - _TERM_S - _FORCE_S)
            if drain > 0 and (left := self.peer.in_flight):
                await asyncio.wait(left, timeout=drain)
            if not self.process.ended.done():
                self.process.hang_up()
                await self._wait_ended(min(_HANG_UP_S, (until - monotonic()) / 2))
            if not self.process.ended.done():
                self.process.end()
                await self._wait_ended(min(_TERM_S, until - monotonic() - _FORCE_S))
        finally:  # also when the caller is cancelled
            self.process.end(force=True)
        await self.process.close()
        self.peer.fail(self.end_fault())
        tasks: set[asyncio.Task[Any]] = {self._watcher, *self._tasks}
        await cancel_and_wait(*tasks, seconds=_LAST_S)

    def _how_it_ended(self) -> str:
        ended = self.process.ended
        how = self._ended or (ended.result() if ended.done() else "")
        if not how:
            return "is being stopped"
        return how

    def _stderr_hint(self) -> str:
        """The last lines of its stderr, for operators."""
        last_line = self.process.last_said
        return f"{LAST_SAID}{last_line}".removeprefix("; ") if last_line else ""

    async def _wait_ended(self, seconds: float) -> None:
        if seconds > 0:
            await asyncio.wait({self.process.ended}, timeout=seconds)

    async def _wait_cancelled(self, session: WorkerSession, answer: asyncio.Future[Any]) -> None:
        try:
            done, _ = await asyncio.wait({answer}, timeout=self._limits.cancel)
            if not done or answer.cancelled() or isinstance(answer.exception(), Fault):
                self.sessions.drop(session)
        finally:
            self.peer.forget(answer)
            self.finish_turn(session)

    async def _watch(self) -> None:
        """Wait until it has ended, then fail all calls that wait for it."""
        process, reading = self.process, self.peer.reading
        both: set[asyncio.Future[Any]] = {process.ended, reading}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(both, timeout=_LAST_S)  # its last answers, or its exit
        if reading.done() and not reading.cancelled() and (error := reading.exception()) is not None:
            log.error("%s: its stdout cannot be read", self._name, exc_info=error)
        if not process.ended.done():
            process.end("closed its stdout and was ended", force=True)
            await asyncio.wait({process.ended}, timeout=_TERM_S)
        await process.read_out()
        self._ended = process.ended.result() if process.ended.done() else "does not end"
        fault = self.end_fault()
        self.peer.fail(fault)
        if not self._is_leaving:
            last_line = self.process.last_said
            how = f"its worker {self._how_it_ended()}{LAST_SAID if last_line else ''}{last_line}"
            self._on_end(one_line(how, 400))

    def _start_task[T](self, work: Coroutine[Any, Any, T], what: str) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name=f"{self._name}: {what}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _close_unwanted(self, opening: asyncio.Task[str]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._close_session(opening.result())

    def _close_session(self, session: str) -> None:
        if not self.is_ended:
            self.dialect.close(session)

    def _on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        if method == "session/update" and self._dialect is not None and self.outputs:
            found = self._dialect.parse_update(params)
            output = self.outputs.get(found[0]) if found is not None else None
            if found is not None and output is not None:
                self._dialect.report(found[1], output)

    def _on_request(self, method: str, params: Mapping[str, Any]) -> Any:
        if method == "session/request_permission" and self._dialect is not None:
            session = params.get("sessionId")
            output = self.outputs.get(session) if isinstance(session, str) else None
            live = output if output is not None and not output.is_ended else None
            return self._dialect.permit(params, live)
        raise JsonRpcError(METHOD_NOT_FOUND, f"Method not found: {one_line(method, 60)}")


async def detect_dialect(name: str, config: WorkerConfig, peer: JsonRpcPeer) -> WorkerDialect:
    """Return the dialect of a worker that was just started.

    If it is not configured, the answer to ``initialize`` decides: with a ``protocolVersion`` it is ACP;
    without one, or with an error that says that there is no such method, it is the simple one. Raises Fault:
    TIMEOUT if the worker does not answer, UPSTREAM for another error, PROTOCOL for an answer that cannot be
    read.
    """
    if config.dialect == "ndjson":
        return SimpleDialect(name, config, peer)
    # The schema of ACP takes a while to import, and only workers that speak it need it.
    acp_dialect = await asyncio.to_thread(_import_acp)
    try:
        said = await peer.call("initialize", acp_dialect.initialize_params(), config.request_timeout)
    except JsonRpcError as refused:
        if config.dialect == "auto" and _is_unknown(refused):
            return SimpleDialect(name, config, peer)
        raise Fault(
            FaultType.UPSTREAM,
            f"{name}: the worker answered initialize with an error: {refused.message}; {_HINT}",
            data={"stage": "initialize", "upstreamCode": refused.code},
        ) from None
    except Fault as fault:
        if fault.type not in (FaultType.TIMEOUT, FaultType.TRANSPORT):
            raise
        raise Fault(fault.type, f"{fault.message}; {_HINT}", data=fault.data, cause=fault.cause) from None
    if isinstance(said, dict) and "protocolVersion" in said:
        return acp_dialect(name, config, peer, said)
    if config.dialect == "auto":
        return SimpleDialect(name, config, peer, said)
    raise Fault(
        FaultType.PROTOCOL,
        f"{name}: the worker's answer to initialize has no protocolVersion: {_shown(said)}; {_HINT}",
        data={"stage": "initialize"},
    )


def _is_unknown(refused: JsonRpcError) -> bool:
    """Return whether it says that there is no such method; some workers use another code for that."""
    return refused.code == METHOD_NOT_FOUND or _UNKNOWN.search(refused.message) is not None


def _shown(said: Any) -> str:
    return one_line(repr(said), 80)


def _import_acp() -> "type[AcpDialect]":
    from .acp_dialect import AcpDialect

    return AcpDialect
