"""The feed pane: every call of every agent, live."""

from collections.abc import Callable, Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message
from textual.widgets import Static

from pallas.model import Reloaded, VerdictReached

from ...actions import bindings
from ...frame import FleetFrame
from ...runs.feed_run import FeedRun
from ...runs.past_runs import RecalledRun
from ...runs.run_feed import Feed
from ...runs.run_filter import HINT, parse
from ...targets import Entity, Reveal, RunTarget, Target, opener_of
from ...text import Glyphs, clock, count, joined
from ..filter_line import FilterLine
from ..list_pane import ListPane
from .feed_list import FeedList
from .feed_view import remark_details, run_details

_ENTITIES = 100

Watcher = Callable[[float, bool], None]
"""Called for each frame with the time, and whether anything but the time changed."""


class FeedPane(ListPane):
    """The live progress of every call of every agent, by call."""

    TITLE = "Feed"
    HELP = """\
Every call of every agent, as it happens: its start, the agent, the first line of the message, how long it
takes, and how it ended. Below it are its numbered steps: questions to models, calls of tools and agents, each
below the step that caused it. The run of a called agent is listed below the call that started it, with its
own steps. Where there is room, bars show when each
of them ran. If a guard stopped the loop, a line below the run says so. A request to a downstream has a line
only when it was refused, failed, or carried an expired key. Runs of other replicas have the replica's id
instead of the message, and **enter** shows their steps. After a restart the last runs of the ledger are
listed first, with the word `earlier`; the filter `-earlier` hides them. New versions of agents, failed edits,
blocked loops and servers that are lost or connected again are listed between the runs.

**enter** on a run opens it: its facts, its steps with those of the runs below it, and what went over the
wire; on a step it shows what was sent and what came back. **i** shows all details as text. **d** marks a run,
and on another one compares both: which steps differ, and in what. A run is unfolded while it runs and until
the next calls come; **space** folds and unfolds it. The list follows only while the cursor is at the end;
elsewhere nothing moves, and the title shows how many new lines are below.

**w** writes a run that is over into the folder `recordings` of the project, with all runs that it started;
**s** keeps it as a test, and asks for its name.

The filter takes words, `"words with blanks"` and fields: `agent:research`, `caller:name`, `outcome:error`
(ok, cancelled, running, unknown), `tool:docs/search`, `run:7f3a`, `trace:0af7`, `replica:b44d`. All of them
must match; `-` before one excludes its matches. The runs that a match belongs to stay in view.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("feed")

    class CancelAsked(Message):
        """The user wants a run cancelled."""

        def __init__(self, run: FeedRun) -> None:
            super().__init__()
            self.run = run

    class VersionAsked(Message):
        """The user wants to see the changes of a version."""

        def __init__(self, event: Reloaded) -> None:
            super().__init__()
            self.event = event

    def __init__(self, glyphs: Glyphs, *, id: str = "feed") -> None:  # noqa: A002 - Textual's word
        super().__init__(id=id)
        self.feed = Feed()
        self.watchers: list[Watcher] = []
        self._glyphs = glyphs
        self._now = 0.0
        self._mistake = ""
        self._painted_version = -1
        self._watched_version = -1
        self._offered: tuple[str, bool, bool] | None = None

    def compose(self) -> ComposeResult:
        yield FeedList(self.feed, self._glyphs)
        mistake = Static("", id="feed-mistake", markup=False)
        mistake.display = False
        yield mistake
        yield FilterLine(HINT, id="feed-filter")

    @property
    def runs(self) -> FeedList:
        """The list of runs."""
        return self.query_one(FeedList)

    @property
    def now(self) -> float:
        """The time of the last frame."""
        return self._now

    def absorb(self, frame: FleetFrame) -> None:
        self._now = frame.now
        self.feed.absorb(frame)
        if self.is_showing:
            self._paint()
        if self.watchers:
            changed = self.feed.version != self._watched_version
            self._watched_version = self.feed.version
            for watcher in tuple(self.watchers):
                watcher(self._now, changed)

    def recall(self, past: Iterable[RecalledRun]) -> None:
        """Take in runs from before."""
        self.feed.recall(past)
        if self.is_showing:
            self._paint()

    def show_pane(self) -> None:
        super().show_pane()
        self.call_after_refresh(self._paint)

    def mark_cancelling(self, run_id: str) -> None:
        """Show that the run was asked to stop."""
        self.feed.mark_cancelling(run_id)
        self._paint()

    def reveal(self, target: Target) -> bool:
        """Put the cursor on a run."""
        run = self.feed.run(target.run_id) if isinstance(target, RunTarget) else None
        if run is None:
            return False
        if not self.runs.lets_through(run):
            self.filter.clear_filter()
            self.filter_by(())
        self.runs.go_to(run)
        return True

    def entities(self) -> Iterable[Entity]:
        """Return the last runs, newest first."""
        for run in self.feed.runs[: -_ENTITIES - 1 : -1]:
            title = f"{run.agent}: {run.preview or run.id}"
            yield Entity(title, f"run {run.id}, {run.state}, {clock(run.started)}", RunTarget(run.id))

    def _paint(self) -> None:
        changed = self.feed.version != self._painted_version
        self._painted_version = self.feed.version
        self.runs.advance(self._now, changed)
        self._say()
        run = self.runs.selected
        offer = None if run is None else (run.id, run.running, run.cancelling)
        if offer != self._offered:  # whether there is something to cancel
            self._offered = offer
            self.refresh_bindings()

    def _say(self) -> None:
        """Update the title bar with what the list cannot show."""
        words = []
        if unseen := self.runs.unseen:
            words.append(f"{unseen} new below")
        if self.filter.words:
            words.append("filter: " + " ".join(self.filter.words))
        if (marked := self.runs.marked) is not None:
            words.append(f"d compares with {marked.agent} {marked.id[:8]}")
        if self.feed.lost:
            words.append(f"{count(self.feed.lost, 'event')} missed")
        self.caption = joined(words, self._glyphs)

    def selection_changed(self) -> None:
        self._say()

    def filter_by(self, words: tuple[str, ...]) -> None:
        """Apply the filter; with a mistake in it the filter stays unchanged, and the mistake is shown."""
        query = parse(self.filter.value)
        if query.mistake != self._mistake:
            self._mistake = query.mistake
            mistake = self.query_one("#feed-mistake", Static)
            mistake.display = bool(query.mistake)
            mistake.update(f"{self._glyphs.error} {query.mistake}")
        if not query.mistake:
            self.runs.filter_by(query)

    def choose(self) -> None:
        """Open the selected run or step, the changes of a new version, or what blocked the loop."""
        opener = opener_of(self.app)
        if (step := self.runs.step) is not None and opener is not None:
            opener.open_step(step)
        elif (run := self.runs.selected) is not None:
            self.open_run(run)
        elif (remark := self.runs.remark) is not None and isinstance(remark.about, Reloaded):
            self.post_message(self.VersionAsked(remark.about))
        elif remark is not None and isinstance(remark.about, VerdictReached) and opener is not None:
            opener.open_verdicts(remark.about)
        else:
            self.action_full_text()

    def open_run(self, run: FeedRun) -> None:
        """Open the details of a run on a screen of its own."""
        if (opener := opener_of(self.app)) is not None:
            opener.open_run(run)

    def full_text(self) -> tuple[str, str] | None:
        run = self.runs.selected
        if (remark := self.runs.remark) is not None:
            return f"{remark.agent}", remark_details(remark)
        return None if run is None else (f"{run.agent} run", run_details(run, self._now))

    def action_turn(self) -> None:
        """Toggle the fold of the selected run."""
        self.runs.set_open(None)

    def action_fold(self) -> None:
        """Fold the selected run."""
        self.runs.set_open(False)

    def action_unfold(self) -> None:
        """Unfold the selected run."""
        self.runs.set_open(True)

    def action_follow(self) -> None:
        """Go to the end and follow it."""
        self.runs.action_last()

    def action_elsewhere(self, pane: str) -> None:
        """Show the selected run in another pane: its records, or its requests."""
        if (run := self.runs.selected) is not None:
            self.post_message(Reveal(RunTarget(run.id, pane)))

    def action_messages(self) -> None:
        """Show the messages between the handlers of the selected run."""
        run, opener = self.runs.selected, opener_of(self.app)
        if run is not None and opener is not None:
            opener.open_messages(run.id)

    def action_diff(self) -> None:
        """Mark the selected run, or compare it with the marked one."""
        if (run := self.runs.selected) is not None:
            self.compare(run)

    def compare(self, run: FeedRun) -> None:
        """Mark a run, or compare it with the marked one; the marked one itself is marked no longer."""
        marked, opener = self.runs.marked, opener_of(self.app)
        if marked is None or marked is run:
            self.runs.mark(run if marked is None else None)
            self._say()
        elif opener is not None:
            opener.open_diff(marked, run)

    def marks(self, run: FeedRun) -> bool:
        """Mark a run unless another one is marked; whether it is marked now."""
        if self.runs.marked is None:
            self.runs.mark(run)
            self._say()
        return self.runs.marked is run

    def action_record(self) -> None:
        """Write the selected run into a folder of recordings."""
        run, opener = self.runs.selected, opener_of(self.app)
        if run is not None and opener is not None:
            opener.record_run(run)

    def action_keep(self) -> None:
        """Make a test of the selected run."""
        run, opener = self.runs.selected, opener_of(self.app)
        if run is not None and opener is not None:
            opener.keep_run(run.id)

    def action_replay(self) -> None:
        """Replay the selected run."""
        run, opener = self.runs.selected, opener_of(self.app)
        if run is not None and opener is not None:
            opener.replay_run(run)

    def action_cancel(self) -> None:
        """Ask to cancel the selected run."""
        if (run := self.runs.selected) is not None and run.running:
            self.post_message(self.CancelAsked(run))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Allow cancelling only for a run that still runs, recording and replay only for one that is over."""
        if action in ("record", "keep", "replay") and self.is_mounted:
            return (run := self.runs.selected) is not None and not run.running
        if action == "cancel" and self.is_mounted:
            run = self.runs.selected
            return run is not None and run.running and not run.cancelling
        return super().check_action(action, parameters)
