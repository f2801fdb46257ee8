"""The threads pane: every durable thread of the fleet, found, read, gone on with, renamed and deleted."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static

from pallas.model import Fault, FaultType, MessageRecord, ThreadRecord
from pallas.text import one_line

from ...actions import bindings
from ...clipboard import copy
from ...state import Tone
from ...text import Glyphs, count
from ...threads import ThreadBook
from ..filter import FilterLine
from ..lines import LineView
from ..list_pane import ListPane
from ..tones import STYLES
from .exporting import export_thread
from .list import EMPTY, ThreadList
from .title_line import TitleLine
from .view import SEEN_ROWS, details, story_of

LOOK_EVERY: Final = 1.0
"""Seconds between two looks whether anything was said meanwhile."""
SEARCHED: Final = 5_000
"""Threads that a filter looks through by itself; further ones as somebody goes down to them."""
_REST: Final = 0.15
_REMEMBERED: Final = 50
_PARTS: Final = 3
_PASSING: Final = frozenset({FaultType.TRANSPORT, FaultType.TIMEOUT})


class ThreadsPane(ListPane):
    """Reads as many threads as somebody looks at, however many there are."""

    TITLE = "Threads"
    HELP = """\
Every conversation that the fleet keeps, the one that was used last first: whoever held it, and over which
surface (`mcp`, `rest`, `chat` ...). They outlast a restart.

**Enter** opens a thread in a tab of the chat, from its newest messages on, and what is written there goes on
with it. A thread of another caller can be read; to go on with it ask as that caller (**alt+p** in the
chat), or branch off (**a** on a message). **e** gives it another title, **x** deletes it after a question,
for good. **y** copies its id, which goes as `conversation_id` or `threadId` to go on with it elsewhere. **w**
writes all of it to a file. **o** shows the threads of the selected one's agent only, or all again.

