"""The feed pane: every call, live, by call."""

from collections.abc import Hashable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message

from ...actions import bindings
from ...feed_state import Feed, Run
from ...frame import Frame
from ...text import Glyphs, Line, count, wrapped
from ..filter import FilterLine
from ..lines import LineView
from ..list_pane import ListPane
from ..tones import DIM
from .view import Outline, feed_line, run_story


class FeedList(LineView):
    """A block of lines a run. It follows at the end; elsewhere nothing that is being read folds or moves."""

    def __init__(self, feed: Feed, glyphs: Glyphs) -> None:
        super().__init__(id="feed-list")
        self.follow = True
        self._feed = feed
        self._glyphs = glyphs
        self._now = 0.0
        self._words: tuple[str, ...] = ()
        self._chosen: dict[str, bool] = {}
        self._held: frozenset[str] = frozenset()
        self._outline = Outline((), self.is_open)
        self._seen = 0
        self._matches: dict[str, tuple[int, bool]] = {}

    @property
    def selected(self) -> Run | None:
        """The run that the line under the cursor belongs to."""
        return self._outline.at(self.cursor)[0] if self.cursor < len(self._outline) else None

    @property
    def unseen(self) -> int:
        """How many lines came at the end since it stopped following."""
        return 0 if self.follow else self._feed.added - self._seen

    def is_open(self, run: Run) -> bool:
        """Whether a run shows its steps: as the user chose, else while it is of interest or being read."""
        chosen = self._chosen.get(run.id)
        return (self._feed.is_open(run) or run.id in self._held) if chosen is None else chosen

    def advance(self, now: float, changed: bool) -> None:
        """Time went on and perhaps more than that."""
        self._now = now
        if changed:
            self.rebuild()
        else:
            self.repaint()

    def rebuild(self) -> None:
        """Find out anew which lines there are."""
        runs = [run for run in self._feed.runs if self._lets_through(run)]
        if self.follow:
            self._held = frozenset()
        else:
            self._held |= {run.id for run in runs if self._feed.is_open(run)}
        self._outline = Outline(runs, self.is_open)
        if len(self._chosen) > 2 * len(self._feed.runs):
            kept = {run.id for run in self._feed.runs}
            self._chosen = {key: value for key, value in self._chosen.items() if key in kept}
        self.reload()

    def filter_by(self, words: tuple[str, ...]) -> None:
        """Show only runs in which every word occurs."""
        self._words = words
        self._matches.clear()
        self.rebuild()

    def set_open(self, opened: bool | None) -> None:
        """Unfold or fold the selected run; None turns it round."""
        if (run := self.selected) is not None:
            self._chosen[run.id] = not self.is_open(run) if opened is None else opened
            self.set_follow(False)
            self.rebuild()

    def set_follow(self, follow: bool) -> None:
        """Stay at the end from now on, or where it is."""
        if self.follow and not follow:
            self._seen = self._feed.added
            self._held = frozenset(run.id for run in self._feed.runs if self._feed.is_open(run))
        self.follow = follow

    def _lets_through(self, run: Run) -> bool:
        if not self._words:
            return True
        version, matched = self._matches.get(run.id, (-1, False))
        if version != run.version:
            matched = run.matches(self._words)
            self._matches[run.id] = (run.version, matched)
        return matched

    def moved(self, scrolled: bool) -> None:
        self.follow_from(scrolled)
        super().moved(scrolled)

    def action_last(self) -> None:
        self.set_follow(True)
        self.rebuild()
        self.moved(scrolled=False)

    def line_count(self) -> int:
        return len(self._outline)

    def line_at(self, index: int, width: int) -> Line:
        place = self._outline.at(index)
        return feed_line(place, self.is_open(place[0]), width, self._now, self._glyphs)

    def key_at(self, index: int) -> Hashable:
        run, place = self._outline.at(index)
        return run.id, place + run.left_out if place >= 0 else place

    def find(self, key: Hashable) -> int | None:
        match key:
            case (str(run_id), int(place)):
                run = self._feed.run(run_id)
                return self._outline.find(run_id, place - run.left_out if run and place >= 0 else place)
        return None

    def empty(self, width: int) -> list[Line]:
        if self._words:
            hint = "No run matches.\nEscape takes the filter away."
        else:
            hint = (
                "No calls yet.\n"
                "Ask an agent something in the chat (2), or call one of its MCP endpoints:\n"
                "each call appears here with its steps and tool calls, as they happen."
            )
        return [((line, DIM),) for line in wrapped(hint, width)]


