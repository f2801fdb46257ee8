"""A pane with the fleet's records of one kind: read page by page, filtered, each looked into."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable
from typing import Any, ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.containers import Container
from textual.timer import Timer

from pallas.model import Fault, FaultType

from ...clipboard import copy
from ...records.record_pages import PagedRecord, RecordPages
from ...state import Tone
from ...text import Glyphs, Line, count, joined
from ..detailed_list_pane import DetailedListPane
from ..fact_lines import ActionStatus, DetailLines
from ..filter_line import FilterLine
from ..line_view import LineView
from .record_list import RecordList

SEARCHED: Final = 5_000
"""Records that a filter looks through by itself; further ones as the user goes down to them."""
REST: Final = 0.15
"""Seconds that the user stays on one before it is looked into."""
_REMEMBERED: Final = 50
_PASSING: Final = frozenset({FaultType.TRANSPORT, FaultType.TIMEOUT})


class RecordsPane[R: PagedRecord, W](DetailedListPane):
    """Reads as many records as the user looks at, however many there are.

    ``W`` is the additional data of the selected record, read once the user stays on it. A subclass decides
    when to read again (``on_mount``), and adds the actions.
    """

    PARTS = (*DetailedListPane.PARTS, ActionStatus)
    NOUN: ClassVar[str]
    """What one is called; the ids of the parts begin with it."""
    OF: ClassVar[str]
    """The word between several and their agent."""
    FILTERED: ClassVar[str]
    """What a filter looks in."""
    EMPTY: ClassVar[str]
    """The text shown when there are no records."""

    def __init__(self, book: RecordPages[R], glyphs: Glyphs, clock: Callable[[], float]) -> None:
        super().__init__(glyphs, id=f"{self.NOUN}s")
        self._book, self._clock = book, clock
        self._more = False
        """Whether a further page is being read."""
        self._problem = ""
        self._again = False
        """Whether the next look may succeed after a failure."""
        self._within: dict[Hashable, W] = {}
        self._resting: Timer | None = None

    def compose(self) -> ComposeResult:
        with Container(id=f"{self.NOUN}-columns"):
            yield self._new_rows()
            yield DetailLines(id=f"{self.NOUN}-details")
        yield FilterLine(self.FILTERED, id=f"{self.NOUN}-filter")
        yield ActionStatus(self._glyphs, id=f"{self.NOUN}-status")

    @property
    def rows(self) -> RecordList[R]:
        """The list."""
        return self.query_one(RecordList)  # type: ignore[type-abstract]  # found, not made

    # What a subclass says

    @abstractmethod
    def _new_rows(self) -> RecordList[R]:
        """The list, to be composed."""

    @abstractmethod
    def _key(self, record: R) -> Hashable:
        """Return a key that changes when the additional data of a record may have changed."""

    @abstractmethod
    async def _look_into(self, record: R) -> W | None:
        """Read within a record; None where that cannot be."""

    @abstractmethod
    def _details(self, record: R, within: W | None, width: int, height: int) -> Iterable[Line]:
        """Yield the details of the selected record."""

    def _was_painted(self, shown: bool) -> None:
        """The list was painted; ``shown`` says whether anything is in it."""

    def _not_looked_into(self) -> None:
        """The details are shown without the additional data."""

    # Reading

    def _refresh(self) -> None:
        self._again = False
        self.run_worker(
            self._read_first(),
            group=f"{self.NOUN}s first",
            exclusive=True,
            description=f"read {self.NOUN}s",
        )

    async def _read_first(self) -> None:
        await self._read(self._book.refresh)
        self._read_on()

    async def _read(self, what: Callable[[], Awaitable[object]]) -> None:
        try:
            await what()
            self._problem = ""
        except Fault as fault:
            self._problem, self._again = fault.message, fault.type in _PASSING
        self._paint()

    async def _read_more(self) -> None:
        try:
            await self._read(self._book.more)
        finally:
            self._more = False
        self._read_on()

    def _read_on(self) -> None:
        """Read the next page when the end of the known records is near."""
        if not self._is_composed:
            return
        book = self._book
        looked = len(book.listed) >= SEARCHED and bool(self._words)
        wanted = self.rows.near_end and not (looked and self.rows.cursor < len(self.rows.rows) - 1)
        if wanted and not book.complete and not self._more and not self._problem and book.listed:
            self._more = True
            what = f"{self.NOUN}s"
            self.run_worker(self._read_more(), group=f"{what} more", description=f"read more {what}")

    def _paint(self) -> None:
        """List the known records that match the filter."""
        if not self._is_composed:
            return
        shown = self._matching()
        self.rows.hint = self._hint()
        self.rows.show_rows(shown, self._clock())
        self._was_painted(bool(shown))
        self.caption = joined(self._caption(), self._glyphs)
        self._show_details()
        self.refresh_bindings()

    def _matching(self) -> list[R]:
        """The known records that match the filter."""
        listed = self._book.listed
        return [each.record for each in listed if all(word in each.words for word in self._words)]

    def _hint(self) -> str:
        if why := self._why_empty(self._problem, self._book.listed):
            return why
        if not self._book.complete:
            return f"reading{self._glyphs.ellipsis}"
        agent = self._book.agent
        return f"No {self.NOUN}s {self.OF} {agent}. o shows all." if agent else self.EMPTY

    def _caption(self) -> list[str]:
        book = self._book
        known = count(len(book.listed), self.NOUN) + ("" if book.complete else " so far")
        return [
            f"{self.OF} {book.agent}" if book.agent else "",
            f"{len(self.rows.rows)} of {known}" if self._words else known if book.listed else "",
        ]

    # The selected one

    def selection_changed(self) -> None:
        super().selection_changed()
        self._read_on()
        self._rest()

    def _rest(self) -> None:
        """Look into the selected one, once the user stays on it."""
        if self._resting is not None:
            self._resting.stop()
        self._resting = self.set_timer(REST, self._look_inside)

    def _look_inside(self) -> None:
        self._resting = None
        record = self.rows.selected if self._is_composed else None
        if record is not None and self._key(record) not in self._within and not self._problem:
            self.run_worker(self._inside(record), group=f"{self.NOUN} inside", exclusive=True)

    async def _inside(self, record: R) -> None:
        if (within := await self._look_into(record)) is None:
            return
        while len(self._within) >= _REMEMBERED:
            self._within.pop(next(iter(self._within)))
        self._within[self._key(record)] = within
        self._show_details()

    def _detail_lines(self, width: int, height: int) -> Iterable[Line]:
        if (record := self.rows.selected) is None:
            return ()
        if (within := self._within.get(self._key(record))) is None:
            self._not_looked_into()
        return self._details(record, within, width, height)

    # Keys

    def action_refresh(self) -> None:
        """Read again."""
        self._problem = ""
        self._refresh()

    def action_only(self) -> None:
        """Those of one agent, or of all again."""
        record = self.rows.selected
        self._book.choose("" if self._book.agent or record is None else record.agent)
        self._problem = ""
        self._paint()
        self._refresh()

    async def action_copy_id(self) -> None:
        """Copy its id."""
        if (record := self.rows.selected) is not None:
            self.notify(await copy(self.app, record.id), markup=False)

    @on(LineView.CursorMoved)
    def _was_moved(self, event: LineView.CursorMoved) -> None:
        self._read_on()

    def _do(self, work: Coroutine[Any, Any, None], what: str) -> None:
        async def doing() -> None:
            try:
                await work
            except Fault as fault:
                if self._is_composed:
                    self._say(fault.message, Tone.ERROR)
                else:
                    self.app.notify(fault.message, title=self.TITLE, severity="error", markup=False)
            else:
                if self._is_composed:
                    self._say("")
                self._paint()

        self._say(f"{what}{self._glyphs.ellipsis}")
        self.app.run_worker(doing(), group=f"{self.NOUN}s doing", description=what)
