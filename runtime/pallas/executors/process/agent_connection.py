"""The fleet's side of an agent's process: commands and turns, and what the process says of them."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from pallas.executors.fastagent.peer_tools import PeerCalls
from pallas.executors.ipc.child_connection import ChildConnection, PendingCall
from pallas.executors.ipc.child_messages import CallCancelled, CancelCall
from pallas.executors.replay.replay import current_replay
from pallas.health.public_reasons import LAST_SAID
from pallas.model import Fault, FaultType, RunEvent
from pallas.model.codec import Undecodable, decode_event, fault_of
from pallas.model.redaction import redact_text
from pallas.model.server_offer import StoredOffer
from pallas.recordings.recorded_steps import StepRequest
from pallas.telemetry.log import replay
from pallas.telemetry.open_step import OpenStep
from pallas.telemetry.step_record import RunSteps, enclosing_call
from pallas.telemetry.trace_context import RunTrace
from pallas.telemetry.wire_record import OpenExchange, RunWire, clean_again

from ..base import Emit, People, TurnJournal
from ..ipc.child_process import InterpreterProcess
from ..ipc.people_questions import PeopleQuestion, ask_people
from ..server_offers import masked_offer
from .agent_messages import (
    FROM_AGENT,
    AgentBroken,
    AgentCallFailed,
    AgentCommand,
    AgentNoticed,
    CallReturned,
    CommandDone,
    ExchangeUpdate,
    ExecutorState,
    HistoryMessage,
    JournalQuestion,
    LimitQuestion,
    LimitSettled,
    PeerQuestion,
    ReplayQuestion,
    RunEventMessage,
    ServerOffered,
    StepUpdate,
    TurnAnswer,
    TurnMessages,
)
from .metered_turns import TurnReservations
from .peer_questions import MAX_OPEN, PeerAnswers, PeerAsker

CANCEL_TIMEOUT_S: Final = 5.0
"""For a cancelled turn to clean up in the process, before the process is ended with all its turns."""
# Turns whose exchanges may still change: the last exchange of an answer comes after its turn.
_LATE_TURNS: Final = 200
# Texts in events that report on a run. What is said in it is not masked.
_REPORTED: Final = ("error", "reason", "server", "tool", "why")


@dataclass(slots=True, eq=False)
class AgentCall(PendingCall):
    """A command or a turn. A turn has its listener, its messages so far, and the run that asks peers and
    people."""

    emit: Emit | None = None
    messages: list[HistoryMessage] = field(default_factory=list)
    asker: PeerAsker | None = None
    journal: TurnJournal | None = None
    reservations: TurnReservations | None = None
    people: People | None = None


@dataclass(slots=True, eq=False)
class _TurnRecords:
    """Where the exchanges and steps of a turn are recorded, by the numbers that the process gives them."""

    wire: RunWire | None
    steps: RunSteps | None
    cause: int  # the step that caused the turn
    agent: str
    trace_id: str
    exchanges: dict[int, OpenExchange] = field(default_factory=dict)
    open_steps: dict[int, OpenStep] = field(default_factory=dict)


class AgentConnection(ChildConnection[AgentCall]):
    """The process of an agent.

    ``on_facts`` gets each answer to a command, ``on_failure`` the reason when the agent cannot answer any
    more by itself. ``peers`` are the agents that it may ask, None for none.
    """

    reaction_timeout_s = CANCEL_TIMEOUT_S

    def __init__(
        self,
        name: str,
        process: InterpreterProcess,
        *,
        on_facts: Callable[[CommandDone | AgentCallFailed], None],
        on_failure: Callable[[str], None],
        on_notice: Callable[[AgentNoticed], None],
        peers: PeerCalls | None = None,
    ) -> None:
        super().__init__(name, process, FROM_AGENT)
        self.state = ExecutorState(0, ())
        self.offers: dict[str, StoredOffer] = {}
        """What its downstreams offer, by name."""
        self.is_started = False
        """From then on callers see its end and the Fault names the agent; before that only its owner does."""
        self._on_facts = on_facts
        self._on_failure = on_failure
        self._on_notice = on_notice
        self._records: OrderedDict[int, _TurnRecords] = OrderedDict()
        self._peers = PeerAnswers(peers, self.questions)

    def open_turn(
        self,
        emit: Emit,
        trace: RunTrace | None,
        asker: PeerAsker | None,
        journal: TurnJournal | None = None,
        people: People | None = None,
    ) -> AgentCall:
        """A call for a turn of the run ``trace``. Raises Fault (TRANSPORT) when the process has ended."""
        call = self._add(
            AgentCall(self._next_number(), emit=emit, asker=asker, journal=journal, people=people)
        )
        call.answer.add_done_callback(lambda _: self.questions.end(call.number))
        if trace is not None and trace.meter is not None:
            reservations = call.reservations = TurnReservations(trace.meter)
            call.answer.add_done_callback(lambda _: reservations.end())
        if trace is not None:
            self._records[call.number] = _TurnRecords(
                trace.wire,
                trace.steps,
                enclosing_call(trace.steps) if trace.steps is not None else 0,
                trace.agent,
                trace.context.trace_id,
            )
            if len(self._records) > _LATE_TURNS:
                self._records.popitem(last=False)
        if asker is not None and (peers := self._peers.update()) is not None:
            self.send(peers)
        return call

    def drop_turn(self, call: AgentCall) -> None:
        """Forget a turn; one that is not answered is cancelled there."""
        self.forget(call)
        if not call.answer.done():
            self.questions.end(call.number)
            self.send(CancelCall(call.number))

    async def cancel_turn(self, call: AgentCall, timeout_s: float) -> None:
        """Cancel a turn there and wait until it is over; the caller may be cancelled once more.

        A process where that takes longer than ``timeout_s`` is ended.
        """
        self.questions.end(call.number)
        why = f"was ended, because it did not react to a cancel within {timeout_s:g} s"
        await asyncio.wait({self._start(self.cancel(call, timeout_s, why), "cancel")})

    async def command(self, name: str, seconds: float = 0.0, server: str = "") -> None:
        """Have a command carried out there. Raises Fault."""
        call = self._new_call()
        try:
            self.send(AgentCommand(call.number, name, seconds, server))
            await call.answer
        finally:
            self.forget(call)
        self.is_loaded = True
        self.is_started = self.is_started or name == "start"

    def _new_call(self) -> AgentCall:
        return self._add(AgentCall(self._next_number()))

    def _fault(self, call: AgentCall | None) -> Fault:
        how = self.how_it_ended
        if self._is_other_release:
            return Fault(FaultType.CONFIG, f"its process {how}")
        last = self.process.last_lines
        last_line = f"{LAST_SAID}{last[-1]}" if last and not self.is_loaded and "exit status" in how else ""
        return Fault(
            FaultType.TRANSPORT,
            f"{self.name}: its process {how}; try again in a moment"
            if self.is_started
            else f"its process {how}{last_line}",
            data={"agent": self.name, "ended": how},
        )

    def _on_end(self, reason: str) -> None:
        self._on_failure(reason)

    def _on_record(self, record: Mapping[str, Any]) -> None:
        replay(record, agent=self.name)

    def _on_cancelled(self, message: CallCancelled) -> None:
        if (call := self._find(message.call)) is not None:
            cancelled = Fault(FaultType.UPSTREAM, "the run was cancelled", data={"cancelled": True})
            call.answer.set_exception(cancelled)

    def _on_message(self, message: Any) -> None:
        match message:
            case RunEventMessage():
                self._emit_event(message)
            case ExchangeUpdate():
                self._record_exchange(message)
            case StepUpdate():
                self._record_step(message)
            case TurnMessages():
                if (call := self._find(message.call)) is not None:
                    call.messages += message.messages
            case TurnAnswer():
                self._resolve(message)
            case CommandDone():
                self._on_facts(message)
                self._resolve(message)
            case AgentCallFailed():
                self._on_facts(message)
                self._fail(message)
            case ExecutorState():
                self.state = message
            case ServerOffered():
                # The process knows the secrets of its agent only.
                self.offers[message.server] = masked_offer(message.offer)
            case PeerQuestion():
                call = self._find(message.call)
                self._peers.answer(message, call.asker if call is not None else None)
            case JournalQuestion():
                self._answer_from_journal(message)
            case LimitQuestion():
                self._reserve(message)
            case ReplayQuestion():
                self._let_ask(message)
            case LimitSettled():
                call = self._find(message.call)
                if call is not None and call.reservations is not None:
                    call.reservations.settle(message.reserved, message.use)
            case PeopleQuestion():
                call = self._find(message.call)
                ask_people(self.questions, message, call.people if call is not None else None)
            case CallReturned():
                call = self._find(message.call)
                if call is not None and call.journal is not None:
                    call.journal.returned(message.call_id, message.native)
            case AgentBroken():
                self._on_failure(message.reason)
            case AgentNoticed():
                self._on_notice(message)
            case _:
                raise Undecodable(f"a process says {type(message).__name__}")

    def _answer_from_journal(self, message: JournalQuestion) -> None:
        call = self._find(message.call)
        journal = call.journal if call is not None else None
        if journal is None or self.questions.count() >= MAX_OPEN:
            fault = Fault(FaultType.TRANSPORT, "the run is over, or asks for too much at once")
            self.questions.refuse(message.question, fault)
            return
        self.questions.answer(message.question, message.call, getattr(journal, message.wanted))

    def _reserve(self, message: LimitQuestion) -> None:
        call = self._find(message.call)
        if call is None or call.reservations is None or self.questions.count() >= MAX_OPEN:
            fault = Fault(FaultType.TRANSPORT, "the run is over, or asks for too much at once")
            self.questions.refuse(message.question, fault)
            return
        work = partial(call.reservations.reserve, message.question, message.asked)
        self.questions.answer(message.question, message.call, work)

    def _let_ask(self, message: ReplayQuestion) -> None:
        replaying, records = current_replay(), self._records.get(message.call)
        step = records.open_steps.get(message.step) if records is not None else None
        if replaying is None or records is None or step is None or self.questions.count() >= MAX_OPEN:
            fault = Fault(FaultType.TRANSPORT, "the run is over, or asks for too much at once")
            self.questions.refuse(message.question, fault)
            return
        if message.miss is not None:
            replaying.note(fault_of(message.miss, "a call was not recorded"), records.trace_id)
        value = replace(step.value, url=redact_text(message.url))
        run, number = value.run_id, value.number
        asked = StepRequest(
            run, records.agent, "model", value.name, value.digest, step.detail.request, (run, number)
        )
        work = partial(replaying.let_ask, asked, value, records.trace_id)
        self.questions.answer(message.question, message.call, work)

    def _emit_event(self, message: RunEventMessage) -> None:
        call = self._find(message.call)
        if call is None or call.emit is None:
            return
        event = decode_event(message.event)
        if isinstance(event, RunEvent):
            texts = {name: getattr(event, name, None) for name in _REPORTED}
            masked: dict[str, Any] = {
                name: redact_text(text) for name, text in texts.items() if isinstance(text, str) and text
            }
            call.emit(replace(event, **masked))

    def _record_exchange(self, message: ExchangeUpdate) -> None:
        records = self._records.get(message.call)
        if records is None or records.wire is None:
            return
        # The process knows the secrets of its agent only.
        exchange = clean_again(message.exchange)
        opened = records.exchanges.get(message.number)
        if opened is None:
            records.exchanges[message.number] = records.wire.add(exchange)
        else:
            opened.put(exchange)

    def _record_step(self, message: StepUpdate) -> None:
        records = self._records.get(message.call)
        if records is None or records.steps is None:
            return
        step = message.detail.step
        parent = records.open_steps.get(step.parent)
        number = parent.number if parent is not None else records.cause
        opened = records.open_steps.get(step.number)
        if opened is None:
            opened = records.open_steps[step.number] = records.steps.begin(
                step.kind,
                name=step.name,
                provider=step.provider,
                parent=number,
                call_id=step.call_id,
                span_id=step.span_id,
            )
        opened.receive(message.detail, number)
        opened.keep_pictures(message.pictures)

    def _resolve(self, answer: CommandDone | TurnAnswer) -> None:
        if (call := self._find(answer.call)) is not None:
            call.answer.set_result(answer)

    def _fail(self, message: AgentCallFailed) -> None:
        if (call := self._find(message.call)) is None:
            return
        fault = fault_of(message.fault, "the agent's process failed and did not say how; see the log")
        if message.traceback:
            fault.__cause__ = RemoteTraceback(message.traceback)
        call.answer.set_exception(fault)


class RemoteTraceback(Exception):
    """Stands for an exception in the child: its text is the traceback from there."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])
