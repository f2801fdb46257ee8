"""One run in flight: its counts, its listeners, and the run statistics of an agent."""

import asyncio
import logging
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import perf_counter, time
from typing import Any, Final

from pallas.executors import Executor, TurnJournal
from pallas.limits.spending import RunMeter
from pallas.model import (
    ANONYMOUS,
    NO_COST,
    Cost,
    Event,
    Fault,
    LoopMessage,
    Message,
    ModelCost,
    Notice,
    Outcome,
    Principal,
    QuestionAnswered,
    QuestionAsked,
    Rerouted,
    Routed,
    RunContinued,
    RunFinished,
    RunFork,
    RunRecord,
    RunRequest,
    RunResult,
    RunStatus,
    RunVersion,
    Said,
    ServerMissing,
    StepChanged,
    StepStarted,
    TextDelta,
    ToolEvent,
    TraceContext,
    Usage,
)
from pallas.model.ids import mint_claim
from pallas.model.redaction import redact_text
from pallas.model.refusals import OTHERS, REASON, handed_over
from pallas.model.server_offer import StoredOffer
from pallas.runs.chat_messages import MessageOverride
from pallas.runs.partial_text import PartialText
from pallas.runs.run_clock import RunClock
from pallas.safe_text import one_line
from pallas.telemetry.event_hub import EventHub
from pallas.telemetry.open_step import OpenStep
from pallas.telemetry.step_record import RunSteps

log = logging.getLogger(__name__)

Listener = Callable[[Event], None]
# Answered runs from which an agent's latency percentiles are computed.
WINDOW: Final = 200
MAX_EVENTS: Final = 1_000
"""How many of a run's last events are kept for the ledger. Text is in its messages."""
_NO_USAGE: Final = Usage()
VERSION: Final = 12
"""How many digits of the digest of an agent's files name its version in a run's record."""


