"""The list of runs: a block of lines for each, with the runs it called inside."""

from collections.abc import Hashable

from pallas.model import Step

from ...runs.feed_remark import FeedRemark
from ...runs.feed_run import FeedRun
from ...runs.run_feed import Feed
from ...runs.run_filter import RunQuery, Sieve, fits_remark
from ...runs.run_tree import HEAD, Rows, RunOutline, RunTreeRow, recorded_at, rows_of
from ...text import Glyphs, Line
from ..line_view import LineView
from .feed_view import feed_line


class FeedList(LineView):
    """Follows at the end; elsewhere lines that the user reads neither fold nor move."""

    def __init__(self, feed: Feed, glyphs: Glyphs) -> None:
        super().__init__(id="feed-list")
        self.follow = True
        self._feed = feed
        self._glyphs = glyphs
        self._now = 0.0
        self._sieve = Sieve()
        self._chosen: dict[str, bool] = {}
        self._held: frozenset[str] = frozenset()
        self._ways = 0
        self._rows: dict[str, tuple[object, Rows]] = {}
        self._outline = RunOutline((), self.is_open)
        self._seen = 0
        self._sought: FeedRun | None = None
        self.marked: FeedRun | None = None
        """The run that another one is to be compared with. Its line is underlined."""

    @property
    def selected(self) -> FeedRun | None:
        """The run of the line under the cursor."""
        row = self._outline.at(self.cursor) if self.cursor < len(self._outline) else None
        return row.run if isinstance(row, RunTreeRow) else None

    @property
    def step(self) -> Step | None:
        """The recorded step that the line under the cursor is about, None on a run."""
        row = self._outline.at(self.cursor) if self.cursor < len(self._outline) else None
        return recorded_at(row) if isinstance(row, RunTreeRow) else None

    @property
    def remark(self) -> FeedRemark | None:
        """The remark under the cursor, None on a run."""
        row = self._outline.at(self.cursor) if self.cursor < len(self._outline) else None
        return row if isinstance(row, FeedRemark) else None

    @property
    def unseen(self) -> int:
        """How many lines were added at the end since it stopped following."""
        return 0 if self.follow else self._feed.added - self._seen

    def is_open(self, run: FeedRun) -> bool:
        """Return whether a run shows its steps: as the user chose, else while it is of interest or read."""
        chosen = self._chosen.get(run.id)
        return (self._feed.is_open(run) or run.root.id in self._held) if chosen is None else chosen

    def advance(self, now: float, changed: bool) -> None:
        """Update the time, and with ``changed`` the lines."""
        self._now = now
        if changed:
            self.rebuild()
        else:
            self.repaint()

    def rebuild(self) -> None:
        """Rebuild the lines."""
        roots = [run for run in self._feed.roots if self._sieve.lets_through(run)]
        if self.follow:
            self._hold(frozenset())
        else:
            self._hold(self._held | {run.id for run in roots if self._feed.is_open(run)})
        query = self._sieve.query
        remarks = [remark for remark in self._feed.remarks if fits_remark(query, remark)]
        self._outline = RunOutline(roots, self.is_open, self._rows_of, remarks)
        self._forget()
        self.reload()

    def _rows_of(self, root: FeedRun) -> Rows:
        # Everything its lines depend on: in most frames most runs are unchanged.
        state = (root.tree_version, self._ways, self._feed.is_open(root))
        known = self._rows.get(root.id)
        if known is None or known[0] != state:
            known = self._rows[root.id] = state, rows_of(root, self.is_open, self._sieve.lets_through)
        return known[1]

    def _hold(self, runs: frozenset[str]) -> None:
        if runs != self._held:
            self._held = runs
            self._ways += 1

    def _forget(self) -> None:
        """Drop the notes about runs that are gone."""
        runs = self._feed.runs
        if max(len(self._chosen), len(self._rows)) > 2 * len(runs):
            run_ids = {run.id for run in runs}
            self._chosen = {key: value for key, value in self._chosen.items() if key in run_ids}
            self._rows = {key: value for key, value in self._rows.items() if key in run_ids}
            self._sieve.forget(run_ids)

    def filter_by(self, query: RunQuery) -> None:
        """Show only runs that match, and the runs they are nested in."""
        self._sieve = Sieve(query)
        self._ways += 1
        self.rebuild()

    def lets_through(self, run: FeedRun) -> bool:
        """Return whether the filter shows the run once the runs above it are unfolded."""
        return all(self._sieve.lets_through(each) for each in (run, *run.ancestors()))

    def set_open(self, opened: bool | None) -> None:
        """Unfold or fold the selected run; None toggles it."""
        if (run := self.selected) is not None:
            self._chosen[run.id] = not self.is_open(run) if opened is None else opened
            self._ways += 1
            self.set_follow(False)
            self.rebuild()

    def go_to(self, run: FeedRun) -> None:
        """Put the cursor on a run, and unfold the runs above it."""
        for above in run.ancestors():
            self._chosen[above.id] = True
        self._ways += 1
        self.set_follow(False)
        self.rebuild()
        # While it is hidden it has no height, and nothing can be scrolled into view.
        self._sought = None if self._height else run
        if (index := self._outline.find(run, HEAD)) is not None:
            self.action_move_to(index)

    def on_resize(self) -> None:
        super().on_resize()
        if (run := self._sought) is not None:
            self.go_to(run)

    def set_follow(self, follow: bool) -> None:
        """Follow the end from now on, or stay here."""
        if self.follow and not follow:
            self._seen = self._feed.added
            self._hold(frozenset(run.id for run in self._feed.roots if self._feed.is_open(run)))
        self.follow = follow

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
        row = self._outline.at(index)
        opened = isinstance(row, RunTreeRow) and self.is_open(row.run)
        line = feed_line(row, opened, width, self._now, self._glyphs)
        if isinstance(row, RunTreeRow) and row.run is self.marked and row.place == HEAD:
            return tuple((text, f"{style} underline".strip()) for text, style in line)
        return line

    def mark(self, run: FeedRun | None) -> None:
        """Mark a run, or none."""
        self.marked = run
        self.repaint()

    def key_at(self, index: int) -> Hashable:
        row = self._outline.at(index)
        if isinstance(row, FeedRemark):
            return row.key
        return row.run.id, row.place + row.run.left_out if row.place >= 0 else row.place

    def find(self, key: Hashable) -> int | None:
        match key:
            case str(remark):
                return self._outline.find_remark(remark)
            case (str(run_id), int(place)) if (run := self._feed.run(run_id)) is not None:
                return self._outline.find(run, place - run.left_out if place >= 0 else place)
        return None

    def empty_text(self) -> str:
        if self._sieve.query:
            return "No run matches.\nEscape clears the filter."
        return (
            "No calls yet.\n"
            "Ask an agent something in the chat (2), or call one of its MCP endpoints:\n"
            "each call appears here with its steps and tool calls, as they happen."
        )
