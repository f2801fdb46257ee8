"""Has a run go on from a step of another one, follows it, and shows what became different."""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pallas.model import Fault
from pallas.model.operations import READ_ONLY
from pallas.safe_text import one_line

from ..runs.feed_run import FeedRun
from ..targets import opener_of
from ..text import Glyphs, duration, failure_text
from .run_recorder import CannotRecord, RunRecorder

if TYPE_CHECKING:
    from pallas.model import Recording

    from ..runs.fork_change import ForkChange, ForkStep

DEADLINE: Final = 80.0
"""Seconds until the new run must have begun; the fleet gives up by itself a little before."""
_ELSEWHERE: Final = (
    "Another version runs beside the workbench, and the project of this fleet is not here: call "
    "`pallas fork --version` in its folder."
)
MAX_FOLLOWED: Final = 20
"""Runs that are followed at once; beyond that the oldest is not followed any more."""


@dataclass(slots=True)
class _Fork:
    """A run that goes on from another one; ``after`` is None until the feed has it."""

    before: FeedRun
    number: int
    after: FeedRun | None = None


class RunForker(RunRecorder):
    """Shows each run that goes on until it is over, unless its user looks at something else by then."""

    glyphs: Glyphs

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self._forks: dict[str, _Fork] = {}

    def fork_run(self, run: FeedRun, number: int) -> None:
        """Ask what shall be other from a step of a run on, and have a run go on there."""
        if self.fleet is None:
            self._refuse("The fleet is not running, so no run can continue; start it again.")
        elif not self.fleet.can_control:
            self._refuse(READ_ONLY)
        else:
            # One that is still read is given up for the one asked for last.
            self.run_worker(
                self._ask_for_change(run, number), group="fork", exclusive=True, description="read a run"
            )

    async def _ask_for_change(self, run: FeedRun, number: int) -> None:
        from ..runs.fork_change import fork_step
        from ..widgets.dialogs.fork_dialog import ForkScreen

        try:
            recording = await self._fetch(run.id)
            step = await asyncio.to_thread(fork_step, recording, number)
        except CannotRecord as error:
            self._tell_failure(f"run {run.id}: {error}")
            return
        except Fault as fault:
            self._tell_failure(f"run {run.id}: {fault.message.removeprefix('step: ')}")
            return
        if not self._looks_at(run):
            return

        def answered(change: "ForkChange | None") -> None:
            if change is not None and change.version:
                self._fork_version(run, recording, number, change)
            elif change is not None:
                begin = partial(self._begin_fork, run, step, change)
                self.run_worker(begin(), group="forking", description="fork a run")

        self.push_screen(ForkScreen(step), answered)

    async def _begin_fork(self, run: FeedRun, step: "ForkStep", change: "ForkChange") -> None:
        try:
            if self.fleet is None:
                raise CannotRecord("the fleet is not running")
            async with asyncio.timeout(DEADLINE):
                run_id = await self.fleet.fork(
                    run.id, step.number, change.message, change.result, change.model
                )
        except Exception as error:  # a remote fleet may raise others than Fault
            why = one_line(failure_text(error, DEADLINE), 400)
            self._tell_failure(f"No run can continue from step {step.number} of {run.id}: {why}")
            return
        while len(self._forks) >= MAX_FOLLOWED:
            del self._forks[next(iter(self._forks))]
        self._forks[run_id] = _Fork(run, step.number)

    def _fork_version(self, run: FeedRun, recording: "Recording", number: int, change: "ForkChange") -> None:
        """Go on with another version of the project, beside the fleet, and compare both runs."""
        from pallas.runs.version_fork import DEADLINE as RUN_WITHIN

        from ..runs.fork_change import version_comparison
        from ..runs.run_comparison import DiffSource
        from ..screens.run_screen import DiffScreen

        if self.root is None:
            self._refuse(_ELSEWHERE)
            return
        names = f"{run.agent} {run.id[:12]}", f"from step {number} with {one_line(change.version, 40)}"
        read = partial(version_comparison, recording, number, change, self.root)
        source = DiffSource(names, read, RUN_WITHIN + DEADLINE, kind="fork")
        self.push_screen(DiffScreen(source, self.glyphs))

    def follow_forks(self) -> None:
        """Show the runs that began or ended since the last call."""
        feed = self.main.feed
        for run_id, fork in tuple(self._forks.items()):
            run = feed.feed.run(run_id) if feed is not None else None
            if run is None:
                if fork.after is not None:  # the feed keeps it no longer
                    del self._forks[run_id]
                continue
            if fork.after is None:
                fork.after = run
                self._show_fork(fork, run)
            if not run.running:
                del self._forks[run_id]
                self._compare_fork(fork, run)

    def _show_fork(self, fork: _Fork, run: FeedRun) -> None:
        opener = opener_of(self)
        if opener is not None and self._looks_at(fork.before):
            opener.open_run(run)
        elif run.running:
            self.notify(
                f"{run.agent} run {run.id} continues from step {fork.number} of {fork.before.id}.",
                markup=False,
            )

    def _compare_fork(self, fork: _Fork, run: FeedRun) -> None:
        opener, feed = opener_of(self), self.main.feed
        if opener is not None and self._looks_at(run):
            opener.open_diff(fork.before, run)
            return
        took = "" if run.seconds is None else f" after {duration(run.seconds)}"
        how = "d on both compares them."
        if feed is not None and feed.marks(fork.before):
            how = f"d on it compares it with {fork.before.id}."
        text = f"{run.agent} run {run.id}, from step {fork.number} of {fork.before.id}: {run.state}{took}."
        severity = "warning" if run.state == "error" else "information"
        self.notify(f"{text} {how}", severity=severity, timeout=15, markup=False)  # type: ignore[arg-type]

    def _looks_at(self, run: FeedRun) -> bool:
        """Whether the screen of a run is the one that is looked at."""
        from ..screens.run_screen import RunScreen

        return isinstance(self.screen, RunScreen) and self.screen.run is run

    def _tell_failure(self, text: str) -> None:
        self.notify(text, severity="error", timeout=15, markup=False)