@dataclass(slots=True)
class Stats:
    """Run statistics of an agent.

    The percentiles are over the last ``WINDOW`` answered runs and are updated when a run ends, so a reader in
    any thread only reads a number.
    """

    admitted: int = 0  # runs in flight, waiting ones included
    active: int = 0
    total: int = 0
    last_latency: float | None = None  # seconds, as are the percentiles
    latency_p50: float | None = None
    latency_p95: float | None = None
    tokens_in: int = 0  # as counted by the provider
    tokens_out: int = 0
    cost: Cost = NO_COST
    _recent: deque[float] = field(default_factory=deque)
    _sorted: list[float] = field(default_factory=list)

    @property
    def waiting(self) -> int:
        """Runs that wait for their conversation."""
        return max(0, self.admitted - self.active)

    def answered(self, seconds: float, usage: Usage) -> None:
        """Count a run that was answered. The cost of its ``usage`` is that of the whole run."""
        self.last_latency = seconds
        self.spent(usage)
        if len(self._recent) == WINDOW:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]
        self._recent.append(seconds)
        insort(self._sorted, seconds)
        self.latency_p50, self.latency_p95 = self._rank(50), self._rank(95)

    def spent(self, usage: Usage) -> None:
        """Count the tokens and the cost of a run, however it ended."""
        self.tokens_in += usage.input_tokens or 0
        self.tokens_out += usage.output_tokens or 0
        self.cost += usage

    def _rank(self, percent: int) -> float:
        """The smallest latency that this percentage of the runs did not exceed."""
        return self._sorted[(len(self._sorted) * percent + 99) // 100 - 1]


@dataclass(slots=True, eq=False)
class ActiveRun:
    """A run from its admission to its end."""

    id: str
    agent: str
    hub: EventHub
    stats: Stats
    listener: Listener | None = None
    followers: list[Listener] = field(default_factory=list)  # of callers that joined it
    task: asyncio.Task[RunResult] | None = None
    executor: Executor | None = None  # what answers it, None until its turn comes
    version: RunVersion | None = None  # the version of its agent that is
    # What its servers offered when it ended, by name
    offers: Mapping[str, StoredOffer] = field(default_factory=dict)
    context: TraceContext | None = None  # its own span
    is_cut: bool = False  # cancelled for another reason than its caller's
    why: str = ""  # the reason of that, for the caller
    is_ended: bool = False
    partial: str = ""  # the text it had written, once it has ended
    cause: str = ""  # why it failed, for operators
    steps: int = 0
    tools: int = 0
    began: float = field(default_factory=perf_counter)  # ``perf_counter``; set again when its turn comes
    started_at: float = field(default_factory=time)  # when it began, Unix seconds
    principal: Principal = ANONYMOUS
    surface: str = ""
    about: str = ""  # the thread that it waits for
    draft: PartialText = field(init=False)  # collects the text it has written so far
    left: asyncio.Future[None] | None = None  # done when no caller waits for its end any more
    of_agent: bool = False  # it failed by its agent's own work, which counts for its health
    broken: Fault | None = None  # the Fault for its caller if its executor broke
    journal: Listener | None = None  # gets each ``LoopMessage`` if the run is durable
    attempt: int = 1  # above 1 another fleet began it
    claim: str = field(default_factory=mint_claim)  # as in its record
    said: Said | None = None  # what it had said there, or the run had from which it goes on
    fork: RunFork | None = None  # as in its request
    meter: RunMeter | None = None  # counts what it spends if something limits it
    before: RunRecord | None = None  # how far it was there
    place: int | None = None  # among the runs that wait for its thread in the ledger
    is_leaving: bool = False  # it shall be handed over after its current step
    leaves_when_parked: bool = False  # it is handed over as soon as it waits for a person
    turn_journal: TurnJournal | None = None  # stores it while it happens if it is durable
    given: MessageOverride | None = None  # what it is about in place of its conversation
    thread: str = ""  # the durable thread that it writes to
    turn_index: int | None = None  # the index of its answer in that thread
    until: float | None = None  # when its caller's timeout ends (``perf_counter``)
    above: tuple[str, ...] = ()  # as in its request, like ``within``
    within: str = ""
    caused_by: str = ""  # as in its record
    recorded: RunSteps | None = None  # its steps, None before it has any
    below: Cost = NO_COST  # what the runs below it cost that are over
    parent_span: str = ""  # the span that its caller sent
    routed: str = ""  # as in its result, like ``rerouted`` and ``missing``
    rerouted: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    clock: RunClock = field(default_factory=RunClock)
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))
    _calls: dict[str, tuple[str, str]] = field(default_factory=dict)
    _told_steps: dict[int, bool] = field(default_factory=dict)  # whether a step was open when it was told
    _took: float | None = None

    def __post_init__(self) -> None:
        self.draft = PartialText(self.agent)

    @property
    def owner(self) -> str:
        """The id of its principal."""
        return self.principal.id

    def start(self, work: Coroutine[Any, Any, RunResult]) -> asyncio.Task[RunResult]:
        """Start ``work``, which answers it, in a task of its own."""
        self.task = asyncio.create_task(work, name=f"run {self.id}")
        return self.task

    @property
    def seconds_left(self) -> float | None:
        """The rest of its caller's timeout, None without one."""
        return None if self.until is None else self.until - perf_counter()

    def fork_from(self, request: RunRequest) -> None:
        """Go on from another run, if the request says so."""
        self.fork = request.fork
        if request.fork is not None and request.fork.said:
            question = Message("user", request.text, request.images)
            self.said = Said((question, *request.fork.said), 0, 0, request.fork.results)

    @property
    def steps_before(self) -> int:
        """How many steps it made in another fleet."""
        return self.said.steps if self.said is not None else 0

    def go_on(self, before: RunRecord, said: Said) -> None:
        """Go on with a run that another fleet began, as far as it was there."""
        self.attempt, self.claim, self.before, self.said = before.attempt, before.claim, before, said
        self.steps, self.tools = before.steps, before.tools

    def begins(self) -> None:
        """Start its clock: its turn has come."""
        if self.before is None:
            self.began, self.started_at = perf_counter(), time()
        else:
            self.began, self.started_at = perf_counter() - self.before.seconds, self.before.started_at

    def priced(self, usage: Usage) -> Usage:
        """The usage of its turn with what the whole run cost: its steps, and what is in none of them."""
        spent = self.step_cost + self._outside(usage)
        return replace(usage, cost=spent.cost, unpriced=spent.unpriced)

    def _outside(self, usage: Usage) -> Cost:
        """What its turn cost apart from its steps; of a handler that asked models here, its steps have it."""
        is_told_by_steps = usage.cost is None and not self.step_cost.is_empty
        return Cost() if is_told_by_steps else Cost.of(usage)

    @property
    def step_cost(self) -> Cost:
        """What its steps cost so far, those that another fleet made too."""
        return self._cost_before + self.recorded.cost if self.recorded is not None else self._cost_before

    @property
    def _cost_before(self) -> Cost:
        return self.said.cost if self.said is not None else NO_COST

    def models_of(self, usage: Usage) -> tuple[ModelCost, ...]:
        """What it cost by model; what is in no step, or in one of another fleet, has no model."""
        steps = self.recorded.models if self.recorded is not None else ()
        rest = self._cost_before + self._outside(usage)
        return steps if rest.is_empty else (*steps, ModelCost("", rest.cost, rest.unpriced))

    @property
    def record(self) -> RunRecord:
        """The run as a record while it is in flight."""
        cost = self.step_cost
        return RunRecord(
            self.id,
            self.agent,
            self.owner,
            self.thread or self.about,
            self.surface,
            started_at=self.started_at,
            seconds=self.seconds,
            steps=self.steps,
            tools=self.tools,
            attempt=self.attempt,
            claim=self.claim,
            within=self.within,
            cost=cost.cost,
            unpriced=cost.unpriced,
            caused_by=self.caused_by,
            version=self.version.files[:VERSION] if self.version is not None else "",
            parent_span=self.parent_span,
            forked_from=self.fork.run if self.fork is not None else "",
            forked_at=self.fork.step if self.fork is not None else 0,
        )

    @property
    def goes_on_elsewhere(self) -> bool:
        """Whether another fleet goes on with it: then this one does not write how it ended."""
        return self.broken is not None and self.broken.data.get(REASON) in OTHERS

    def pause(self) -> None:
        """Stop its ``run_timeout`` while a person is asked. Its caller's own timeout goes on."""
        self.clock.pause(self.until)
        if self.leaves_when_parked:
            self.leave_parked()

    def unpause(self) -> None:
        """Let its ``run_timeout`` go on, once for each ``pause``."""
        self.clock.unpause()

    def leave_parked(self) -> None:
        """Leave it to another fleet if it waits for a person and is durable: this fleet ends."""
        self.leaves_when_parked = True
        if self.is_parked and self.turn_journal is not None:
            self.break_off(handed_over(self.id))

    @property
    def is_parked(self) -> bool:
        """Whether it, or a run below it, waits for a person."""
        return self.clock.is_paused

    @property
    def seconds(self) -> float:
        """How long it has been running, or took."""
        return self._took if self._took is not None else perf_counter() - self.began

    def end_clock(self) -> float:
        """Stop the clock; the time until the first call. What is written, shown and sent is this figure."""
        self._took = self.seconds
        return self._took

    def calls(self, trace: TraceContext) -> bool:
        """Whether the run has an open call with this span."""
        return self.called(trace) is not None

    def called(self, trace: TraceContext) -> str | None:
        """The downstream that the run calls with this span, None if it has no such open call."""
        own = self.context
        if own is None or own.trace_id != trace.trace_id:
            return None
        return next((server for span, server in self._calls.values() if span == trace.span_id), None)

    def cut(self, why: str = "") -> bool:
        """Cancel it for a reason that is not its caller's. Text it has written so far is kept."""
        if self.task is None or self.is_ended or self.task.done():
            return False
        self.is_cut, self.why = True, self.why or why
        return self.task.cancel()

    def break_off(self, fault: Fault) -> None:
        """End it because its executor broke.

        Its caller gets ``fault``; text it has written so far is kept.
        """
        if self.cut(fault.message):
            self.broken = fault

    def leave(self) -> None:
        """Stop waiting for its end: it does not stop when it is cancelled."""
        self.finish(self.cancelled_as, self.ended_by, partial=self.draft.text())
        if self.left is not None and not self.left.done():
            self.left.set_result(None)

    @property
    def cancelled_as(self) -> Outcome:
        """The outcome of a run that was cancelled: an error if its executor broke."""
        return "cancelled" if self.broken is None else "error"

    @property
    def ended_by(self) -> str:
        """The reason of its cancellation, in one line."""
        if self.broken is not None:
            return one_line(self.broken.message, 300)
        return f"cancelled: {self.why}" if self.why else "cancelled"

    def end_of(self, error: BaseException) -> tuple[RunStatus, str]:
        """The status and the one-line reason, without secrets, of a run that ends with that error."""
        if isinstance(error, asyncio.CancelledError):
            return self.cancelled_as, self.ended_by
        if isinstance(error, Fault):
            self.cause = one_line(redact_text(error.cause), 500)
            return "error", one_line(redact_text(error.message), 300)
        self.cause = f"{type(error).__name__}; the log has the traceback"
        return "error", "internal error"

    def rest(self, request: RunRequest) -> dict[str, str]:
        """The text that is left of a run that was cut short, and its handle if it is new; for the caller."""
        # Once it is over its caller's token is no longer known, and could not be masked.
        if not (written := self.partial if self.is_ended else self.draft.text()):
            return {}
        # The caller does not know a handle yet that was made for this request.
        handle = request.conversation if request.new_conversation else None
        return {"partial": written, **({"conversation_id": handle} if handle else {})}

    def tell(self, notice: Notice) -> None:
        """Publish a notice to all who watch the fleet."""
        self.hub.publish(notice)

    def tell_step(self, step: OpenStep) -> None:
        """Publish the begin and the end of a recorded step; the ledger has the steps themselves."""
        if self._told_steps.get(step.number) != step.is_open:
            self._told_steps[step.number] = step.is_open
            self.hub.publish(StepChanged(run_id=self.id, agent=self.agent, step=step.outline))

    def emit(self, event: Event) -> None:
        """Publish an event of this run, and count its own steps and calls.

        A ``LoopMessage`` goes only to the journal and the listeners of this run, and a relayed event of a run
        below only to the listeners.
        """
        if isinstance(event, LoopMessage):
            self._tell(event, self.journal, self.listener, *self.followers)
            return
        if isinstance(event, ToolEvent | QuestionAsked | QuestionAnswered) and event.relayed:
            self._tell(event, self.listener, *self.followers)
            return
        self._note(event)
        self.draft.hear(event)
        numbered = self.hub.publish(event)
        if not isinstance(event, TextDelta):
            if len(self.events) == MAX_EVENTS:  # how it goes on is kept for as long as the run
                del self.events[1 if isinstance(self.events[0], RunContinued) else 0]
            self.events.append(numbered)
        self._tell(numbered, self.listener, *self.followers)

    def _note(self, event: Event) -> None:
        if isinstance(event, StepStarted) and event.actor == self.agent:
            steps_before = self.before.steps if self.before is not None else 0
            self.steps = max(self.steps, steps_before + event.step)
        elif isinstance(event, ToolEvent) and event.phase == "started" and not event.nested:
            self.tools += 1
        elif isinstance(event, Routed):
            self.routed = event.to
        elif isinstance(event, Rerouted):
            self.rerouted.append(f"{event.asked} -> {event.to}: {event.why}")
        elif isinstance(event, ServerMissing):
            self.missing[event.server] = event.why
        elif isinstance(event, RunContinued):
            calls = "".join(f"; {each}" for each in event.calls)
            said = self.agent, self.id, event.attempt, calls
            log.info(
                "%s: run %s continues, attempt %d%s", *said, extra={"agent": self.agent, "run_id": self.id}
            )
        if isinstance(event, ToolEvent) and event.span_id:
            if event.phase == "started":
                self._calls[event.call_id] = (event.span_id, event.server)
            else:
                self._calls.pop(event.call_id, None)

    @staticmethod
    def _tell(event: Event, *listeners: Listener | None) -> None:
        for hear in listeners:
            if hear is not None:
                with suppress(Exception):  # a listener that fails is its own problem, never the run's
                    hear(event)

    def finish(self, outcome: Outcome, fault: str = "", usage: Usage = _NO_USAGE, partial: str = "") -> None:
        """Count the run as over and publish how it ended.

        Only the first call counts; ``partial`` is clean text.
        """
        if self.is_ended:
            return
        self.is_ended, self.partial = True, partial
        if self.meter is not None:
            self.meter.is_open = False
        if not self.cause and self.broken is not None:
            self.cause = one_line(redact_text(self.broken.cause), 500)
        seconds, whole = self.end_clock(), self.priced(usage)
        self.stats.admitted -= 1
        self.stats.total += 1
        if outcome == "ok":
            self.stats.answered(seconds, whole)
        else:
            self.stats.spent(whole)
        log.log(
            logging.WARNING if outcome == "error" else logging.INFO,
            "%s: run %s %s in %.2f s, %s, %s%s%s",
            self.agent,
            self.id,
            outcome,
            seconds,
            _count(self.steps, "step"),
            _count(self.tools, "tool"),
            f", {cost.words}" if not (cost := Cost.of(whole)).is_empty else "",
            f": {one_line(fault, 500)}{f' ({self.cause})' if self.cause else ''}" if fault else "",
            extra={"agent": self.agent, "run_id": self.id, **({"partial": partial} if partial else {})},
        )
        self.emit(
            RunFinished(
                run_id=self.id,
                agent=self.agent,
                outcome=outcome,
                seconds=seconds,
                steps=self.steps,
                tools=self.tools,
                tokens_in=usage.input_tokens,
                tokens_out=usage.output_tokens,
                cost=whole.cost,
                unpriced=whole.unpriced,
                models=self.models_of(usage),
                fault=fault,
                of_agent=self.of_agent and outcome == "error",
                cause=self.cause,
                partial=partial,
            )
        )


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + "s" * (number != 1)
