"""A typed handler's code in a process of its own, which the fleet does not trust."""

import asyncio
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Final

from platformdirs.unix import Unix

from pallas.config import AgentConfig, Project
from pallas.deadlines import cancel_and_wait
from pallas.executors.ipc.child_messages import CallCancelled
from pallas.ledger.ledger_address import address_of, database_url_of
from pallas.messaging.messaging_port import Delivery, HandlerReply
from pallas.model import Fault, FaultType
from pallas.model.codec import Undecodable, fault_of
from pallas.model.redaction import redact_text
from pallas.payloads import NotTaken, Payload, PayloadFault
from pallas.processes.child_environment import bare_environment
from pallas.safe_text import one_line
from pallas.telemetry.log.log_path import log_path

from ..ipc.child_process import InterpreterProcess
from .handler_child_messages import (
    MAX_SOURCES,
    HandlerFailed,
    HandlerNotLoaded,
    HandlerSetup,
    ReturnedMessage,
    max_frame_of,
)
from .handler_connection import HandlerConnection, HandlerProcessEnded, Outcome
from .handler_ports import HandlerFacts
from .handler_reports import fault_of_load, paths_in_project
from .payload_conversion import InvalidReply

MODULE: Final = "pallas.executors.typed.handler_child"
"""What its process runs."""
# How often, within a time, a process that the fleet ended is replaced; after that the handler has failed.
_MAX_REPLACEMENTS: Final = 5
_REPLACEMENTS_WITHIN_S: Final = 60.0
# For a process that is to be replaced to end.
_LEAVE_TIMEOUT_S: Final = 1.0


