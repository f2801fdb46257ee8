"""The executor of an agent that is a program."""

import asyncio
import logging
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pallas.config import AgentConfig, Project
from pallas.config.kinds import WorkerConfig
from pallas.executors.faults.fault_injection import current_injection, pause
from pallas.executors.faults.provider_failures import GARBAGE
from pallas.model import Fault, FaultType, Message
from pallas.model.fault_rules import FaultKind
from pallas.model.redaction import forget, is_sensitive, redact
from pallas.processes.child_environment import program_environment, withheld_in

from ..base import Emit, Executor, ExecutorInfo, ExecutorTurn, TurnResult
from ..metered_work import metered_work
from .json_rpc_peer import JsonRpcError
from .turn_output import TurnOutput, history_block
from .worker_connection import WorkerConnection
from .worker_limits import LIMITS, WorkerLimits
from .worker_sessions import WorkerSession

log = logging.getLogger(__name__)

_INTERNAL_ERROR: Final = -32603


class WorkerExecutor(Executor):
    """Has turns answered by a worker, each conversation in a session of its own there (DR-28).

    If the session does not know the conversation, the turn begins with its history. A turn that is cancelled
    is cancelled there. When the worker ends, its turns fail with a Fault (TRANSPORT) that says how it ended.
    """

    def __init__(self, project: Project, config: AgentConfig, limits: WorkerLimits = LIMITS) -> None:
        if config.worker is None:
            raise Fault(FaultType.CONFIG, f"{config.where}: {config.name} has no command of a worker")
        self._name = config.name
        self._config: WorkerConfig = config.worker
        self._where = config.where
        self._root = project.root
        self._limits = limits
        self._info = ExecutorInfo(capacity=config.worker.capacity)
        self._room = asyncio.Semaphore(config.worker.capacity)
        self._waiting = 0
        self._connection: WorkerConnection | None = None
        self._is_started = False
        self._is_closing = False
        self._secrets: tuple[str, ...] = ()
        self._params_left_out: set[str] = set()
        self._on_failure: Callable[[str], None] | None = None

    @property
    def pid(self) -> int | None:
        """The worker's process, None while there is none."""
        connection = self._connection
        return connection.process.pid if connection is not None and not connection.is_ended else None

    @property
    def info(self) -> ExecutorInfo:
        """The facts about the worker; what it says of itself is known after ``start``."""
        return self._info

    @property
    def waiting(self) -> int:
        """Runs that wait for room."""
        return self._waiting

    async def load(self, *, fresh: bool = False) -> None:
        """Look for the program. Raises Fault (CONFIG) if there is none."""
        await asyncio.to_thread(self._command)
        files = tuple(await asyncio.to_thread(self._files))
        self._info = replace(self._info, files=files, defined=files[0] if files else "")

    async def start(self) -> None:
        """Start it and find out its dialect.

        Raises Fault: CONFIG for a command that cannot be run, TIMEOUT if it does not answer within
        ``request_timeout``, TRANSPORT if it ends, PROTOCOL if it writes something that is no message.
        """
        if self._is_closing:
            raise Fault(FaultType.TRANSPORT, f"{self._name} is stopping")
        if self._connection is not None:
            await self._connection.close(0)
        command = await asyncio.to_thread(self._command)
        if not self._secrets:
            env = self._config.env
            self._secrets = tuple(value for name, value in env.items() if is_sensitive(name))
            redact(*self._secrets)
        connection = self._connection = await WorkerConnection.start(
            self._name, self._config, command, self._environment(), self._limits, self._connection_ended
        )
        try:
            if self._is_closing:  # closed during the start, when there was nothing to end
                raise Fault(FaultType.TRANSPORT, f"{self._name} is stopping")
            await connection.greet()
        except BaseException:
            await connection.close(0)  # then all that it wrote is read
            if hint := withheld_in(connection.process.last_lines, self._environment()):
                log.warning("%s: %s", self._name, hint, extra={"agent": self._name})
            raise
        dialect = connection.dialect
        self._info = replace(
            self._info, vision=dialect.vision, model=dialect.model, capabilities=dialect.capabilities
        )
        self._is_started = True

    async def run(self, turn: ExecutorTurn, emit: Emit) -> TurnResult:
        """Answer one turn there. Raises Fault.

        Cancelling this does not wait for the worker, which has ``limits.cancel`` seconds to stop.
        """
        self._waiting += 1
        try:
            await self._room.acquire()
        finally:
            self._waiting -= 1
        try:
            connection = self._alive()
            async with metered_work(turn, self._info.model) as work:
                session = await self._session(connection, turn)
                result = await self._answer(connection, session, turn, emit)
                work.take(result.usage, result.texts)
                return result
        finally:
            self._room.release()

    def when_failed(self, tell: Callable[[str], None]) -> None:
        """``tell`` gets the words for how the worker ended."""
        self._on_failure = tell

    def release(self, lease: str) -> None:
        """Close the session of a conversation that is over."""
        if self._connection is not None:
            self._connection.sessions.release(lease)

    async def session_opened(self, session: str, metadata: Mapping[str, Any]) -> None:
        """Open the worker's own session for it. Raises Fault; then no session begins (DR-28)."""
        connection = self._alive()
        try:
            opened = await connection.open()
        except JsonRpcError as refused:
            raise connection.dialect.fault(refused, "session/new") from None
        connection.sessions.opened(session, opened)

    async def session_closed(self, session: str, reason: str) -> None:
        """Close its session there, if it ever had a turn."""
        if self._connection is not None:
            self._connection.sessions.close(session)

    async def session_cancelled(self, session: str) -> None:
        """Do nothing: a run is cancelled by ``run``, and without a run there is nothing to cancel (DR-16)."""

    async def park(self, timeout_s: float) -> None:
        """End the worker; ``start`` may follow."""
        self._is_started = False
        if self._connection is not None:
            await self._connection.close(timeout_s)

    async def close(self, timeout_s: float) -> None:
        """End the worker: let it finish, hang up, SIGTERM, SIGKILL, in about ``timeout_s`` seconds."""
        self._is_started, self._is_closing = False, True
        try:
            if self._connection is not None:
                await self._connection.close(timeout_s)
        finally:
            forget(*self._secrets)
            self._secrets = ()

    def _alive(self) -> WorkerConnection:
        connection = self._connection
        if connection is None:
            raise Fault(FaultType.TRANSPORT, f"{self._name} is not running")
        if connection.is_ended:
            raise connection.end_fault()
        return connection

    async def _session(self, connection: WorkerConnection, turn: ExecutorTurn) -> WorkerSession:
        """Return the session for a turn, which has it alone until ``finish_turn``; waits for another turn."""
        while True:
            session = connection.sessions.of(turn.lease)
            if turn.lease and turn.session:
                connection.sessions.belongs(turn.lease, turn.session)
            await session.lock.acquire()
            if session.gone or connection.is_ended:
                connection.finish_turn(session)
                self._alive()
                continue
            if session.id and not session.knows(turn.history):  # it knows another conversation
                connection.sessions.drop(session)
                connection.finish_turn(session)
                continue
            return session

    async def _answer(
        self, connection: WorkerConnection, session: WorkerSession, turn: ExecutorTurn, emit: Emit
    ) -> TurnResult:
        dialect = connection.dialect
        output = TurnOutput(turn, emit, self._limits.answer)
        answer: asyncio.Future[Any] | None = None
        leaves = False
        try:
            what = await self._injected(connection)
            answer = await self._begin(connection, session, turn, output)
            if what == "garbage":
                connection.peer.hear(GARBAGE)
            await self._wait_answer(answer, output)
            if what == "cut":
                await connection.crash()
                raise connection.end_fault()
            response = dialect.parse_answer(answer.result(), output)
            question = Message("user", turn.text, turn.images)
            messages = (question, Message("assistant", "\n\n".join(response.texts)))
            session.remember(turn.history, messages)
            return TurnResult(response.texts or ("",), messages, response.usage, response.stop_reason)
        except asyncio.CancelledError:
            session.loose = True
            if answer is not None and not answer.done() and not connection.is_ended:
                leaves = True
                connection.cancel_turn(session, answer)
            raise
        except JsonRpcError as refused:
            session.loose = True
            if "session" in refused.message.lower():  # it lost its own session
                connection.sessions.drop(session)
            raise dialect.fault(refused, "session/prompt" if session.id else "session/new") from None
        except Fault as fault:
            session.loose = True
            if fault.type is not FaultType.UPSTREAM or output.full.done():
                if answer is not None:
                    dialect.cancel(session.id)
                    connection.peer.forget(answer)
                connection.sessions.drop(session)
            raise
        finally:
            output.end(ok=False)
            if not leaves:
                connection.finish_turn(session)

    async def _injected(self, connection: WorkerConnection) -> FaultKind | None:
        """Apply the fault that this turn gets before it is sent; returns which one it gets, None for none."""
        injection = current_injection()
        rule = injection.choose_for_worker(self._name) if injection is not None else None
        if rule is None:
            return None
        if rule.what == "slow":
            await pause(rule)
        elif rule.what == "dropped":
            await connection.crash()
        elif rule.what not in ("cut", "garbage"):
            raise JsonRpcError(_INTERNAL_ERROR, f"Internal error: HTTP {rule.what} (injected fault)")
        return rule.what

    async def _begin(
        self, connection: WorkerConnection, session: WorkerSession, turn: ExecutorTurn, output: TurnOutput
    ) -> asyncio.Future[Any]:
        """Send the prompt, to a new session if needed. Raises Fault, JsonRpcError."""
        before = ""
        if not session.id:
            session.id = connection.sessions.take_opened(turn.session) or await connection.open()
            before = history_block(turn.history, self._limits.history)
        connection.outputs[session.id] = output
        answer = await connection.dialect.begin(session.id, before, turn.text, turn.images)
        output.begin()
        self._report_left_out(turn, output)
        return answer

    def _report_left_out(self, turn: ExecutorTurn, output: TurnOutput) -> None:
        """Report parameters of the run, once each: neither dialect has a place for them."""
        given = {key for key, value in turn.params.values.items() if value is not None}
        if left_out := sorted(given - self._params_left_out):
            self._params_left_out |= given
            output.notice(f"{self._name} is a worker and takes no parameters: left out {', '.join(left_out)}")

    async def _wait_answer(self, answer: asyncio.Future[Any], output: TurnOutput) -> None:
        """Wait for the answer. Raises Fault (PROTOCOL) if it is too long."""
        await asyncio.wait({answer, output.full}, return_when=asyncio.FIRST_COMPLETED)
        if output.full.done():
            raise Fault(
                FaultType.PROTOCOL,
                f"{self._name}: the worker's answer is longer than {self._limits.answer:,} characters "
                "and was stopped; ask for less at once",
                data={"stage": "session/prompt"},
            )

    def _connection_ended(self, reason: str) -> None:
        if self._is_started and not self._is_closing:
            self._is_started = False
            if self._on_failure is not None:
                self._on_failure(reason)

    def _environment(self) -> dict[str, str]:
        """Return its environment, in which ``python`` is the interpreter that runs the fleet."""
        ours = str(Path(sys.executable).parent)
        path = os.environ.get("PATH", os.defpath)
        if path.split(os.pathsep)[0] != ours:
            path = ours + os.pathsep + path
        return program_environment({"PATH": path, **self._config.env})

    def _command(self) -> tuple[str, ...]:
        """Return the command with the path of its program. Raises Fault (CONFIG)."""
        program, *rest = self._config.command or ("",)
        place = {"place": str(self._where)}
        if not self._config.cwd.is_dir():
            raise Fault(
                FaultType.CONFIG,
                f"{self._config.cwd}: no such directory; correct cwd of {self._name} at {self._where}",
                data=place,
            )
        beside = self._config.cwd / program
        found = str(beside) if os.sep in program and os.access(beside, os.X_OK) else None
        found = found or shutil.which(program, path=self._environment()["PATH"])
        if not program or found is None:
            raise Fault(
                FaultType.CONFIG,
                f"{program or 'command'}: no such program; correct command of {self._name} at {self._where}",
                data=place,
            )
        return (found, *rest)

    def _files(self) -> list[str]:
        """Return the files of the project that the command names."""
        found = []
        for word in self._config.command:
            path = self._config.cwd / word
            if path.is_file() and path.is_relative_to(self._root):
                found.append(path.relative_to(self._root).as_posix())
        return found
