"""The executor of an agent in a process of its own, in the fleet."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from pallas.config import AgentConfig, Project
from pallas.executors.fastagent.peer_tools import PeerCalls
from pallas.executors.faults.fault_injection import current_injection
from pallas.executors.peer_port import PeerPort
from pallas.executors.replay.replay import current_replay
from pallas.limits.limit_reached import revived
from pallas.model import Fault, FaultType, Notice, ServerChange, ServerConnection, TraceContext
from pallas.model.fault_rules import FaultPlan
from pallas.model.fingerprint import salt
from pallas.model.redaction import redact_text
from pallas.model.server_offer import StoredOffer
from pallas.processes.child_environment import agent_environment, withheld_in
from pallas.safe_text import one_line
from pallas.telemetry.trace_context import current_run

from ..base import Emit, Executor, ExecutorInfo, ExecutorTurn, TurnResult
from ..fastagent.peers_fleet import FleetPeers
from ..ipc.child_process import InterpreterProcess
from .agent_connection import CANCEL_TIMEOUT_S, AgentCall, AgentConnection
from .agent_messages import (
    AgentCallFailed,
    AgentNoticed,
    AgentSetup,
    AgentTurn,
    CommandDone,
    ForgetThread,
    HistoryPart,
    TurnAnswer,
    UnreachedServers,
)
from .peer_questions import PeerAsker
from .thread_sync import SentThreads, message_parts

log = logging.getLogger(__name__)

MODULE: Final = "pallas.executors.process.agent_child"
"""What its process runs."""
# What a process has beyond its timeout for parking.
_PARK_LEEWAY_S: Final = 1.0
# And for a check of a downstream.
_CHECK_LEEWAY_S: Final = 0.1


class ProcessExecutor(Executor):
    """Has turns answered by a process of its own, whose end leaves the fleet unharmed.

    A run that is cancelled is cancelled there. A run whose process ends fails with a Fault (TRANSPORT) that
    says how it ended.
    """

    def __init__(self, project: Project, config: AgentConfig) -> None:
        self._project = project
        self._config = config
        self._name = config.name
        self._info = ExecutorInfo()
        self._sources: dict[str, str] = {}
        self._threads = SentThreads()
        self._connection: AgentConnection | None = None
        self._is_started = False
        self._is_closing = False
        self._on_failure: Callable[[str], None] | None = None
        self._tell_noticed: Callable[[Notice], None] = lambda _: None
        self._peers: PeerCalls | None = None
        self._unreached: frozenset[str] = frozenset()

    @property
    def pid(self) -> int | None:
        """The process that answers, None while there is none."""
        return (
            self._connection.pid if self._connection is not None and not self._connection.is_ended else None
        )

    @property
    def info(self) -> ExecutorInfo:
        """The facts about the agent."""
        return self._info

    def problems(self) -> tuple[str, ...]:
        """Downstreams that the last attempt to make an instance could not reach."""
        problems = self._connection.state.problems if self._connection is not None else ()
        return tuple(redact_text(each) for each in problems)

    def lock_changes(self) -> tuple[ServerChange, ...]:
        """What its downstreams list otherwise than the lock says, as far as the process reported it."""
        return self._connection.state.lock_changes if self._connection is not None else ()

    def connections(self) -> tuple[ServerConnection, ...]:
        """The connections to its downstreams, as far as the process reported them."""
        return self._connection.state.connections if self._connection is not None else ()

    def offers(self) -> Mapping[str, StoredOffer]:
        """What its downstreams offer, as far as the process reported it."""
        return dict(self._connection.offers) if self._connection is not None else {}

    async def check_connection(self, server: str, seconds: float) -> None:
        """Have the process ask a downstream; never raises."""
        connection = self._connection
        if not self._is_started or connection is None or connection.is_ended:
            return
        with suppress(Fault, TimeoutError):
            async with asyncio.timeout(seconds + _CHECK_LEEWAY_S):
                await connection.command("check", seconds, server)

    def doubt(self, servers: frozenset[str]) -> None:
        """A health probe did not reach these downstreams; the others answer, as far as is known."""
        if self._is_started and self._connection is not None and servers != self._unreached:
            self._unreached = servers
            self._connection.send(UnreachedServers(tuple(sorted(servers))))

    @property
    def waiting(self) -> int:
        """Runs that wait for a free instance."""
        connection = self._connection
        return connection.state.waiting if connection is not None and not connection.is_ended else 0

    def reach_peers(self, port: PeerPort) -> None:
        """Ask its peers through ``port``, in the fleet; call this before ``load``."""
        if self._config.peers:
            self._peers = FleetPeers(port, self._name)

    async def load(self, *, fresh: bool = False) -> None:
        """Start the process and import the agent's code there, always from its files.

        Raises Fault: CONFIG with file, line and reason, TRANSPORT when the process ends.
        """
        if self._connection is not None or self._is_closing:
            raise Fault(FaultType.INTERNAL, f"{self._name} was loaded already")
        await self._spawn()

    async def start(self) -> None:
        """Enter the harness there and warm one instance. Raises Fault.

        A process that ended since it was loaded is replaced by one with the same code, even if its modules'
        files have changed.
        """
        if self._is_closing:
            raise Fault(FaultType.TRANSPORT, f"{self._name} is stopping")
        connection = self._connection
        if connection is not None and connection.is_ended:
            await connection.close()
            connection = None
        if connection is None:
            connection = await self._spawn()
        await connection.command("start")
        self._is_started = True

    async def run(self, turn: ExecutorTurn, emit: Emit) -> TurnResult:
        """Answer one turn there. Raises Fault."""
        connection = self._connection
        if connection is None:
            raise Fault(FaultType.TRANSPORT, f"{self._name} is not running")
        trace = current_run()
        recorded = trace is not None and trace.wire is not None
        context = trace.context if trace is not None else None
        asker = PeerAsker(turn, context, emit) if self._peers is not None else None
        call = connection.open_turn(emit, trace, asker, turn.journal, turn.people)
        threads = self._threads
        keep = threads.begin(turn.lease, turn.history)
        result: TurnResult | None = None
        try:
            await connection.wait_for_room()
            for part in message_parts(turn.history[keep:], complete=False):
                connection.send(HistoryPart(call.number, part))
                await connection.wait_for_room()
            for part in message_parts(turn.said, complete=False):
                connection.send(HistoryPart(call.number, part, said=True))
                await connection.wait_for_room()
            faults, replay = _faults(context), current_replay()
            scope = trace.steps.scope if trace is not None and trace.steps is not None else ""
            connection.send(
                AgentTurn(
                    call.number,
                    _turn_to_send(turn),
                    keep,
                    context,
                    recorded,
                    faults,
                    scope,
                    is_metered=call.reservations is not None,
                    replays=replay.recorded_run(turn.run_id) if replay is not None else "",
                )
            )
            # Not awaited itself: a cancel would end the answer too, and that is still to come.
            await asyncio.wait({call.answer})
            result = _result(call)
        except asyncio.CancelledError:
            await connection.cancel_turn(call, CANCEL_TIMEOUT_S)
            raise
        except Fault as fault:
            connection.drop_turn(call)
            fault = revived(fault)
            if (replay := current_replay()) is not None:
                replay.note(fault)
            raise fault from fault.__cause__
        finally:
            if call.answer.done():
                connection.forget(call)
            messages = result.messages if result is not None else None
            replaces = result is not None and result.replaces
            for lease in threads.end(turn.lease, turn.history, messages, replaces=replaces):
                connection.send(ForgetThread(lease))
        return result

    def when_failed(self, tell: Callable[[str], None]) -> None:
        """``tell`` gets the words for how the process ended, or why the agent there can answer no more."""
        self._on_failure = tell

    def when_noticed(self, tell: Callable[[Notice], None]) -> None:
        """``tell`` gets what the agent there has noticed."""
        self._tell_noticed = tell

    def _noticed(self, message: AgentNoticed) -> None:
        text = one_line(redact_text(message.text), 300)
        server = one_line(message.server, 80)
        self._tell_noticed(Notice(level=message.level, agent=self._name, server=server, text=text))

    def release(self, lease: str) -> None:
        """Let go of what the process keeps for a conversation."""
        self._threads.forget(lease)
        if self._connection is not None:
            self._connection.send(ForgetThread(lease, over=True))

    async def park(self, timeout_s: float) -> None:
        """End the instances there; the process stays, with all that it has loaded. Raises Fault."""
        self._is_started = False
        connection = self._connection
        if connection is None or connection.is_ended:
            return
        try:
            async with asyncio.timeout(timeout_s + _PARK_LEEWAY_S):
                await connection.command("park", timeout_s)
        except TimeoutError:
            why = f"was ended, because it could not be parked within {timeout_s:g} s"
            connection.end(why)
            raise Fault(FaultType.TRANSPORT, f"{self._name}: its process {why}") from None

    async def close(self, timeout_s: float) -> None:
        """End the process: in order, in about ``timeout_s`` seconds, else by force.

        A process that was never loaded, or does not react, is ended at once.
        """
        self._is_started, self._is_closing = False, True
        if self._connection is not None:
            await self._connection.leave(timeout_s)

    async def _spawn(self) -> AgentConnection:
        try:
            env = await asyncio.to_thread(agent_environment, self._project, self._config.env)
            process = await InterpreterProcess.start(self._name, self._project.root, module=MODULE, env=env)
        except OSError as error:
            raise Fault(
                FaultType.TRANSPORT, f"{self._name}: no process can be started: {error.strerror or error}"
            ) from error
        connection = self._connection = AgentConnection(
            self._name,
            process,
            on_facts=self._set_facts,
            on_failure=self._failed,
            on_notice=self._noticed,
            peers=self._peers,
        )
        self._threads = SentThreads()
        project, key = self._project_of_agent(env), salt().hex()
        replay = current_replay()
        plan = replay.plan.of_agent(self._name) if replay is not None else None
        injection = current_injection()
        faults = injection.plan if injection is not None else None
        connection.send(AgentSetup(self._name, project, key, self._sources, plan, faults))
        try:
            await connection.command("load")
        except Fault as fault:
            if hint := withheld_in([fault.message], env):
                log.warning("%s: %s", self._name, hint, extra={"agent": self._name})
            raise
        return connection

    def _project_of_agent(self, env: Mapping[str, str]) -> Project:
        """The project as the process needs it: without who may call, and without the other agents."""
        own = replace(self._config, auth=None)
        held = [each for each in self._project.handed_over if any(each in value for value in env.values())]
        return replace(
            self._project, auth=None, agents={self._name: own}, handed_over=tuple(held), warnings=()
        )

    def _set_facts(self, answer: CommandDone | AgentCallFailed) -> None:
        if answer.info is not None:
            # A process that was sent its sources has not read the files.
            files = self._info.files if self._sources else answer.info.files
            instruction = redact_text(answer.info.instruction)
            self._info = replace(answer.info, files=files, instruction=instruction)
            if (replay := current_replay()) is not None:
                replay.know(self._name, answer.info.dated)
        if isinstance(answer, CommandDone) and answer.sources:
            self._sources = answer.sources

    def _failed(self, reason: str) -> None:
        if self._is_started and not self._is_closing:
            self._is_started = False
            if self._on_failure is not None:
                self._on_failure(one_line(reason, 300))


def _faults(context: TraceContext | None) -> FaultPlan | None:
    """What is injected into the run of this trace alone."""
    injection = current_injection()
    return injection.begun(context.trace_id) if injection is not None and context is not None else None


def _turn_to_send(turn: ExecutorTurn) -> ExecutorTurn:
    """The turn as its process sees it: without its history, and without what would open the conversation."""
    return replace(
        turn,
        history=(),
        said=(),
        journal=None,
        people=None,
        thread="",
        handle="",
        session="",
        sender="",
        depth=0,
    )


def _result(call: AgentCall) -> TurnResult:
    answer = call.answer.result()
    if not isinstance(answer, TurnAnswer):
        raise Fault(FaultType.INTERNAL, "the agent's process gave no result")
    return TurnResult(
        texts=answer.texts,
        messages=tuple(message.message() for message in call.messages),
        usage=answer.usage,
        stop_reason=answer.stop_reason,
        replaces=answer.replaces,
        backend=answer.backend,
        notices=answer.notices,
    )