class IsolatedHost:
    """As ``HandlerHost``: sends messages to a process of its own, which sends back what the handler returns.

    When the fleet itself has to end the process (a handler that does not end when it is cancelled, that takes
    too much memory, or whose process breaks the protocol), it starts another one at once, which gets the
    messages that were not begun. When the process ends by itself, ``when_failed`` reports it.
    """

    def __init__(self, project: Project, config: AgentConfig) -> None:
        assert config.handler is not None
        assert config.handler.typed is not None
        self._project = project
        self._config = config
        self._name = config.name
        self._path = config.handler.path
        self._own = config.handler.typed
        self._files: tuple[str, ...] = ()
        self._sources: dict[str, str] = {}
        self._facts: HandlerFacts | None = None
        self._connection: HandlerConnection | None = None
        self._replacing: asyncio.Task[None] | None = None
        self._replacements: deque[float] = deque(maxlen=_MAX_REPLACEMENTS)
        self._scratch: Path | None = None
        self._is_started = False
        self._is_closing = False
        self._on_failure: Callable[[str], None] | None = None

    @property
    def pid(self) -> int | None:
        """The process that its code runs in, None while there is none."""
        connection = self._connection
        return connection.pid if connection is not None and not connection.is_ended else None

    @property
    def files(self) -> tuple[str, ...]:
        """The project's files that it was made of so far."""
        return self._files

    async def load(self, *, fresh: bool) -> HandlerFacts:
        """Start the process and import the code there, always from its files.

        Raises Fault: CONFIG with file and line, TRANSPORT when the process ends.
        """
        if self._facts is None:
            self._sources = {}
            self._facts = await self._spawn()
        return self._facts

    async def start(self) -> None:
        """Take messages from now on, in a new process with the same code if the old one ended."""
        if self._is_closing:
            raise Fault(FaultType.TRANSPORT, f"{self._name} is stopping")
        if self._connection is None or self._connection.is_ended:
            await self._leave(_LEAVE_TIMEOUT_S)
            self._facts = await self._spawn()
        self._is_started = True

    async def handle(self, delivery: Delivery) -> HandlerReply:
        """Return the handler's reply; cancelling this cancels the handler there. Raises Fault."""
        while True:
            connection = await self._ready()
            try:
                outcome = await connection.handle(delivery)
            except HandlerProcessEnded as ended:
                if ended.can_repeat:
                    continue
                raise
            return self._reply(connection, outcome)

    def ended(self, frame: str) -> None:
        """Drop the scratch storage of a frame there."""
        if self._connection is not None:
            self._connection.end_frame(frame)

    def when_failed(self, tell: Callable[[str], None]) -> None:
        """``tell`` gets how the process ended by itself, or that the fleet had to end it too often."""
        self._on_failure = tell

    async def park(self, timeout_s: float) -> None:
        """End the process; another one with the same code may be started."""
        self._is_started = False
        await self._stop_replacing()
        await self._leave(timeout_s)

    async def close(self, timeout_s: float) -> None:
        """End the process for good: in order, in about ``timeout_s`` seconds, else by force."""
        self._is_started, self._is_closing = False, True
        await self._stop_replacing()
        await self._leave(timeout_s)

    # Its process

    async def _spawn(self) -> HandlerFacts:
        project, own = self._project, self._own
        try:
            remove_folder(self._scratch)
            scratch = self._scratch = Path(tempfile.mkdtemp(prefix="pallas-handler-"))
            process = await InterpreterProcess.start(
                self._name,
                scratch,
                module=MODULE,
                env=bare_environment({"TMPDIR": str(scratch), **own.env}),
                max_frame=max_frame_of(project.messages.bytes) + 2 * MAX_SOURCES,
            )
        except (OSError, ValueError) as error:  # the latter for a value of `env:` that none can have
            why = getattr(error, "strerror", None) or type(error).__name__
            text = f"no process can be started: {why}"
            raise Fault(FaultType.TRANSPORT, text) from error
        connection = HandlerConnection(self._name, process, own.memory, self._process_ended)
        self._connection = connection
        answer, payload = await connection.load(self._setup(scratch))
        if not self._sources:  # a process that was sent its sources has not read the files
            self._files = paths_in_project(answer.files)
        if isinstance(answer, HandlerNotLoaded) or payload is None:
            assert isinstance(answer, HandlerNotLoaded)
            raise fault_of_load(answer.message, answer.place)
        self._sources = answer.sources
        return HandlerFacts(payload, one_line(answer.place, 300))

    def _setup(self, scratch: Path) -> HandlerSetup:
        project, own, where = self._project, self._own, self._config.where
        return HandlerSetup(
            agent=self._name,
            root=str(project.root),
            handler=self._path,
            payload=own.payload,
            file=where.file,
            line=where.line,
            level=project.log_level,
            lag=project.loop_lag,
            memory=own.memory,
            bytes=project.messages.bytes,
            sources=self._sources,
            listener=own.listener,
            hidden=hidden_from(project),
            own_files=(str(scratch), *(str(project.root / each) for each in own.files)),
        )

    async def _ready(self) -> HandlerConnection:
        """Wait for a process that takes messages, if there is going to be one. Raises Fault."""
        while self._is_started and (connection := self._connection) is not None:
            if (replacing := self._replacing) is not None:
                await asyncio.wait({replacing})
            elif not connection.is_ended:
                return connection
            elif connection.end_is_reported.is_set():
                break
            else:
                await connection.end_is_reported.wait()
        raise Fault(FaultType.TRANSPORT, f"{self._name} is not running; try again in a moment")

    def _process_ended(self, reason: str, can_be_replaced: bool) -> None:
        if not self._is_started or self._is_closing or self._replacing is not None:
            return
        now, ends = monotonic(), self._replacements
        if not can_be_replaced:
            self._fail(reason)
        elif len(ends) == _MAX_REPLACEMENTS and now - ends[0] < _REPLACEMENTS_WITHIN_S:
            self._fail(f"{reason}; the fleet ended {_MAX_REPLACEMENTS} of them in a minute")
        else:
            ends.append(now)
            self._replacing = asyncio.create_task(self._replace(), name=f"{self._name}: another process")

    async def _replace(self) -> None:
        """Start another process in place of the one that the fleet ended."""
        try:
            await self._leave(_LEAVE_TIMEOUT_S)
            async with asyncio.timeout(self._config.start_timeout):
                self._facts = await self._spawn()
        except TimeoutError:
            self._fail(f"no process took its place within {self._config.start_timeout:g} s")
        except Fault as fault:
            self._fail(fault.message)
        finally:
            self._replacing = None

    def _fail(self, reason: str) -> None:
        self._is_started = False
        if self._on_failure is not None:
            self._on_failure(one_line(reason, 300))

    async def _stop_replacing(self) -> None:
        if (replacing := self._replacing) is not None:
            await cancel_and_wait(replacing, seconds=_LEAVE_TIMEOUT_S)

    async def _leave(self, timeout_s: float) -> None:
        if self._connection is not None:
            await self._connection.leave(timeout_s)
        remove_folder(self._scratch)
        self._scratch = None

    # Its replies

    def _reply(self, connection: HandlerConnection, outcome: Outcome) -> HandlerReply:
        if isinstance(outcome, CallCancelled):
            raise Fault(FaultType.UPSTREAM, "cancelled its own work; nothing was answered")
        if isinstance(outcome, HandlerFailed):
            raise self._failure(outcome)
        if outcome.data is not None:
            return HandlerReply(
                raw=outcome.data.encode("latin-1", "replace")[: self._project.messages.bytes + 1]
            )
        if outcome.message is None:
            return HandlerReply()
        return HandlerReply((self._message(connection, outcome.message),))

    def _message(
        self, connection: HandlerConnection, returned: ReturnedMessage
    ) -> tuple[str | None, Payload]:
        try:
            found = connection.classes.get(returned.key)
            xml = returned.xml.encode()
        except (Undecodable, UnicodeEncodeError) as error:
            why = f"was ended, because it sent an invalid message ({one_line(str(error))})"
            connection.end(why, broke_protocol=True)
            raise Fault(FaultType.PROTOCOL, "its process sent an invalid message") from None
        return returned.to, found.parse(xml, limit=self._project.messages.bytes)

    def _failure(self, failed: HandlerFailed) -> Fault | InvalidReply:
        """The exception for a handler that did not reply; its own words only where they are about itself."""
        match failed.kind:
            case "no-answer":
                return InvalidReply(one_line(redact_text(failed.message), 1_000))
            case "unfit":
                text = one_line(failed.message, 1_000) or "what it returned does not fit its class"
                return PayloadFault(text, field=one_line(failed.field, 200))
            case "not-taken" if self._facts is not None:
                return NotTaken(self._facts.payload.name)
            case "fault":
                return fault_of(failed.fault, "it failed, and does not say how; see the log")
            case _:
                cause = one_line(redact_text(failed.message), 1_000)
                return Fault(FaultType.UPSTREAM, "failed; the log has the details", cause=cause)


def remove_folder(folder: Path | None) -> None:
    """Remove a folder with all in it, as far as possible."""
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def hidden_from(project: Project) -> tuple[str, ...]:
    """Return what this user's fleets keep outside the project: state, settings, log and database."""
    folders = Unix("pallas", appauthor=False)
    log = log_path()
    older = (log.with_name(f"{log.name}.{number}") for number in range(1, 10))
    found = [folders.user_state_path, folders.user_config_path, log, *older]
    try:
        database = address_of(database_url_of(project, os.environ)).path
    except Fault:
        database = None
    if database is not None:
        found += [database, *(database.with_name(database.name + end) for end in ("-wal", "-shm"))]
    return tuple(str(each) for each in found if each.is_absolute())
