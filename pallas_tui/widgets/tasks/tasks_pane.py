"""The tasks pane: every durable task of the fleet, watched, read, cancelled."""

from collections.abc import Callable, Hashable
from typing import ClassVar, Final

from textual.binding import BindingType
from textual.message import Message

from pallas.model import Fault, TaskRecord
from pallas.safe_text import one_line

from ...actions import bindings
from ...records.task_book import UNDER_WAY, TaskBook
from ...state import Tone
from ...targets import RunTarget, Target, ThreadTarget
from ...text import Glyphs, Line
from ..list_pane import ShowText
from ..pages import RecordsPane
from ..status_line import QuestionLine
from .task_list import EMPTY, TaskList
from .task_view import details, details_text

LOOK_EVERY: Final = 0.5
"""Seconds between two checks for changes."""
READ_EVERY: Final = 4
"""Checks between two reads while a task runs: no event reports progress."""


class TasksPane(RecordsPane[TaskRecord, TaskRecord]):
    """Reads as many tasks as the user looks at, however many there are; nothing while it cannot be seen."""

    TITLE = "Tasks"
    HELP = """\
Long work that continues without its caller, the newest first. A task is requested over MCP by a client that
declares the tasks extension, over the bridge (`tasks_delegate`), or over REST. A running task shows its
progress. Tasks and their results survive a restart and are kept as long as `tasks:` in agents.yaml says.

**Enter** shows one in full: its message, the question it waits on, its answer, or its error and how to fix
it. **t** opens its thread in the chat; **f** goes to its run in the feed. **x** requests its cancellation,
after a question. **o** shows only the tasks of the selected one's agent, or all again. **y** copies its id,
with which its owner can follow it elsewhere (`pallas tasks attach`).

A filter (**/**) searches messages, agents, states (`failed`), owners and ids of the newest 5,000.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("tasks")
    NOUN, OF, EMPTY = "task", "of", EMPTY
    FILTERED = "message, agent, state, owner, id"

    _book: TaskBook

    class OpenTask(Message):
        """The user wants to see the thread or the run of a task."""

        def __init__(self, target: Target) -> None:
            super().__init__()
            self.target = target

    def __init__(self, book: TaskBook, glyphs: Glyphs, clock: Callable[[], float]) -> None:
        super().__init__(book, glyphs, clock)
        self._first = False
        """Whether the first page is being read."""
        self._looks = 0
        self._had_problem = False

    def on_mount(self) -> None:
        """Show the known tasks, then read the current ones."""
        self.set_interval(LOOK_EVERY, self._look)
        # Not at once: an answer that comes before the pane stands would find nothing to be painted on.
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        self._paint()
        self._refresh()

    # Reading

    def _look(self) -> None:
        """Read again when something moved since, or goes on; times go on. Nothing below another screen."""
        if not self._is_composed or not self.screen.is_active:
            return
        self._looks += 1
        going = self._book.under_way and self._looks >= READ_EVERY
        if self._book.stale or self._again or going:
            self._refresh()
        self.rows.set_time(self._clock())
        if (record := self.rows.selected) is not None and record.status in UNDER_WAY:
            self._show_details()

    def _refresh(self) -> None:
        if not self._first:
            # Not exclusive, as in the base: one that is under way is told by ``_first``, and ends by itself.
            self._first, self._again, self._looks = True, False, 0
            self.run_worker(self._read_first(), group="tasks first", description="read tasks")

    async def _read_first(self) -> None:
        try:
            await self._read(self._book.refresh)
        finally:
            self._first = False
        self._read_on()

    def _was_painted(self, shown: bool) -> None:
        # The list stays; the line below it says why there is nothing newer.
        if self._problem and shown:
            self._say(self._problem, Tone.ERROR)
        elif not self._problem and self._had_problem:
            self._say("")
        self._had_problem = bool(self._problem)
        self._rest()

    def _caption(self) -> list[str]:
        going = sum(each.record.status in UNDER_WAY for each in self._book.listed)
        return [*super()._caption(), f"{going} under way" if going else ""]

    # The selected one

    def _new_rows(self) -> TaskList:
        return TaskList(self._glyphs)

    def _key(self, record: TaskRecord) -> Hashable:
        return record.id, record.updated_at

    async def _look_into(self, record: TaskRecord) -> TaskRecord | None:
        try:
            return await self._book.whole(record.id)
        except Fault:
            return None

    def _details(self, record: TaskRecord, within: TaskRecord | None, width: int, height: int) -> list[Line]:
        return details(record, within, width, height, self._clock(), self._glyphs)

    def full_text(self) -> tuple[str, str] | None:
        record = self.rows.selected
        if record is None:
            return None
        whole = self._within.get(self._key(record), record)
        return record.preview or record.id[:8], details_text(whole, self._clock(), self._glyphs)

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can be done with the selected one is offered."""
        if not self._is_composed:
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
        if self._is_composed:
            title = one_line(record.preview or record.id[:8], 80)
            self.post_message(ShowText(title, details_text(whole, self._clock(), self._glyphs)))

    def action_thread(self) -> None:
        """Open the thread of the task in the chat."""
        if (record := self.rows.selected) is not None and record.thread:
            self._do(self._open_thread(record), "looking for its thread")

    async def _open_thread(self, record: TaskRecord) -> None:
        thread = await self._book.thread(record)
        if self._is_composed:
            self.post_message(self.OpenTask(ThreadTarget(thread)))

    def action_run(self) -> None:
        """Go to its run in the feed."""
        if (record := self.rows.selected) is not None and record.run_id:
            self.post_message(self.OpenTask(RunTarget(record.run_id)))

    def action_refresh(self) -> None:
        """Read again."""
        self._say("")
        self._within.clear()
        super().action_refresh()

    def action_only(self) -> None:
        """The tasks of one agent, or of all again."""
        self._first = False
        super().action_only()

    def action_cancel(self) -> None:
        """Ask for it to be cancelled, after a question."""
        if (record := self.rows.selected) is not None and record.status in UNDER_WAY:
            what = one_line(record.preview or record.id[:8], 60)
            question = f"Cancel the task of {record.agent}: {what}?"
            self.screen.query_one(QuestionLine).ask(
                question, lambda: self._do(self._cancel(record.id), "cancelling")
            )

    async def _cancel(self, task: str) -> None:
        await self._book.cancel(task)
