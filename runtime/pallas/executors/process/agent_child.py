"""What runs in an agent's own process: the executor that would be in the fleet, asked over a channel."""

import gc
import logging
import os
import socket
import traceback
from dataclasses import replace
from typing import Any, Final, NoReturn

from pallas.executors.base import TurnResult
from pallas.executors.fastagent.fastagent_executor import FastAgentExecutor
from pallas.executors.fastagent.message_conversion import revived
from pallas.executors.faults.fault_injection import FaultInjection, current_injection
from pallas.executors.ipc.child_messages import OUT_OF_MEMORY
from pallas.executors.ipc.people_questions import PeopleThroughFleet
from pallas.executors.replay.replay import Replay, current_replay
from pallas.executors.run_asker import asking
from pallas.model import Event, Fault, FaultType, Message, Step, StepDetail, StepState, TextDelta
from pallas.model.codec import encode_event
from pallas.model.fingerprint import adopt_salt
from pallas.model.host_places import HostPlaces
from pallas.model.redaction import forget, redact, redact_tail
from pallas.recordings.recorded_steps import StepRequest
from pallas.safe_text import sanitize
from pallas.telemetry.log import redact_project
from pallas.telemetry.open_step import OpenStep
from pallas.telemetry.step_record import RunSteps, StepRecord
from pallas.telemetry.trace_context import RunTrace, child_of, running
from pallas.telemetry.wire_record import OpenExchange, RunWire, WireRecord

from ..ipc.channel import Channel
from ..ipc.child_loop import ChildLoop, serve_child
from ..ipc.module_sources import ModuleSources, read_sources
from .agent_messages import (
    TO_AGENT,
    AgentBroken,
    AgentCallFailed,
    AgentCommand,
    AgentNoticed,
    AgentSetup,
    AgentTurn,
    CallReturned,
    CommandDone,
    ExchangeUpdate,
    ExecutorState,
    ForgetThread,
    HistoryPart,
    JournalQuestion,
    PeerList,
    ReplayQuestion,
    RunEventMessage,
    ServerOffered,
    StepUpdate,
    TurnAnswer,
    TurnMessages,
    UnreachedServers,
)
from .metered_turns import MeterInFleet
from .peer_questions import PeersThroughFleet
from .thread_sync import ReceivedThreads, message_parts

log = logging.getLogger(__name__)

_MAX_TRACEBACK: Final = 64 * 1024
# What is recorded here of the exchanges of runs: the fleet has them, here they are only completed.
_WIRE_BYTES: Final = 4 * 1024 * 1024
_WIRE_RUNS: Final = 50


def serve(sock: socket.socket) -> NoReturn:
    """Serve one agent over ``sock``, then end the process."""
    serve_child(sock, AgentChild)


