"""The fleet's side of an agent that is a program."""

import asyncio
import logging
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pallas.child_environment import program_environment, withheld_in
from pallas.config import AgentConfig, Project
from pallas.config.kinds import WorkerConfig
from pallas.model import Fault, FaultType, Message
from pallas.model.redaction import is_sensitive
from pallas.telemetry.log import forget, redact

from ..base import Emit, ExecutorInfo, Turn, TurnResult
from .json_rpc_peer import JsonRpcError
from .turn_output import TurnOutput, history_block
from .worker_connection import WorkerConnection
from .worker_limits import LIMITS, WorkerLimits
from .worker_sessions import WorkerSession

log = logging.getLogger(__name__)


class WorkerExecutor:
    """Has turns answered by a worker, each conversation in a session of its own there (SPEC 7.4, DR-28).

    A conversation that its session does not know is told to it before the text. One that is cancelled is
    cancelled there; the end of the worker fails its turns with a Fault (TRANSPORT) that says how it ended.
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
        self._running: WorkerConnection | None = None
        self._started = False
        self._closing = False
        self._secrets: tuple[str, ...] = ()
        self._left_out: set[str] = set()
        self._tell_failed: Callable[[str], None] | None = None

    @property
    def pid(self) -> int | None:
        """The worker's process, None while there is none."""
        running = self._running
        return running.process.pid if running is not None and not running.over else None

    @property
    def info(self) -> ExecutorInfo:
        """What is known of the worker; what it says of itself after its handshake."""
        return self._info

    @property
    def waiting(self) -> int:
        """Runs that wait for room."""
        return self._waiting

    def problems(self) -> tuple[str, ...]:
        """What a worker calls is its own."""
        return ()

    async def load(self, *, fresh: bool = False) -> None:
        """Look for the program. Raises Fault (CONFIG) where there is none."""
        await asyncio.to_thread(self._command)
        files = tuple(await asyncio.to_thread(self._files))
        self._info = replace(self._info, files=files, defined=files[0] if files else "")

    async def start(self) -> None:
        """Start it and find out how it is spoken to.

        Raises Fault: CONFIG for a command that cannot be run, TIMEOUT where it does not answer in
        ``request_timeout``, TRANSPORT where it ends, PROTOCOL where it writes what is no message.
        """
        if self._closing:
            raise Fault(FaultType.TRANSPORT, f"{self._name} is stopping")
        if self._running is not None:
            await self._running.close(0)
        command = await asyncio.to_thread(self._command)
        if not self._secrets:
            env = self._config.env
            self._secrets = tuple(value for name, value in env.items() if is_sensitive(name))
            redact(*self._secrets)
        running = self._running = await WorkerConnection.start(
            self._name, self._config, command, self._environment(), self._limits, self._broke
        )
        try:
            if self._closing:  # meanwhile, when there was nothing yet to be ended
                raise Fault(FaultType.TRANSPORT, f"{self._name} is stopping")
            await running.greet()
        except BaseException:
            if hint := withheld_in(running.process.last_lines, self._environment()):
                log.warning("%s: %s", self._name, hint, extra={"agent": self._name})
            await running.close(0)
            raise
        dialect = running.dialect
        self._info = replace(
            self._info, vision=dialect.vision, model=dialect.model, capabilities=dialect.capabilities
        )
        self._started = True

    async def run(self, turn: Turn, emit: Emit) -> TurnResult:
        """Answer one turn there. Raises Fault.

        Whoever cancels it does not wait for the worker: that has ``limits.cancel`` seconds to stop.
        """
        self._waiting += 1
        try:
            await self._room.acquire()
        finally:
            self._waiting -= 1
        try:
            running = self._alive()
            kept = await self._session(running, turn)
            return await self._answer(running, kept, turn, emit)
        finally:
            self._room.release()

    def when_failed(self, tell: Callable[[str], None]) -> None:
        """``tell`` hears how the worker ended."""
        self._tell_failed = tell

    def release(self, lease: str) -> None:
        """Close the session of a conversation that is over."""
        if self._running is not None:
            self._running.conversations.release(lease)

    async def session_opened(self, session: str, metadata: Mapping[str, Any]) -> None:
        """Open the worker's own session for it. Raises Fault: then no prompt could be answered (DR-28)."""
        running = self._alive()
        try:
            opened = await running.open()
        except JsonRpcError as refused:
            raise running.dialect.fault(refused, "session/new") from None
        running.conversations.opened(session, opened)

    async def session_closed(self, session: str, reason: str) -> None:
        """Close its session there, if it ever had a turn."""
        if self._running is not None:
            self._running.conversations.close(session)

    async def session_cancelled(self, session: str) -> None:
        """Its run was cancelled with ``run`` already, and where none was there is nothing to do (DR-16)."""

    async def park(self, timeout: float) -> None:
        """End the worker; ``start`` may follow."""
        self._started = False
        if self._running is not None:
            await self._running.close(timeout)

    async def close(self, timeout: float) -> None:
        """End the worker: let it finish, hang up, SIGTERM, SIGKILL, in about ``timeout`` seconds."""
        self._started, self._closing = False, True
        try:
            if self._running is not None:
                await self._running.close(timeout)
        finally:
            forget(*self._secrets)
            self._secrets = ()

    def _alive(self) -> WorkerConnection:
        running = self._running
        if running is None:
            raise Fault(FaultType.TRANSPORT, f"{self._name} is not running")
        if running.over:
            raise running.death()
        return running

    async def _session(self, running: WorkerConnection, turn: Turn) -> WorkerSession:
        """The session for a turn, for it alone until it is ``answered``; one may have to end first."""
        while True:
            kept = running.conversations.of(turn.lease)
            if turn.lease and turn.session:
                running.conversations.belongs(turn.lease, turn.session)
            await kept.lock.acquire()
            if kept.gone or running.over:
                running.answered(kept)
                self._alive()
                continue
            if kept.id and not kept.knows(turn.history):  # what it knows is another conversation by now
                running.conversations.drop(kept)
                running.answered(kept)
                continue
            return kept

    async def _answer(
        self, running: WorkerConnection, kept: WorkerSession, turn: Turn, emit: Emit
    ) -> TurnResult:
        dialect = running.dialect
        telling = TurnOutput(turn, emit, self._limits.answer)
        answer: asyncio.Future[Any] | None = None
        stage, leaves = "session/new", False
        try:
            before = ""
            if not kept.id:
                kept.id = running.conversations.take_opened(turn.session) or await running.open()
                before = history_block(turn.history, self._limits.history)
            stage = "session/prompt"
            running.tellings[kept.id] = telling
            answer = await dialect.begin(kept.id, before, turn.text, turn.images)
            telling.begin()
            self._tell_left_out(turn, telling)
            await self._heard(answer, telling)
            said = dialect.read(answer.result(), telling)
            question = Message("user", turn.text, turn.images)
            messages = (question, Message("assistant", "\n\n".join(said.texts)))
            kept.heard(turn.history, messages)
            return TurnResult(said.texts or ("",), messages, said.usage, said.stop_reason)
        except asyncio.CancelledError:
            kept.loose = True
            if answer is not None and not answer.done() and not running.over:
                leaves = True
                running.see_off(kept, answer)
            raise
        except JsonRpcError as refused:
            kept.loose = True
            if "session" in refused.message.lower():  # it does not know its own any more
                running.conversations.drop(kept)
            raise dialect.fault(refused, stage) from None
        except Fault as fault:
            kept.loose = True
            if fault.type is not FaultType.UPSTREAM or telling.full.done():
                if answer is not None:
                    dialect.cancel(kept.id)
                    running.peer.forget(answer)
                running.conversations.drop(kept)
            raise
        finally:
            telling.end(ok=False)
            if not leaves:
                running.answered(kept)

    def _tell_left_out(self, turn: Turn, telling: TurnOutput) -> None:
        """Neither dialect has a place for parameters of a run: told once of each."""
        given = {key for key, value in turn.params.values.items() if value is not None}
        if left_out := sorted(given - self._left_out):
            self._left_out |= given
            telling.notice(
                f"{self._name} is a worker and takes no parameters: left out {', '.join(left_out)}"
            )

    async def _heard(self, answer: asyncio.Future[Any], telling: TurnOutput) -> None:
        """Until it is answered. Raises Fault (PROTOCOL) where there is no end to what it writes."""
        await asyncio.wait({answer, telling.full}, return_when=asyncio.FIRST_COMPLETED)
        if telling.full.done():
            raise Fault(
                FaultType.PROTOCOL,
                f"{self._name}: the worker's answer is longer than {self._limits.answer:,} characters "
                "and was stopped; ask for less at once",
                data={"stage": "session/prompt"},
            )

    def _broke(self, reason: str) -> None:
        if self._started and not self._closing:
            self._started = False
            if self._tell_failed is not None:
                self._tell_failed(reason)

    def _environment(self) -> dict[str, str]:
        """A program's, with the worker's own laid over it; ``python`` is the interpreter that runs this."""
        ours = str(Path(sys.executable).parent)
        path = os.environ.get("PATH", os.defpath)
        if path.split(os.pathsep)[0] != ours:
            path = ours + os.pathsep + path
        return program_environment({"PATH": path, **self._config.env})

    def _command(self) -> tuple[str, ...]:
        """The command with the path of its program. Raises Fault (CONFIG)."""
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
        """What the command names that is a file of the project."""
        found = []
        for word in self._config.command:
            path = self._config.cwd / word
            if path.is_file() and path.is_relative_to(self._root):
                found.append(path.relative_to(self._root).as_posix())
        return found
