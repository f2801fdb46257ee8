"""The tasks pane: every durable task of the fleet, watched, read, cancelled."""

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

from pallas.model import Fault, FaultType, TaskRecord
from pallas.text import one_line

from ...actions import bindings
from ...clipboard import copy
from ...state import Tone
from ...targets import RunTarget, Target, ThreadTarget
from ...tasks import TaskBook
from ...tasks.book import UNDER_WAY
from ...text import Glyphs, count
from ..filter import FilterLine
from ..lines import LineView
from ..list_pane import ListPane, Story
from ..tones import STYLES
from .list import EMPTY, TaskList
from .view import details, story_of

LOOK_EVERY: Final = 0.5
"""Seconds between two looks whether anything moved meanwhile."""
READ_EVERY: Final = 4
"""Looks between two readings while something is under way: how far it is stands in no event."""
SEARCHED: Final = 5_000
"""Tasks that a filter looks through by itself; further ones as somebody goes down to them."""
_REST: Final = 0.15
_REMEMBERED: Final = 50
_PARTS: Final = 3
_PASSING: Final = frozenset({FaultType.TRANSPORT, FaultType.TIMEOUT})


class TasksPane(ListPane):
    """Reads as many tasks as somebody looks at, however many there are; nothing while it cannot be seen."""

    TITLE = "Tasks"
    HELP = """\
Long work that goes on without whoever asked for it, the newest first: asked for over MCP by a client that
declares the tasks extension, over the bridge (`tasks_delegate`), or over REST. How far it is stands beside it
while it goes on; tasks and what came of them outlast a restart, for as long as `tasks:` of agents.yaml says.

**Enter** reads one in full: what was asked, what it waits to be told, its answer, or what went wrong and how
that is mended. **t** opens the thread that it was said in, in the chat; **f** goes to its run in the feed.
**x** asks for it to be cancelled, after a question. **o** shows the tasks of the selected one's agent only,
or all again. **y** copies its id, with which its owner follows it elsewhere (`pallas tasks attach`).

A filter (**/**) looks in messages, agents, states (`failed`), owners and ids of the newest 5,000.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("tasks")

    class Open(Message):
        """Somebody wants to see the thread or the run of a task."""

        def __init__(self, target: Target) -> None:
            super().__init__()
            self.target = target

    class Ask(Message):
        """Something to be sure of first; ``yes`` does it."""

        def __init__(self, question: str, yes: Callable[[], None]) -> None:
            super().__init__()
            self.question, self.yes = question, yes

    def __init__(self, book: TaskBook, glyphs: Glyphs, clock: Callable[[], float]) -> None:
        super().__init__(id="tasks")
        self._book, self._glyphs, self._clock = book, glyphs, clock
        self._words: tuple[str, ...] = ()
        self._first = False
        """Whether the first page is being read."""
        self._more = False
        self._problem = ""
        self._again = False
        """Whether what is wrong may be over at the next look."""
        self._looks = 0
        self._whole: dict[tuple[str, float], TaskRecord] = {}
        self._resting: Timer | None = None

    def compose(self) -> ComposeResult:
        with Container(id="task-columns"):
            yield TaskList(self._glyphs)
            yield Static(id="task-details", markup=False)
        yield FilterLine("message, agent, state, owner, id", id="task-filter")
        yield Static(id="task-said", markup=False)

    def on_mount(self) -> None:
        """Show what is known, then what there is now."""
        self._say("")
        self.show_pane()
        self.set_interval(LOOK_EVERY, self._look)
        # Not at once: an answer that comes before the pane stands would find nothing to be painted on.
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        self._paint()
        self._refresh()

    @property
    def _stands(self) -> bool:
        """Whether there is something to paint on: what is in a pane goes before the pane does."""
        parts = "#task-list, #task-said, #task-details"
        return self.is_mounted and self.is_attached and len(self.query(parts)) == _PARTS

    @property
    def rows(self) -> TaskList:
        """The list."""
        return self.query_one(TaskList)

    # Reading

    def _look(self) -> None:
        """Read anew when something moved since, or goes on; times go on in any case."""
        if not self._stands or not self.screen.is_current:
            return
        self._looks += 1
        going = self._book.under_way and self._looks >= READ_EVERY
        if self._book.stale or self._again or going:
            self._refresh()
        self.rows.tick(self._clock())
        if (record := self.rows.selected) is not None and record.status in UNDER_WAY:
            self._tell()

    def _refresh(self) -> None:
        if not self._first:
            self._first, self._again, self._looks = True, False, 0
            self.run_worker(self._read_first(), group="tasks first", description="read tasks")

    async def _read_first(self) -> None:
        try:
            await self._read(self._book.refresh)
        finally:
            self._first = False
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
        """Read the next page where the end of what is known is near."""
        if not self._stands:
            return
        book = self._book
        looked = len(book.listed) >= SEARCHED and bool(self._words)
        wanted = self.rows.near_end and not (looked and self.rows.cursor < self.rows.shown - 1)
        if wanted and not book.complete and not self._more and not self._problem and book.listed:
            self._more = True
            self.run_worker(self._read_more(), group="tasks more", description="read more tasks")

    def _paint(self) -> None:
        """List what is known and fits the filter."""
        if not self._stands:
            return
        shown = [each for each in self._book.listed if all(word in each.words for word in self._words)]
        self.rows.take(shown, self._clock(), self._hint())
        # What is listed already stays to be read; why there is nothing newer stands below it.
        if self._problem and shown:
            self._say(self._problem, Tone.ERROR)
        elif not self._problem and self._told_problem:
            self._say("")
        self._told_problem = bool(self._problem)
        self._caption()
        self._tell()
        self._rest()
        self.refresh_bindings()

    _told_problem = False

    def _hint(self) -> str:
        if self._problem:
            return f"{self._problem}\n\nr reads again."
        if self._words and self._book.listed:
            return "Nothing matches.\nEscape takes the filter away."
        if not self._book.complete:
            return f"reading{self._glyphs.ellipsis}"
        return f"No tasks of {self._book.agent}. o shows all." if self._book.agent else EMPTY

    def _caption(self) -> None:
        book = self._book
        known = count(len(book.listed), "task") + ("" if book.complete else " so far")
        going = sum(each.record.status in UNDER_WAY for each in book.listed)
        parts = [f"of {book.agent}" if book.agent else ""]
        parts.append(f"{self.rows.shown} of {known}" if self._words else known if book.listed else "")
        parts.append(f"{going} under way" if going else "")
        self.caption = f" {self._glyphs.dot} ".join(part for part in parts if part)

    # The selected one

    def selection_changed(self) -> None:
        self._tell()
        self._read_on()
        self._rest()

    def _rest(self) -> None:
        """Read the selected one's answer, once somebody stays on it."""
        if self._resting is not None:
            self._resting.stop()
        self._resting = self.set_timer(_REST, self._look_inside)

    def _look_inside(self) -> None:
        self._resting = None
        record = self.rows.selected if self._stands else None
        if record is not None and _key(record) not in self._whole and not self._problem:
            self.run_worker(self._inside(record), group="task inside", exclusive=True)

    async def _inside(self, record: TaskRecord) -> TaskRecord | None:
        try:
            whole = await self._book.whole(record.id)
        except Fault:
            return None
        while len(self._whole) >= _REMEMBERED:
            self._whole.pop(next(iter(self._whole)))
        self._whole[_key(record)] = whole
        self._tell()
        return whole

    def _tell(self) -> None:
        """Say what is known of the selected one."""
        if not self._stands:
            return
        static, record = self.query_one("#task-details", Static), self.rows.selected
        size = static.content_region.size
        if record is None or not size:
            static.update("", layout=False)
            return
        whole = self._whole.get(_key(record))
        lines = details(record, whole, size.width, size.height, self._clock(), self._glyphs)
        static.update(Content("\n").join(Content.assemble(*line) for line in lines), layout=False)

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
        whole = self._whole.get(_key(record), record)
        return record.preview or record.id[:8], story_of(whole, self._clock(), self._glyphs)

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can be done with the selected one is offered."""
        if not self._stands:
            return True
        record = self.rows.selected
        if action in ("choose", "copy_id"):
            return record is not None
        if action == "cancel":
            return record is not None and record.status in UNDER_WAY
        if action == "thread":
            return record is not None and bool(record.thread)
        if action == "run":
            return record is not None and bool(record.run_id)
        if action == "only":
            return bool(self._book.agent) or record is not None
        return super().check_action(action, parameters)

    def choose(self) -> None:
        """Read all of it, as it is now."""
        if (record := self.rows.selected) is not None:
            self._do(self._read_whole(record), "reading it")

    async def _read_whole(self, record: TaskRecord) -> None:
        whole = await self._book.whole(record.id)
        if self._stands:
            title = one_line(record.preview or record.id[:8], 80)
            self.post_message(Story(title, story_of(whole, self._clock(), self._glyphs)))

    def action_thread(self) -> None:
        """Open what was said in the chat."""
        if (record := self.rows.selected) is not None and record.thread:
            self._do(self._open_thread(record), "looking for its thread")

    async def _open_thread(self, record: TaskRecord) -> None:
        thread = await self._book.thread(record)
        if self._stands:
            self.post_message(self.Open(ThreadTarget(thread)))

    def action_run(self) -> None:
        """Go to its run in the feed."""
        if (record := self.rows.selected) is not None and record.run_id:
            self.post_message(self.Open(RunTarget(record.run_id)))

    def action_refresh(self) -> None:
        """Read anew."""
        self._problem = ""
        self._say("")
        self._whole.clear()
        self._refresh()

    def action_only(self) -> None:
        """The tasks of one agent, or of all again."""
        record = self.rows.selected
        self._book.choose("" if self._book.agent or record is None else record.agent)
        self._problem, self._first = "", False
        self._paint()
        self._refresh()

    async def action_copy_id(self) -> None:
        """Copy its id."""
        if (record := self.rows.selected) is not None:
            self.notify(await copy(self.app, record.id), markup=False)

    def action_cancel(self) -> None:
        """Ask for it to be cancelled, after a question."""
        if (record := self.rows.selected) is not None and record.status in UNDER_WAY:
            what = one_line(record.preview or record.id[:8], 60)
            question = f"Cancel the task of {record.agent}: {what}?"
            self.post_message(self.Ask(question, lambda: self._do(self._cancel(record.id), "cancelling")))

    async def _cancel(self, task: str) -> None:
        await self._book.cancel(task)

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
        self.app.run_worker(doing(), group="tasks doing", description=what)

    def _say(self, text: str, tone: Tone = Tone.STARTING) -> None:
        """A line below the list: what is being done, or why it went wrong."""
        said = self.query_one("#task-said", Static)
        said.display = bool(text)
        glyph = getattr(self._glyphs, tone.value)
        said.update(Content.assemble((f"{glyph} {text}", STYLES[tone])) if text else "")


def _key(record: TaskRecord) -> tuple[str, float]:
    return record.id, record.updated_at
