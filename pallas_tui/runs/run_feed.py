"""The runs of the fleet for the feed, built from events. Nothing in here imports the screen."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from heapq import merge
from itertools import islice
from typing import Any, Final

from pallas.model import (
    AgentChanged,
    AuthHop,
    BackendChosen,
    Compacted,
    Event,
    LoopBlocked,
    LoopStopped,
    MessagePassed,
    ModelRetry,
    Notice,
    QuestionAnswered,
    QuestionAsked,
    Reloaded,
    Rerouted,
    Routed,
    RunContinued,
    RunEvent,
    RunFinished,
    RunStarted,
    ServerMissing,
    Step,
    StepChanged,
    TextDelta,
    TodoChanged,
    ToolEvent,
    VerdictReached,
)

from ..frame import FleetFrame
from .feed_remark import FeedRemark, remark_of
from .feed_run import MAX_NESTING, FeedRun, RunStep, State
from .past_runs import RecalledRun
from .run_requests import why_stopped

__all__ = ["MAX_RUNS", "MAX_STEPS", "MAX_STEPS_OF_RUN", "Feed", "FeedRun", "RunStep", "State"]

MAX_RUNS: Final = 500
MAX_STEPS: Final = 20_000
MAX_STEPS_OF_RUN: Final = 2_000
MAX_REMARKS: Final = 200
_FOLDED: Final = -1
"""In place of the number of a burst: no burst has it."""
_REMARKED: Final = frozenset({AgentChanged, LoopBlocked, Notice, Reloaded, VerdictReached})


class Feed:
    """The last runs, oldest first: at most ``MAX_RUNS`` of them, with at most ``MAX_STEPS`` steps in all.

    A run is nested in the call that started it, wherever that call was made, as soon as both are known:
    ``roots`` are the others. ``remarks`` are lines that are no runs, at most ``MAX_REMARKS``.

    ``version`` grows with every change except the passing of time. ``added`` counts all lines that were ever
    added (runs and steps), ``lost`` the events that were dropped before they could be read.
    """

    def __init__(self) -> None:
        self._runs: dict[str, FeedRun] = {}
        self._calls: dict[str, tuple[FeedRun, RunStep]] = {}
        self._orphans: dict[str, list[FeedRun]] = {}
        self._remarks: deque[FeedRemark] = deque(maxlen=MAX_REMARKS)
        self._steps = 0
        self._burst = 0
        self._active = 0
        self._doubtful = False
        self.version = 0
        self.added = 0
        self.lost = 0
        self._take: dict[type[Event], Callable[[Any], None]] = {
            RunStarted: self._started,
            StepChanged: self._recorded,
            ToolEvent: self._called,
            AuthHop: self._requested,
            LoopStopped: self._stopped,
            Compacted: self._compacted,
            Routed: self._routed,
            Rerouted: self._routed,
            ServerMissing: self._missed,
            ModelRetry: self._retried,
            RunContinued: self._continued,
            TextDelta: self._wrote,
            MessagePassed: self._passed,
            TodoChanged: lambda event: self._noted(event, FeedRun.waited),
            BackendChosen: lambda event: self._noted(event, FeedRun.chose),
            QuestionAsked: lambda event: self._noted(event, FeedRun.asked),
            QuestionAnswered: lambda event: self._noted(event, FeedRun.answered),
            RunFinished: self._finished,
        }

    @property
    def runs(self) -> tuple[FeedRun, ...]:
        """The runs, oldest first."""
        return tuple(self._runs.values())

    @property
    def roots(self) -> list[FeedRun]:
        """The runs that no known call started, oldest first."""
        return [run for run in self._runs.values() if run.parent is None]

    @property
    def remarks(self) -> tuple[FeedRemark, ...]:
        """The remarks, oldest first."""
        return tuple(self._remarks)

    def remark(self, key: str) -> FeedRemark | None:
        """Return the remark with that key, if it is still kept."""
        return next((one for one in self._remarks if one.key == key), None)

    @property
    def doubtful(self) -> list[str]:
        """The ids of the runs of which it is not known how they ended, newest first."""
        return [run.id for run in reversed(self._runs.values()) if run.state == "unknown"]

    @property
    def active(self) -> int:
        """How many runs are not over."""
        return self._active

    def run(self, run_id: str) -> FeedRun | None:
        """Return the run with that id, if it is still kept."""
        return self._runs.get(run_id)

    def is_open(self, run: FeedRun) -> bool:
        """Return whether a run shows its steps by default: while it runs, and until the next calls come.

        A nested run does so together with the run above it.
        """
        run = run.root
        return run.running or run.burst == self._burst

    def absorb(self, frame: FleetFrame) -> bool:
        """Take in a frame; return whether anything changed."""
        before = self.version
        for event in (*frame.events, *frame.elsewhere):
            if (take := self._take.get(type(event))) is not None:
                if not self._is_recalled(event):
                    take(event)
            elif type(event) in _REMARKED:
                self._note(event, frame)
        if frame.dropped:
            self.lost += frame.dropped
            self._doubtful = True
            self.version += 1
        if self._doubtful:
            self._settle(frame)
        self._trim()
        return self.version != before

    def recall(self, past: Iterable[RecalledRun]) -> None:
        """Take in runs that are over, the oldest first; those that it has stay as they are.

        They are sorted in and not new: they stay folded, and are not among what was ``added``.
        """
        others, added, burst = self._runs, self.added, self._burst
        self._runs = {}
        for each in past:
            if each.run_id not in others:
                for event in each.events:
                    if (take := self._take.get(type(event))) is not None:
                        take(event)
                if (run := self._runs.get(each.run_id)) is not None:
                    run.is_before = each.is_before
                    run.recalled_until = max(event.at for event in each.events)
                    run.burst = _FOLDED
        in_order = merge(self._runs.values(), others.values(), key=lambda run: run.started)
        self._runs = {run.id: run for run in in_order}
        self.added, self._burst = added, burst
        self.version += 1
        self._trim()

    def _is_recalled(self, event: Event) -> bool:
        """Whether it is known from the ledger: a workbench may attach to a fleet that tells it again."""
        run = self._runs.get(event.run_id) if isinstance(event, RunEvent) else None
        return run is not None and event.at <= run.recalled_until

    def _note(self, event: Event, frame: FleetFrame) -> None:
        remark = remark_of(event, {agent.name: agent.version for agent in frame.snapshot.agents})
        if remark is None:
            return
        if isinstance(event, LoopBlocked):
            last = next((one for one in reversed(self._remarks) if one.key.startswith(remark.key)), None)
            if (
                event.over
                and last is not None
                and isinstance(last.about, LoopBlocked)
                and not last.about.over
            ):
                place = self._remarks.index(last)
                self._remarks[place] = replace(remark, key=last.key, at=last.at)
                self.version += 1
                return
            remark = replace(remark, key=f"{remark.key} {event.seq} {event.at}")
        self._remarks.append(remark)
        self.added += 1
        self.version += 1

    def mark_cancelling(self, run_id: str) -> None:
        """Note that the user asked to cancel the run."""
        if (run := self._runs.get(run_id)) is not None and run.running:
            run.cancelling = True
            self._changed(run)

    def _run_of(self, event: RunEvent, started: float | None = None) -> FeedRun:
        run = self._runs.get(event.run_id)
        if run is None:
            if self._active == 0:
                self._burst += 1
            run = FeedRun(
                event.run_id, event.agent, event.at if started is None else started, burst=self._burst
            )
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
        if not run.running:  # another replica, or this one, goes on with it
            run.revive()
            self._active += 1
        self._grew(run, int(run.moves(event)))
        run.begin(event)
        if event.parent_span and run.parent is None:
            if (call := self._calls.get(event.parent_span)) is not None:
                self._adopt(run, *call)
            else:
                self._orphans.setdefault(event.parent_span, []).append(run)

    def learn(self, run: FeedRun, steps: Iterable[Step]) -> None:
        """Take in what a run recorded, as far as its events did not say it."""
        for step in steps:
            self._list(run, run.take(step))
        self._changed(run)

    def _recorded(self, event: StepChanged) -> None:
        run = self._run_of(event)
        self._list(run, run.take(event.step))

    def _called(self, event: ToolEvent) -> None:
        run = self._run_of(event)
        self._list(run, run.tool(event))

    def _list(self, run: FeedRun, step: RunStep | None) -> None:
        """Count a new line, and nest the runs that it started."""
        if step is None:
            return
        if step.span:
            self._calls[step.span] = run, step
            for child in self._orphans.pop(step.span, ()):
                self._adopt(child, run, step)
        self._grew(run, 1)

    def _requested(self, event: AuthHop) -> None:
        run = self._run_of(event)
        before = len(run.steps)
        run.request(event)
        self._grew(run, len(run.steps) - before)

    def _stopped(self, event: LoopStopped) -> None:
        self._run_of(event).warning = why_stopped(event)

    def _compacted(self, event: Compacted) -> None:
        run = self._run_of(event)
        run.compact(event)
        self._grew(run, 1)

    def _routed(self, event: Routed | Rerouted) -> None:
        run = self._run_of(event)
        run.routed(event)
        self._grew(run, 1)

    def _retried(self, event: ModelRetry) -> None:
        run = self._run_of(event)
        run.retry(event)
        self._grew(run, 1)

    def _continued(self, event: RunContinued) -> None:
        run = self._run_of(event)
        run.continued(event)
        self._grew(run, 1)

    def _wrote(self, event: TextDelta) -> None:
        if (run := self._runs.get(event.run_id)) is not None and event.actor in ("", run.agent):
            run.heard = event.at

    def _missed(self, event: ServerMissing) -> None:
        run = self._run_of(event)
        run.missed(event)
        self._grew(run, 1)

    def _passed(self, event: MessagePassed) -> None:
        if event.outcome != "delivered":  # there may be thousands of the others, and the calls show them
            self._noted(event, FeedRun.passed)

    def _noted(self, event: RunEvent, note: Callable[[FeedRun, Any], bool]) -> None:
        if event.run_id in self._runs:  # the first message of a fleet starts no run
            run = self._run_of(event)
            self._grew(run, int(note(run, event)))

    def _finished(self, event: RunFinished) -> None:
        run = self._run_of(event, event.at - event.seconds)
        if run.running:
            self._active -= 1
        run.finish(event)

    def _adopt(self, run: FeedRun, parent: FeedRun, step: RunStep) -> None:
        """Nest ``run`` in the call ``step`` of ``parent``."""
        if run is parent or run in parent.ancestors():
            return
        if parent.nesting + run.height >= MAX_NESTING:
            return
        run.parent, run.parent_step = parent, step
        step.runs = [*(step.runs or ()), run]
        self._changed(run)

    def _abandon(self, steps: Iterable[RunStep]) -> None:
        """Make the runs of calls that are no longer kept stand on their own."""
        for step in steps:
            if step.span:
                self._calls.pop(step.span, None)
            for child in step.runs or ():
                child.parent = child.parent_step = None
                self._changed(child)

    def _grew(self, run: FeedRun, by: int) -> None:
        self._steps += by
        self.added += by
        if len(run.steps) > MAX_STEPS_OF_RUN:
            self._shorten(run, MAX_STEPS_OF_RUN // 10)

    def _changed(self, run: FeedRun) -> None:
        run.version += 1
        self.version += 1
        above: FeedRun | None = run
        while above is not None:
            above.tree_version += 1
            above = above.parent

    def _settle(self, frame: FleetFrame) -> None:
        """End runs of idle agents after a gap: they must have ended in it."""
        busy = {agent.name for agent in frame.snapshot.agents if agent.runs_active or agent.runs_queued}
        heard = {event.run_id for event in frame.events if isinstance(event, RunEvent)}
        doubtful = False
        for run in self._runs.values():
            if run.running and not run.replica and run.id not in heard and run.agent not in busy:
                run.lose()
                self._active -= 1
                self._changed(run)
            doubtful = doubtful or run.running
        self._doubtful = doubtful

    def _shorten(self, run: FeedRun, number: int) -> None:
        number = min(number, len(run.steps))
        self._abandon(run.drop_oldest(number))
        self._steps -= number
        self._changed(run)

    def _trim(self) -> None:
        while len(self._runs) > MAX_RUNS:
            # The oldest that is over; with that many running at once, the oldest.
            ended = (run for run in self._runs.values() if not run.running)
            gone = next(ended, None) or next(iter(self._runs.values()))
            self._forget(gone)
        if self._steps > MAX_STEPS:
            for run in islice(self._runs.values(), MAX_RUNS):
                self._shorten(run, self._steps - MAX_STEPS)
                if self._steps <= MAX_STEPS:
                    break

    def _forget(self, run: FeedRun) -> None:
        del self._runs[run.id]
        self._steps -= len(run.steps)
        self._active -= run.running
        self.version += 1
        self._abandon(run.steps)
        if run.parent is not None and run.parent_step is not None:
            run.parent_step.runs = [each for each in run.parent_step.runs or () if each is not run]
            self._changed(run.parent)
        elif (waiting := self._orphans.get(run.parent_span)) is not None:
            waiting[:] = [each for each in waiting if each is not run]
            if not waiting:
                del self._orphans[run.parent_span]
