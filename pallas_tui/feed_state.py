"""The runs of the fleet as the feed shows them, made of events; nothing of the screen in here."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Literal

from pallas.model import (
    AuthHop,
    Event,
    LoopStopped,
    RunEvent,
    RunFinished,
    RunStarted,
    StepStarted,
    ToolEvent,
)

from .feed_hops import Hops, why_stopped
from .frame import Frame

MAX_RUNS: Final = 500
MAX_STEPS: Final = 20_000
MAX_STEPS_OF_RUN: Final = 2_000

State = Literal["running", "ok", "error", "cancelled", "unknown"]
"""``unknown``: it is over, but the event that told how it ended was lost."""


@dataclass(slots=True)
class Step:
    """A step of an agent's loop (no ``call_id``) or a tool call. ``depth`` 0 is the run's own step.

    With a ``notice`` it is a request to a downstream that went wrong, and that is what went wrong.

    ``ended`` is None while it runs, and stays None when nobody told; ``started`` is None when the start
    was lost.
    """

    at: float
    label: str
    depth: int
    state: State = "running"
    started: float | None = None
    ended: float | None = None
    call_id: str = ""
    notice: str = ""

    def seconds(self, now: float) -> float | None:
        """How long it took, or takes so far; None when that is not known."""
        if self.started is None:
            return None
        if self.ended is not None:
            return max(0.0, self.ended - self.started)
        return max(0.0, now - self.started) if self.state == "running" else None


@dataclass(slots=True)
class Run:
    """One call of an agent. ``seconds`` is set when it is over; ``left_out`` counts steps no longer kept.

    ``warning`` says that a guard stopped its loop, ``hops`` are its requests to downstreams.
    """

    id: str
    agent: str
    started: float
    preview: str = ""
    images: int = 0
    conversation: str = ""
    state: State = "running"
    seconds: float | None = None
    fault: str = ""
    warning: str = ""
    tokens: tuple[int | None, int | None] = (None, None)
    cancelling: bool = False
    left_out: int = 0
    burst: int = 0
    version: int = 0
    steps: list[Step] = field(default_factory=list)
    hops: Hops = field(default_factory=Hops)
    _open: dict[str, Step] = field(default_factory=dict)
    _loops: dict[str, Step] = field(default_factory=dict)
    _noticed: dict[int, Step] = field(default_factory=dict)

    @property
    def running(self) -> bool:
        """Whether it is not over."""
        return self.state == "running"

    def elapsed(self, now: float) -> float | None:
        """Seconds it took, or takes so far; None when the event that told was lost."""
        if self.seconds is not None:
            return self.seconds
        return max(0.0, now - self.started) if self.running else None

    def matches(self, words: Iterable[str]) -> bool:
        """Whether every one of the lower-case ``words`` occurs in it; ``agent:x`` asks the agent only."""
        return all(self._matches(word) for word in words)

    def _matches(self, word: str) -> bool:
        if word.startswith("agent:"):
            return word.removeprefix("agent:") in self.agent.lower()
        own = (self.agent, self.preview, self.fault, self.warning, self.state, self.id)
        return any(word in text.lower() for text in own) or any(
            word in f"{step.label} {step.notice}".lower() for step in self.steps
        )

    def step(self, event: StepStarted) -> None:
        """A loop goes to its next step: the one before is over."""
        self._end_loop(event.actor, event.at)
        child = event.actor != self.agent
        label = f"{event.actor} step {event.step}" if child else f"step {event.step}"
        step = Step(event.at, f"{label} ({event.kind})", 2 if child else 0, started=event.at)
        self._loops[event.actor] = step
        self._add(step)

    def tool(self, event: ToolEvent) -> None:
        """A call begins or ends."""
        if event.phase == "started":
            step = self._call(event, started=event.at)
            self._open[event.call_id] = step
            self._add(step)
            return
        ending = self._open.pop(event.call_id, None)
        if ending is None:  # its beginning was lost
            ending = self._call(event, started=None)
            self._add(ending)
        ending.state = "ok" if event.phase == "completed" else "error"
        ending.ended = event.at
        if not event.nested:
            self._end_children(event)

    def hop(self, event: AuthHop) -> None:
        """A request to a downstream: only one that went wrong gets a line, and its like no second one."""
        hop = self.hops.add(event)
        if hop is None or not hop.notice:
            return
        if (step := self._noticed.get(id(hop))) is None:
            step = Step(event.at, hop.label, 1, "error", notice=hop.notice)
            self._noticed[id(hop)] = step
            self._add(step)
        else:
            step.label = hop.label

    def finish(self, event: RunFinished) -> None:
        """It is over, and so is everything in it."""
        self.state, self.seconds, self.fault = event.outcome, event.seconds, event.fault
        self.tokens = event.tokens_in, event.tokens_out
        self._close(event.at, "ok" if event.outcome == "ok" else "unknown")

    def lose(self) -> None:
        """It is over, and nobody knows how."""
        self.state = "unknown"
        self._close(None, "unknown")

    def drop_oldest(self, number: int) -> None:
        """Keep all but the first ``number`` steps."""
        del self.steps[:number]
        self.left_out += number
        self.version += 1

    def _call(self, event: ToolEvent, started: float | None) -> Step:
        depth = 3 if event.nested else 1
        return Step(event.at, f"{event.server}/{event.tool}", depth, "running", started, None, event.call_id)

    def _add(self, step: Step) -> None:
        self.steps.append(step)

    def _end_loop(self, actor: str, at: float | None, state: State = "ok") -> None:
        if (step := self._loops.pop(actor, None)) is not None:
            step.state, step.ended = state, at

    def _end_children(self, event: ToolEvent) -> None:
        """A sub-agent says when a step begins; its last one ends with the call that asked for it."""
        others = any(step.depth == 1 for step in self._open.values())
        for actor in [actor for actor in self._loops if actor != self.agent]:
            if actor == event.server or not others:
                self._end_loop(actor, event.at)

    def _close(self, at: float | None, state: State) -> None:
        for actor in list(self._loops):
            self._end_loop(actor, at, state)
        for step in self._open.values():
            step.state, step.ended = state, at
        self._open.clear()
        self.cancelling = False


class Feed:
    """The last runs, oldest first: at most ``MAX_RUNS`` of them, with at most ``MAX_STEPS`` steps in all.

    ``version`` changes whenever anything but the passing of time did. ``added`` counts lines that ever
    came (runs and steps), ``lost`` the events that were dropped before they could be read.
    """

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._steps = 0
        self._burst = 0
        self._active = 0
        self._doubtful = False
        self.version = 0
        self.added = 0
        self.lost = 0
        self._take: dict[type[Event], Callable[[Any], None]] = {
            RunStarted: self._started,
            StepStarted: self._stepped,
            ToolEvent: self._called,
            AuthHop: self._hopped,
            LoopStopped: self._stopped,
            RunFinished: self._finished,
        }

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs, oldest first."""
        return tuple(self._runs.values())

    @property
    def active(self) -> int:
        """How many of them are not over."""
        return self._active

    def run(self, run_id: str) -> Run | None:
        """The run with that id, if it is still kept."""
        return self._runs.get(run_id)

    def is_open(self, run: Run) -> bool:
        """Whether a run shows its steps unasked: while it runs, and until the next calls come."""
        return run.running or run.burst == self._burst

    def absorb(self, frame: Frame) -> bool:
        """Take in a frame; returns whether anything changed."""
        before = self.version
        for event in frame.events:
            if (take := self._take.get(type(event))) is not None:
                take(event)
        if frame.dropped:
            self.lost += frame.dropped
            self._doubtful = True
            self.version += 1
        if self._doubtful:
            self._settle(frame)
        self._trim()
        return self.version != before

    def mark_cancelling(self, run_id: str) -> None:
        """Somebody asked for the run to be cancelled."""
        if (run := self._runs.get(run_id)) is not None and run.running:
            run.cancelling = True
            self._changed(run)

    def _run_of(self, event: RunEvent, started: float | None = None) -> Run:
        run = self._runs.get(event.run_id)
        if run is None:
            if self._active == 0:
                self._burst += 1
            run = Run(event.run_id, event.agent, event.at if started is None else started, burst=self._burst)
            self._runs[run.id] = run
            self._active += 1
            self.added += 1
        elif run.state == "unknown":  # given up too early
            run.state = "running"
            self._active += 1
        self._changed(run)
        return run

    def _started(self, event: RunStarted) -> None:
        run = self._run_of(event)
        run.preview, run.images, run.conversation = event.preview, event.images, event.conversation

    def _stepped(self, event: StepStarted) -> None:
        self._grow(self._run_of(event), lambda run: run.step(event))

    def _called(self, event: ToolEvent) -> None:
        self._grow(self._run_of(event), lambda run: run.tool(event))

    def _hopped(self, event: AuthHop) -> None:
        self._grow(self._run_of(event), lambda run: run.hop(event))

    def _stopped(self, event: LoopStopped) -> None:
        self._run_of(event).warning = why_stopped(event)

    def _finished(self, event: RunFinished) -> None:
        run = self._run_of(event, event.at - event.seconds)
        if run.running:
            self._active -= 1
        run.finish(event)

    def _grow(self, run: Run, change: Callable[[Run], None]) -> None:
        before = len(run.steps)
        change(run)
        grown = len(run.steps) - before
        self._steps += grown
        self.added += grown
        if len(run.steps) > MAX_STEPS_OF_RUN:
            self._shorten(run, MAX_STEPS_OF_RUN // 10)

    def _changed(self, run: Run) -> None:
        run.version += 1
        self.version += 1

    def _settle(self, frame: Frame) -> None:
        """After a gap: a run of an agent that is idle must have ended in it."""
        busy = {agent.name for agent in frame.snapshot.agents if agent.runs_active or agent.runs_queued}
        heard = {event.run_id for event in frame.events if isinstance(event, RunEvent)}
        doubtful = False
        for run in self._runs.values():
            if run.running and run.id not in heard and run.agent not in busy:
                run.lose()
                self._active -= 1
                self._changed(run)
            doubtful = doubtful or run.running
        self._doubtful = doubtful

    def _shorten(self, run: Run, number: int) -> None:
        number = min(number, len(run.steps))
        run.drop_oldest(number)
        self._steps -= number

    def _trim(self) -> None:
        while len(self._runs) > MAX_RUNS:
            # The oldest that is over; with that many running at once, the oldest.
            ended = (run for run in self._runs.values() if not run.running)
            gone = next(ended, None) or next(iter(self._runs.values()))
            del self._runs[gone.id]
            self._steps -= len(gone.steps)
            self._active -= gone.running
            self.version += 1
        if self._steps > MAX_STEPS:
            for run in islice(self._runs.values(), MAX_RUNS):
                self._shorten(run, self._steps - MAX_STEPS)
                if self._steps <= MAX_STEPS:
                    break