class AgentChild(ChildLoop):
    """One agent's executor, and everything that the fleet asks of it."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel, TO_AGENT)
        self._executor: FastAgentExecutor | None = None
        self._sources: ModuleSources | None = None
        self._threads: ReceivedThreads[Message] = ReceivedThreads()
        self._history: dict[int, list[Message]] = {}
        self._said: dict[int, list[Message]] = {}
        self._wire = WireRecord(_WIRE_BYTES, _WIRE_RUNS)
        self._steps = StepRecord(max_runs=_WIRE_RUNS)
        self._peers = PeersThroughFleet(self.questions)
        self._turns: dict[str, int] = {}
        """The numbers of the turns that are answered now, by run."""
        self._state = ExecutorState(0, ())
        self._offers: dict[str, str] = {}  # the digests of those that the fleet knows, by server
        self._lag_limit_when_started = 0.0

    def _on_message(self, message: Any) -> None:
        match message:
            case AgentSetup():
                self._set_up(message)
            case AgentCommand():
                self._start(self._carry_out(message))
            case HistoryPart():
                history = (self._said if message.said else self._history).setdefault(message.call, [])
                history += [revived(each.message()) for each in message.messages]
            case AgentTurn():
                history = self._history.pop(message.call, [])
                said = self._said.pop(message.call, [])
                message = replace(message, turn=replace(message.turn, said=said))
                self._start_call(message.call, self._run(message, history))
            case UnreachedServers(servers=servers):
                if self._executor is not None:
                    self._executor.doubt(frozenset(servers))
            case PeerList():
                self._peers.set_tools(message.tools)
            case ForgetThread():
                self._threads.forget(message.lease)
                if message.over and self._executor is not None:
                    self._executor.release(message.lease)
            case _:
                raise TypeError(f"the fleet says {type(message).__name__}")

    def _cancel_unknown(self, call: int) -> None:
        self._history.pop(call, None)
        self._said.pop(call, None)
        super()._cancel_unknown(call)

    def _set_up(self, setup: AgentSetup) -> None:
        adopt_salt(bytes.fromhex(setup.salt))
        project = setup.project
        self._agent = setup.agent
        self._lag_limit_when_started = project.loop_lag
        self._steps = StepRecord(max_runs=_WIRE_RUNS, places=HostPlaces.of(project.root))
        redact_project(project)
        self._forward_log(project.log_level)
        self._sources = read_sources(project.root, setup.sources)
        if setup.replay is not None:
            replay = Replay(setup.replay)
            replay.admit = self._may_ask
            replay.install()
        if setup.faults is not None:
            FaultInjection(setup.faults).install()
        self._executor = FastAgentExecutor(project, project.agents[setup.agent])
        self._executor.call_peers(self._peers)
        self._executor.when_failed(lambda reason: self.send(AgentBroken(reason)))
        self._executor.when_noticed(
            lambda notice: self.send(AgentNoticed(notice.level, notice.text, notice.server))
        )

    async def _may_ask(self, request: StepRequest, step: Step) -> None:
        """Have the fleet say whether a model may be asked for real. Raises Fault if not."""
        call, replay = self._turns[request.run_id], current_replay()
        missed = replay.session().miss if replay is not None else None
        miss = missed.to_body() if missed is not None else None
        await self.questions.ask(lambda number: ReplayQuestion(call, number, step.number, step.url, miss))

    async def _carry_out(self, command: AgentCommand) -> None:
        executor = self._executor
        try:
            if executor is None:
                raise Fault(FaultType.INTERNAL, "the fleet did not say which agent this is")
            match command.name:
                case "load":
                    await executor.load()
                case "start":
                    await executor.start()
                    # What the start made stays; the garbage collector need not look through it again.
                    gc.freeze()
                    self._watch(self._lag_limit_when_started)
                case "check":
                    await executor.check_connection(command.server, command.seconds)
                    self._report()
                    self.send(CommandDone(command.call))
                    return
                case "park":
                    await executor.park(command.seconds)
                case _:
                    raise Fault(FaultType.INTERNAL, f"the fleet asks for {command.name}")
        except Exception as error:
            self.send(self._failure(command.call, error))
        else:
            self._report()
            sources = self._sources if command.name == "load" else None
            self.send(CommandDone(command.call, executor.info, sources.read if sources is not None else {}))

    def _failure(self, call: int, error: Exception) -> AgentCallFailed:
        fault = error if isinstance(error, Fault) else _internal_fault()
        cause = fault.__cause__ if isinstance(error, Fault) else error
        lines = "".join(traceback.format_exception(cause)) if cause is not None else ""
        return AgentCallFailed(
            call,
            fault.to_body(),
            sanitize(redact_tail(lines, _MAX_TRACEBACK)),
            info=self._executor.info if self._executor is not None else None,
        )

    async def _run(self, request: AgentTurn, history: list[Message]) -> None:
        call, turn = request.call, request.turn
        if turn.bearer:
            redact(turn.bearer)
        self._peers.begin_run(turn.run_id, call)
        self._turns[turn.run_id] = call
        try:
            await self._answer(request, history)
        except MemoryError:
            _die()
        except Fault as fault:
            if isinstance(fault.__cause__, MemoryError):
                _die()
            self.send(AgentCallFailed(call, fault.to_body()))
        except Exception:
            log.exception("run %s failed", turn.run_id)
            self.send(AgentCallFailed(call, _internal_fault().to_body()))
        finally:
            if turn.bearer:
                forget(turn.bearer)
            self._peers.end_run(turn.run_id)
            self._turns.pop(turn.run_id, None)
            self._report()

    async def _answer(self, request: AgentTurn, history: list[Message]) -> None:
        """Answer a turn, and send the result. Raises Fault."""
        call, lease = request.call, request.turn.lease
        thread = self._threads.begin(call, lease, request.keep, history)
        result = await self._ask(request, thread)
        self._report_offers()
        for part in tuple(message_parts(result.messages, complete=True)):  # before any of it is sent
            self.send(TurnMessages(call, part))
            await self._channel.room()
        self._threads.end(call, lease, result.messages, replaces=result.replaces)
        self.send(
            TurnAnswer(
                call,
                result.texts,
                result.usage,
                result.stop_reason,
                result.replaces,
                result.backend,
                result.notices,
            )
        )

    async def _ask(self, request: AgentTurn, history: list[Message]) -> TurnResult:
        assert self._executor is not None
        journal = _ParentJournal(request.call, self) if request.turn.durable else None
        people = PeopleThroughFleet(request.call, self.questions)
        turn = replace(request.turn, history=history, journal=journal, people=people)
        wire = self._wire_of(request)
        trace = RunTrace(
            turn.run_id,
            turn.agent,
            request.trace or child_of(None),
            wire,
            self._steps_of(request),
            MeterInFleet(request.call, self.questions, self.send) if request.is_metered else None,
        )
        if request.faults is not None and (injection := current_injection()) is not None:
            injection.begin(trace.context.trace_id, request.faults)

        if request.replays and (replay := current_replay()) is not None:
            replay.session(trace.context.trace_id).steps.bind(turn.run_id, request.replays)

        def emit(event: Event) -> None:
            message = RunEventMessage(request.call, encode_event(event))
            self.send(message, may_be_lost=isinstance(event, TextDelta))

        with running(trace), asking(people):
            return await self._executor.run(turn, emit)

    def _wire_of(self, request: AgentTurn) -> RunWire | None:
        """Where the exchanges of a turn are recorded; each is sent to the fleet as it changes."""
        if not request.record:
            return None

        def send_update(exchange: OpenExchange) -> None:
            self.send(ExchangeUpdate(request.call, exchange.number, exchange.value), may_be_lost=True)

        wire = self._wire.open(request.turn.run_id)
        wire.tell = send_update
        return wire

    def _steps_of(self, request: AgentTurn) -> RunSteps:
        """Where the steps of a turn are recorded; each is sent to the fleet as it changes."""
        told: dict[int, tuple[int, StepState]] = {}
        sent: set[int] = set()

        def send_update(step: OpenStep) -> None:
            value, before = step.value, told.get(step.number)
            now = len(value.attempts), value.state
            if now == before:
                return
            told[value.number] = now
            request_text = "" if value.number in sent else step.detail.request
            if request_text:
                sent.add(value.number)
            response = step.response if value.seconds is not None else ""
            detail = StepDetail(value, request_text, response, step.headers)
            self.send(StepUpdate(request.call, detail, step.take_pictures()))

        steps = self._steps.open(request.turn.run_id, request.scope or request.turn.run_id)
        steps.tell = send_update
        return steps

    async def _close(self, timeout_s: float) -> None:
        await super()._close(timeout_s / 3)
        if self._executor is not None:
            await self._executor.close(timeout_s)

    def _report_offers(self) -> None:
        """Send the fleet what servers offer, if that is new: before the answer to a turn that used it."""
        for server, offer in self._executor.offers().items() if self._executor is not None else ():
            if self._offers.get(server) != offer.digest:
                self._offers[server] = offer.digest
                self.send(ServerOffered(server, offer.body))

    def _report(self) -> None:
        if self._executor is None:
            return
        self._report_offers()
        executor = self._executor
        state = ExecutorState(
            executor.waiting, executor.problems(), executor.lock_changes(), executor.connections()
        )
        if state != self._state:
            self._state = state
            self.send(state)
        super()._report()


class _ParentJournal:
    """The journal of a durable turn, which the fleet keeps."""

    def __init__(self, call: int, child: AgentChild) -> None:
        self._call = call
        self._child = child
        self.part = 0
        self.is_left = False

    async def committed(self) -> None:
        await self._child.questions.ask(lambda number: JournalQuestion(self._call, number, "committed"))

    async def still_ours(self) -> None:
        await self._child.questions.ask(lambda number: JournalQuestion(self._call, number, "still_ours"))

    async def step_over(self) -> None:
        await self._child.questions.ask(lambda number: JournalQuestion(self._call, number, "step_over"))

    def returned(self, call_id: str, native: str) -> None:
        self._child.send(CallReturned(self._call, call_id, native))


def _internal_fault() -> Fault:
    return Fault(FaultType.INTERNAL, "the run failed; the log has the details")


def _die() -> None:
    """End the process: there is no memory to go on with, nor to say so properly."""
    os._exit(OUT_OF_MEMORY)
