"""The replicas: which fleets use the same database, what each does, and draining one of them."""

from collections.abc import Callable, Iterable
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container

from pallas.model import Fault

from ...actions import bindings
from ...records.replica_book import MOST, ReplicaBook, words_of
from ...state import Tone
from ...text import Glyphs, Line, count, joined
from ..detailed_list_pane import DetailedListPane
from ..fact_lines import ActionStatus, DetailLines
from ..filter_line import FilterLine
from ..status_line import QuestionLine
from .replica_list import EMPTY, ReplicaLines, details, details_text

READ_EVERY: Final = 1.0
"""Seconds between two readings: replicas beat once a second."""


class ReplicasPane(DetailedListPane):
    """Reads the replicas again and again while it can be seen."""

    TITLE = "Replicas"
    HELP = """\
The fleets on the same database, the oldest first: each can continue the runs of another one that died. A
replica is **starting**, **serving**, **draining** (it ends and takes no new runs) or **dead** (others
will continue its runs). The one that this workbench talks to is marked *here*.

**x** drains the selected one, after a question: it takes no new runs, finishes those under way or hands them
over, and its process ends. Another replica is asked through the database and begins within a second;
one that runs in a workbench is quit there. **i** shows all about the selected one, **y** copies that, **r**
reads again. A filter (**/**) searches ids, hosts, processes, releases and states.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("replicas")
    PARTS = (*DetailedListPane.PARTS, ActionStatus)

    def __init__(self, book: ReplicaBook, glyphs: Glyphs, clock: Callable[[], float]) -> None:
        super().__init__(glyphs, id="replicas")
        self._book, self._clock = book, clock
        self._problem = ""
        self._is_reading = False

    def compose(self) -> ComposeResult:
        with Container(id="replica-columns"):
            yield ReplicaLines(self._glyphs)
            yield DetailLines(id="replica-details")
        yield FilterLine("id, host, process, release, state", id="replica-filter")
        yield ActionStatus(self._glyphs, id="replica-status")

    @property
    def rows(self) -> ReplicaLines:
        """The list."""
        return self.query_one(ReplicaLines)

    def on_mount(self) -> None:
        """Show the known replicas, and read them again from now on."""
        self.set_interval(READ_EVERY, self._look)
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        self._paint()
        self._refresh()

    def _look(self) -> None:
        if self._is_composed and self.app.screen is self.screen:
            self._refresh()

    def _refresh(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self.run_worker(self._read(), group="replicas", description="read replicas")

    async def _read(self) -> None:
        try:
            await self._book.refresh()
            self._problem = ""
        except Fault as fault:
            self._problem = fault.message
        finally:
            self._is_reading = False
        self._paint()

    def _paint(self) -> None:
        if not self._is_composed:
            return
        known = self._book.listed
        shown = [each for each in known if all(word in words_of(each) for word in self._words)]
        self.rows.hint = self._hint()
        self.rows.show_rows(shown, self._clock())
        releases = len(self._book.releases)
        total = count(len(known), "replica") if not self._book.has_more else f"the first {MOST} replicas"
        words = [
            self._problem if known else "",
            f"{len(shown)} of {total}" if self._words else total if known else "",
            f"{releases} releases" if releases > 1 else "",
        ]
        self.caption = joined(words, self._glyphs)
        self._show_details()
        self.refresh_bindings()

    def _hint(self) -> str:
        if why := self._why_empty(self._problem, self._book.listed):
            return why
        return EMPTY if self._book.is_read else f"reading{self._glyphs.ellipsis}"

    def _detail_lines(self, width: int, height: int) -> Iterable[Line]:
        record = self.rows.selected
        return details(record, width, height, self._clock()) if record else ()

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can be done with the selected one is offered."""
        if not self._is_composed:
            return True
        record = self.rows.selected
        if action in ("choose", "full_text", "copy"):
            return record is not None
        if action == "drain":
            can_end = record is not None and record.state not in ("draining", "dead")
            return can_end and not self._problem
        return super().check_action(action, parameters)

    def choose(self) -> None:
        """Read all about it."""
        self.action_full_text()

    def full_text(self) -> tuple[str, str] | None:
        record = self.rows.selected
        return None if record is None else (f"replica {record.id}", details_text(record, self._clock()))

    def action_refresh(self) -> None:
        """Read again."""
        self._say("")
        self._refresh()

    def action_drain(self) -> None:
        """Have the selected replica drain and end, after a question."""
        if (record := self.rows.selected) is None:
            return
        runs = f", with {count(record.runs, 'run')} under way" if record.runs else ""
        self.screen.query_one(QuestionLine).ask(
            f"Drain replica {record.id} on {record.host}{runs}? Its process ends.",
            lambda: self._drain(record.id),
        )

    def _drain(self, replica: str) -> None:
        self._say(f"draining{self._glyphs.ellipsis}")
        self.run_worker(self._drained(replica), group="replicas drain", description="drain a replica")

    async def _drained(self, replica: str) -> None:
        try:
            await self._book.drain(replica)
            problem = ""
        except Fault as fault:
            problem = fault.message
        if self._is_composed:
            self._say(problem, Tone.ERROR)
            self._refresh()
