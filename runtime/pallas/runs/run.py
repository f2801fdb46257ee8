"""One run while it happens: what it counts, whom it tells, and how an agent's runs add up."""

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
from pallas.model.safe_text import one_line
from pallas.runs.chat_messages import MessageOverride
from pallas.runs.partial_text import PartialText
from pallas.telemetry.event_hub import EventHub
from pallas.telemetry.log import redact_text

log = logging.getLogger(__name__)

Listener = Callable[[Event], None]
# Answered runs that an agent's latencies are worked out of.
WINDOW: Final = 200
MAX_EVENTS: Final = 1_000
"""Events of a run that are kept for the ledger, its last ones; text is in its messages."""
_NO_USAGE: Final = Usage()


@dataclass(slots=True)
class Stats:
    """An agent's runs: ``admitted`` counts those in flight, waiting ones included; latency in seconds.

    The percentiles are over the last ``WINDOW`` runs that were answered, worked out when one of them ends:
    whoever reads them, from any thread, only reads a number. Tokens are those that a provider counted.
    """

    admitted: int = 0
    active: int = 0
    total: int = 0
    last_latency: float | None = None
    latency_p50: float | None = None
    latency_p95: float | None = None
    tokens_in: int = 0
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
        """The smallest latency that so many of the runs did not exceed."""
        return self._sorted[(len(self._sorted) * percent + 99) // 100 - 1]


@dataclass(slots=True, eq=False)
class ActiveRun:
    """A run from its admission to its end. ``began`` starts anew when its turn comes.

    ``executor`` is what answers it, None until its turn comes. ``is_cut`` once somebody else than its caller
    cancels it; ``why`` is told to the caller then. ``draft`` is what it has written so far, ``context`` its
    own span, ``partial`` what was left of it when it was ``over``. ``left`` is done when
    nobody waits for its end any more. ``broken`` is what its caller is told when what answered it broke.
    ``journal`` gets each ``LoopMessage``, where these are kept; ``thread`` is where, ``turn_index`` the
    place of its answer there, ``events`` what happened in it. ``given`` is what it is about in place of its
    conversation. ``started_at`` is when it began, in seconds of the epoch; ``principal`` and ``surface`` are
    as in its request, ``about`` is the thread that it waits for. ``until`` is
    when its caller's patience ends (``perf_counter``), ``routed``, ``rerouted`` and ``missing`` as in its
    result, ``above`` and ``within`` as in its request.
    """

    id: str
    agent: str
    hub: EventHub
    stats: Stats
    listener: Listener | None = None
    task: asyncio.Task[RunResult] | None = None
    executor: Executor | None = None
    context: TraceContext | None = None
    is_cut: bool = False
    why: str = ""
    over: bool = False
    partial: str = ""
    cause: str = ""
    steps: int = 0
    tools: int = 0
    began: float = field(default_factory=perf_counter)
    started_at: float = field(default_factory=time)
    principal: Principal = ANONYMOUS
    surface: str = ""
    about: str = ""
    draft: PartialText = field(init=False)
    left: asyncio.Future[None] | None = None
    broken: Fault | None = None
    journal: Listener | None = None
    given: MessageOverride | None = None
    thread: str = ""
    turn_index: int | None = None
    until: float | None = None
    above: tuple[str, ...] = ()
    within: str = ""
    routed: str = ""
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
        """Do ``work``, which answers it, in a task of its own."""
        self.task = asyncio.create_task(work, name=f"run {self.id}")
        return self.task

    @property
    def seconds_left(self) -> float | None:
        """Of what its caller gave it, None for any time."""
        return None if self.until is None else self.until - perf_counter()

    def begins(self) -> None:
        """Its turn has come: it runs from now on."""
        self.began, self.started_at = perf_counter(), time()

    @property
    def record(self) -> RunRecord:
        """What is known of it while it is in flight."""
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
        """Whether this span is that of a call which the run makes now."""
        return self.called(trace) is not None

    def called(self, trace: TraceContext) -> str | None:
        """The downstream that the run calls now with this span; None when it makes no such call."""
        own = self.context
        if own is None or own.trace_id != trace.trace_id:
            return None
        return next((server for span, server in self._calls.values() if span == trace.span_id), None)

    def cut(self, why: str = "") -> bool:
        """Cancel it for a reason that is not its caller's; what it has written so far is kept."""
        if self.task is None or self.over or self.task.done():
            return False
        self.is_cut, self.why = True, self.why or why
        return self.task.cancel()

    def break_off(self, fault: Fault) -> None:
        """End it: what answers it is broken. Its caller is told that; what it has written so far is kept."""
        if self.cut(fault.message):
            self.broken = fault

    def leave(self) -> None:
        """Do not wait for its end: it does not stop when it is cancelled."""
        self.finish(self.cancelled_as, self.ended_by, partial=self.draft.text())
        if self.left is not None and not self.left.done():
            self.left.set_result(None)

    @property
    def cancelled_as(self) -> Outcome:
        """What becomes of it once it is cancelled: one that broke is an error."""
        return "cancelled" if self.broken is None else "error"

    @property
    def ended_by(self) -> str:
        """How its cancelling is told."""
        if self.broken is not None:
            return one_line(self.broken.message, 300)
        return f"cancelled: {self.why}" if self.why else "cancelled"

    def end_of(self, error: BaseException) -> tuple[RunStatus, str]:
        """How it ends with that error, and how that is told, without secrets."""
        if isinstance(error, asyncio.CancelledError):
            return self.cancelled_as, self.ended_by
        if isinstance(error, Fault):
            self.cause = one_line(redact_text(error.cause), 500)
            return "error", one_line(redact_text(error.message), 300)
        self.cause = f"{type(error).__name__}; the log has the traceback"
        return "error", "internal error"

    def rest(self, request: RunRequest) -> dict[str, str]:
        """What is left of it where it is cut short, for its caller."""
        # Once it is over its caller's token is no longer known, and could not be masked.
        if not (written := self.partial if self.over else self.draft.text()):
            return {}
        # A handle that was made for this request is told nowhere else.
        handle = request.conversation if request.new_conversation else None
        return {"partial": written, **({"conversation_id": handle} if handle else {})}

    def tell(self, notice: Notice) -> None:
        """Say something to whoever watches the fleet."""
        self.hub.publish(notice)

    def emit(self, event: Event) -> None:
        """Publish an event of this run, counting its own steps and calls.

        A ``LoopMessage`` is for those that this run belongs to, and not for everyone; what runs below have
        told themselves is for its caller.
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
        """Count the run as over and tell how it ended; only the first time. ``partial`` is clean text."""
        if self.over:
            return
        self.over, self.partial = True, partial
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
                cause=self.cause,
                partial=partial,
            )
        )