class FeedPane(ListPane):
    """The live progress of every call of every agent, by call."""

    TITLE = "Feed"
    HELP = """\
Every call of every agent, as it happens: when it began, which agent, the first line of the message,
how long it takes or took, and how it ended. Below it are the steps of the agent's loop and its tool
calls, further in those of the agents it called. A guard that stopped a loop is told below the run. A
request to a downstream has a line only when it was refused, failed, or went with an expired key; **i**
tells every request of the run, with the fingerprint of its credential.

A run is unfolded while it runs and until the next calls come; **enter** folds and unfolds it. The list
follows only while the cursor is at the end; elsewhere nothing moves, and the title says how many lines
are new below.

The filter looks for words in agent, message, steps and outcome; `agent:name` in the agent only.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("feed")

    class CancelAsked(Message):
        """Somebody wants a run cancelled."""

        def __init__(self, run: Run) -> None:
            super().__init__()
            self.run = run

    def __init__(self, glyphs: Glyphs, *, id: str = "feed") -> None:  # noqa: A002 - Textual's word
        super().__init__(id=id)
        self.feed = Feed()
        self._glyphs = glyphs
        self._now = 0.0
        self._painted_version = -1
        self._offered: tuple[str, bool, bool] | None = None

    def compose(self) -> ComposeResult:
        yield FeedList(self.feed, self._glyphs)
        yield FilterLine("words, agent:name", id="feed-filter")

    @property
    def runs(self) -> FeedList:
        """The list of runs."""
        return self.query_one(FeedList)

    def absorb(self, frame: Frame) -> None:
        self._now = frame.now
        self.feed.absorb(frame)
        if self.is_showing:
            self._paint()

    def show_pane(self) -> None:
        super().show_pane()
        self.call_after_refresh(self._paint)

    def mark_cancelling(self, run_id: str) -> None:
        """The run was asked to stop."""
        self.feed.mark_cancelling(run_id)
        self._paint()

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
        """Tell the title bar what the eye cannot see."""
        words = []
        if unseen := self.runs.unseen:
            words.append(f"{unseen} new below")
        if self.filter.words:
            words.append("filter: " + " ".join(self.filter.words))
        if self.feed.lost:
            words.append(f"{count(self.feed.lost, 'event')} missed")
        self.caption = f" {self._glyphs.dot} ".join(words)

    def selection_changed(self) -> None:
        self._say()

    def filter_by(self, words: tuple[str, ...]) -> None:
        self.runs.filter_by(words)

    def choose(self) -> None:
        """Fold or unfold the selected run."""
        self.runs.set_open(None)

    def story(self) -> tuple[str, str] | None:
        run = self.runs.selected
        return None if run is None else (f"{run.agent} run", run_story(run, self._now))

    def action_fold(self) -> None:
        """Fold the selected run."""
        self.runs.set_open(False)

    def action_unfold(self) -> None:
        """Unfold the selected run."""
        self.runs.set_open(True)

    def action_follow(self) -> None:
        """Go to the end and stay there."""
        self.runs.action_last()

    def action_cancel(self) -> None:
        """Ask for the selected run to be cancelled."""
        if (run := self.runs.selected) is not None and run.running:
            self.post_message(self.CancelAsked(run))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what still runs can be cancelled."""
        if action == "cancel" and self.is_mounted:
            run = self.runs.selected
            return run is not None and run.running and not run.cancelling
        return super().check_action(action, parameters)
