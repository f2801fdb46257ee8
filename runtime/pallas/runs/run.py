"""One run in flight: its counts, its listeners, and the run statistics of an agent."""

import asyncio
import logging
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter, time
from typing import Any, Final

from pallas.executors import Executor
from pallas.model import (
    ANONYMOUS,
    Event,
    Fault,
    LoopMessage,
    Notice,
    Outcome,
    Principal,
    Rerouted,
    Routed,
    RunFinished,
    RunRecord,
    RunRequest,
    RunResult,
    RunStatus,
    ServerMissing,
    StepStarted,
    TextDelta,
    ToolEvent,
    TraceContext,
    Usage,
)
from pallas.model.redaction import redact_text
from pallas.runs.chat_messages import MessageOverride
from pallas.runs.partial_text import PartialText
from pallas.safe_text import one_line
from pallas.telemetry.event_hub import EventHub

log = logging.getLogger(__name__)

Listener = Callable[[Event], None]
# Answered runs from which an agent's latency percentiles are computed.
WINDOW: Final = 200
MAX_EVENTS: Final = 1_000
"""How many of a run's last events are kept for the ledger. Text is in its messages."""
_NO_USAGE: Final = Usage()


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
    _recent: deque[float] = field(default_factory=deque)
    _sorted: list[float] = field(default_factory=list)

    @property
    def waiting(self) -> int:
        """Runs that wait for their conversation."""
        return max(0, self.admitted - self.active)

    def answered(self, seconds: float, usage: Usage) -> None:
        """Count a run that was answered."""
        self.last_latency = seconds
        self.spent(usage)
        if len(self._recent) == WINDOW:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]
        self._recent.append(seconds)
        insort(self._sorted, seconds)
        self.latency_p50, self.latency_p95 = self._rank(50), self._rank(95)

    def spent(self, usage: Usage) -> None:
        """Count the tokens of a run, however it ended."""
        self.tokens_in += usage.input_tokens or 0
        self.tokens_out += usage.output_tokens or 0

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
    task: asyncio.Task[RunResult] | None = None
    executor: Executor | None = None  # what answers it, None until its turn comes
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
    given: MessageOverride | None = None  # what it is about in place of its conversation
    thread: str = ""  # the durable thread that it writes to
    turn_index: int | None = None  # the index of its answer in that thread
    until: float | None = None  # when its caller's timeout ends (``perf_counter``)
    above: tuple[str, ...] = ()  # as in its request, like ``within``
    within: str = ""
    routed: str = ""  # as in its result, like ``rerouted`` and ``missing``
    rerouted: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))
    _calls: dict[str, tuple[str, str]] = field(default_factory=dict)

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

    def begins(self) -> None:
        """Start its clock: its turn has come."""
        self.began, self.started_at = perf_counter(), time()

    @property
    def record(self) -> RunRecord:
        """The run as a record while it is in flight."""
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
        )

    @property
    def seconds(self) -> float:
        """How long it has been running."""
        return perf_counter() - self.began

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

    def emit(self, event: Event) -> None:
        """Publish an event of this run, and count its own steps and calls.

        A ``LoopMessage`` goes only to the journal and the listener of this run, and a relayed event of a run
        below only to the listener.
        """
        if isinstance(event, LoopMessage):
            self._tell(event, self.journal, self.listener)
            return
        if isinstance(event, ToolEvent) and event.relayed:
            self._tell(event, self.listener)
            return
        if isinstance(event, StepStarted) and event.actor == self.agent:
            self.steps = max(self.steps, event.step)
        elif isinstance(event, ToolEvent) and event.phase == "started" and not event.nested:
            self.tools += 1
        elif isinstance(event, Routed):
            self.routed = event.to
        elif isinstance(event, Rerouted):
            self.rerouted.append(f"{event.asked} -> {event.to}: {event.why}")
        elif isinstance(event, ServerMissing):
            self.missing[event.server] = event.why
        if isinstance(event, ToolEvent) and event.span_id:
            if event.phase == "started":
                self._calls[event.call_id] = (event.span_id, event.server)
            else:
                self._calls.pop(event.call_id, None)
        self.draft.hear(event)
        numbered = self.hub.publish(event)
        if not isinstance(event, TextDelta):
            self.events.append(numbered)
        self._tell(numbered, self.listener)

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
        if not self.cause and self.broken is not None:
            self.cause = one_line(redact_text(self.broken.cause), 500)
        seconds = self.seconds
        self.stats.admitted -= 1
        self.stats.total += 1
        if outcome == "ok":
            self.stats.answered(seconds, usage)
        else:
            self.stats.spent(usage)
        log.log(
            logging.WARNING if outcome == "error" else logging.INFO,
            "%s: run %s %s in %.2f s, %d steps, %d tools%s",
            self.agent,
            self.id,
            outcome,
            seconds,
            self.steps,
            self.tools,
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
                fault=fault,
                of_agent=self.of_agent and outcome == "error",
                cause=self.cause,
                partial=partial,
            )
        )