A filter (**/**) looks in titles, agents, owners and ids of the newest 5,000; **end** goes further down.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("threads")

    class Open(Message):
        """Somebody wants to go on with a thread."""

        def __init__(self, record: ThreadRecord) -> None:
            super().__init__()
            self.record = record

    class Ask(Message):
        """Something to be sure of first; ``yes`` does it."""

        def __init__(self, question: str, yes: Callable[[], None]) -> None:
            super().__init__()
            self.question, self.yes = question, yes

    class Deleted(Message):
        """A thread is gone."""

        def __init__(self, thread: str) -> None:
            super().__init__()
            self.thread = thread

    def __init__(self, book: ThreadBook, glyphs: Glyphs, clock: Callable[[], float]) -> None:
        super().__init__(id="threads")
        self._book, self._glyphs, self._clock = book, glyphs, clock
        self._words: tuple[str, ...] = ()
        self._reading = False
        self._problem = ""
        self._runs: object = None
        self._seen: dict[tuple[str, int, float | None], tuple[MessageRecord, ...]] = {}
        self._resting: Timer | None = None

    def compose(self) -> ComposeResult:
        with Container(id="thread-columns"):
            yield ThreadList(self._glyphs)
            yield Static(id="thread-details", markup=False)
        yield FilterLine("title, agent, owner, id", id="thread-filter")
        yield Static(id="thread-said", markup=False)
        yield TitleLine()

    def on_mount(self) -> None:
        """Show what is known, then what there is now."""
        self._say("")
        self.show_pane()
        self._paint()
        self.set_interval(LOOK_EVERY, self._look)
        self._refresh()

    @property
    def _stands(self) -> bool:
        """Whether there is something to paint on: what is in a pane goes before the pane does."""
        return (
            self.is_mounted
            and self.is_attached
            and len(self.query("#thread-list, #thread-said, #thread-details")) == _PARTS
        )

    @property
    def rows(self) -> ThreadList:
        """The list."""
        return self.query_one(ThreadList)

    # Reading

    def _look(self) -> None:
        """Read anew when a run began or ended since."""
        fleet = getattr(self.app, "fleet", None)
        agents = fleet.snapshot().agents if fleet is not None else ()
        runs = [(agent.name, agent.runs_total, agent.runs_active) for agent in agents]
        if runs != self._runs:
            self._runs = runs
            self._refresh()

    def _refresh(self) -> None:
        self.run_worker(
            self._read(self._book.refresh), group="threads first", exclusive=True, description="read threads"
        )

    async def _read(self, what: Callable[[], Awaitable[object]]) -> None:
        try:
            await what()
            self._problem = ""
        except Fault as fault:
            self._problem = fault.message
            if fault.type in _PASSING:
                self._runs = None  # asked again at the next look
        self._paint()
        self._read_on()

    async def _read_more(self) -> None:
        try:
            await self._read(self._book.more)
        finally:
            self._reading = False
        self._read_on()

    def _read_on(self) -> None:
        """Read the next page where the end of what is known is near."""
        if not self._stands:
            return
        book = self._book
        looked = len(book.listed) >= SEARCHED and bool(self._words)
        wanted = self.rows.near_end and not (looked and self.rows.cursor < self.rows.shown - 1)
        if wanted and not book.complete and not self._reading and not self._problem and book.listed:
            self._reading = True
            self.run_worker(self._read_more(), group="threads more", description="read more threads")

    def _paint(self) -> None:
        """List what is known and fits the filter."""
        if not self._stands:
            return
        words, book = self._words, self._book
        shown = [each for each in book.listed if all(word in each.words for word in words)]
        self.rows.take(shown, self._clock(), self._hint())
        self._caption()
        self._tell()
        self.refresh_bindings()

    def _hint(self) -> str:
        if self._problem:
            return f"{self._problem}\n\nr reads again."
        if self._words and self._book.listed:
            return "Nothing matches.\nEscape takes the filter away."
        if not self._book.complete:
            return f"reading{self._glyphs.ellipsis}"
        return f"No threads with {self._book.agent}. o shows all." if self._book.agent else EMPTY

    def _caption(self) -> None:
        book = self._book
        known = count(len(book.listed), "thread") + ("" if book.complete else " so far")
        parts = [f"{self.rows.shown} of {known}" if self._words else known if book.listed else ""]
        parts.insert(0, f"with {book.agent}" if book.agent else "")
        self.caption = f" {self._glyphs.dot} ".join(part for part in parts if part)

    # The selected one

    def selection_changed(self) -> None:
        self._tell()
        self._read_on()
        if self._resting is not None:
            self._resting.stop()
        self._resting = self.set_timer(_REST, self._look_inside)

    def _look_inside(self) -> None:
        self._resting = None
        record = self.rows.selected if self._stands else None
        if record is not None and _key(record) not in self._seen and not self._problem:
            self.run_worker(self._inside(record), group="thread words", exclusive=True)

    async def _inside(self, record: ThreadRecord) -> None:
        try:
            rows = await self._book.newest(record.id, SEEN_ROWS)
        except Fault:
            rows = ()
        while len(self._seen) >= _REMEMBERED:
            self._seen.pop(next(iter(self._seen)))
        self._seen[_key(record)] = rows
        self._tell()

    def _tell(self) -> None:
        """Say what is known of the selected one."""
        if not self._stands:
            return
        static, record = self.query_one("#thread-details", Static), self.rows.selected
        size = static.content_region.size
        if record is None or not size:
            static.update("", layout=False)
            return
        seen = self._seen.get(_key(record))
        lines = details(record, seen, size.width, size.height, self._clock(), self._glyphs)
        static.update(Content("\n").join(Content.assemble(*line) for line in lines), layout=False)
        if seen is None and self._resting is None:
            self._resting = self.set_timer(_REST, self._look_inside)

    def on_resize(self) -> None:
        """Details are wrapped to a width."""
        self.call_after_refresh(self._tell)

    def filter_by(self, words: tuple[str, ...]) -> None:
        self._words = words
        self._paint()

    def story(self) -> tuple[str, str] | None:
        record = self.rows.selected
        if record is None:
            return None
        return record.title or record.id, story_of(record, self._seen.get(_key(record), ()), self._clock())

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can be done with the selected one is offered."""
        if not self._stands or not self.query(TitleLine):
            return True
        typing = self.query_one(TitleLine).has_focus
        if action in ("choose", "rename", "delete", "copy_id", "export", "story"):
            return self.rows.selected is not None and not typing
        if action == "only":
            return (bool(self._book.agent) or self.rows.selected is not None) and not typing
        return super().check_action(action, parameters) and not (action == "filter" and typing)

    def choose(self) -> None:
        """Open the thread in the chat."""
        if (record := self.rows.selected) is not None:
            self.post_message(self.Open(record))

    def action_refresh(self) -> None:
        """Read anew."""
        self._problem = ""
        self._refresh()

    def action_only(self) -> None:
        """The threads of one agent, or of all again."""
        record = self.rows.selected
        self._book.choose("" if self._book.agent or record is None else record.agent)
        self._problem = ""
        self._paint()
        self._refresh()

    async def action_copy_id(self) -> None:
        """Copy its id."""
        if (record := self.rows.selected) is not None:
            self.notify(await copy(self.app, record.id), markup=False)

    def action_rename(self) -> None:
        """Type another title."""
        if (record := self.rows.selected) is not None:
            self.query_one(TitleLine).open(record.id, record.title)

    def action_delete(self) -> None:
        """Delete it, after a question."""
        if (record := self.rows.selected) is not None:
            rows = count(record.messages, "message")
            title = one_line(record.title or record.id, 60)
            question = f"Delete {rows} with {record.agent} for good: {title}?"
            self.post_message(self.Ask(question, lambda: self._do(self._delete(record.id), "deleting")))

    async def _delete(self, thread: str) -> None:
        await self._book.delete(thread)
        self.post_message(self.Deleted(thread))

    def action_export(self) -> None:
        """Write all of it to a file."""
        if (record := self.rows.selected) is not None:
            self._do(export_thread(self.app, self._book, record, self._clock()), "reading all of it")

    @on(TitleLine.Entered)
    def _entered(self, event: TitleLine.Entered) -> None:
        event.stop()
        self._do(self._book.rename(event.thread, event.title), "renaming")

    @on(TitleLine.Left)
    def _title_left(self, event: TitleLine.Left) -> None:
        event.stop()
        self.rows.focus()

    @on(LineView.Moved)
    def _was_moved(self, event: LineView.Moved) -> None:
        self._read_on()

    def _do(self, work: Coroutine[Any, Any, None], what: str) -> None:
        async def doing() -> None:
            try:
                await work
            except Fault as fault:
                if self._stands:
                    self._say(fault.message, Tone.ERROR)
                else:
                    self.app.notify(fault.message, title=self.TITLE, severity="error", markup=False)
            else:
                if self._stands:
                    self._say("")
                self._paint()

        self._say(f"{what}{self._glyphs.ellipsis}")
        self.app.run_worker(doing(), group="threads doing", description=what)

    def _say(self, text: str, tone: Tone = Tone.STARTING) -> None:
        """A line below the list: what is being done, or why it went wrong."""
        said = self.query_one("#thread-said", Static)
        said.display = bool(text)
        glyph = getattr(self._glyphs, tone.value)
        said.update(Content.assemble((f"{glyph} {text}", STYLES[tone])) if text else "")


def _key(record: ThreadRecord) -> tuple[str, int, float | None]:
    return record.id, record.messages, record.last_turn_at
