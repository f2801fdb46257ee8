"""The threads pane: every durable thread of the fleet, found, read, gone on with, renamed and deleted."""

import asyncio
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Input

from pallas.model import Fault, ThreadRecord
from pallas.model.ledger_records import MAX_TITLE
from pallas.safe_text import one_line

from ...actions import bindings
from ...chat.chat_export import ConversationFacts, Form, exported, file_name, form_of, write_new
from ...chat.conversation import ChatConversation
from ...chat.stored_thread import entries_of
from ...pictures.images import user_path
from ...records.thread_book import ThreadBook
from ...state import Tone
from ...text import Glyphs, Line, count
from ..dialogs.line_dialog import LineScreen
from ..pages import RecordsPane
from ..status_line import QuestionLine
from .thread_list import EMPTY, ThreadList
from .thread_view import SEEN_ROWS, SeenThread, details, details_text

SEARCH_AFTER: Final = 0.3
"""Seconds after the last key until what was said is searched."""
SEARCH_SECONDS: Final = 20.0
"""The most that a search may take."""
LOOK_EVERY: Final = 1.0
"""Seconds between two checks for new messages."""


class TitleLine(Input):
    """The title input. Hidden until ``open``; enter submits, escape keeps the old title."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("title_line")

    class TitleEntered(Message):
        """A title was typed for the thread of that id."""

        def __init__(self, thread: str, title: str) -> None:
            super().__init__()
            self.thread, self.title = thread, title

    class TitleLineLeft(Message):
        """The focus should go back to the list."""

    def __init__(self) -> None:
        super().__init__(
            placeholder="title", compact=True, select_on_focus=False, max_length=MAX_TITLE, id="thread-title"
        )
        self.display = False
        self._thread = ""

    def open(self, thread: str, title: str) -> None:
        """Show the line with the title there is."""
        self._thread, self.value = thread, title
        self.display = True
        self.cursor_position = len(title)
        # At once: text typed right after the key must not reach the list as keys.
        self.screen.set_focus(self)

    def action_leave(self) -> None:
        """Nothing is wanted after all."""
        self._close()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Submit the text."""
        event.stop()
        self.post_message(self.TitleEntered(self._thread, self.value.strip()))
        self._close()

    def _close(self) -> None:
        self.display = False
        self.post_message(self.TitleLineLeft())


async def export_thread(app: Any, book: ThreadBook, record: ThreadRecord, now: float) -> None:
    """Ask for a file and write all that was said to it. Raises Fault."""
    rows = await book.whole(record.id)
    conversation = ChatConversation(record.agent)
    conversation.name = record.title
    conversation.entries = await asyncio.to_thread(entries_of, rows, record.agent)
    base = Path.cwd()
    hint = f"in {base}; *.json for JSON, else Markdown. Escape leaves."
    answer = await app.push_screen_wait(
        LineScreen("Write the thread to", hint, file_name(conversation, now, "md"))
    )
    if not (answer or "").strip():
        return
    target = user_path(str(answer).strip(), base)
    form: Form = form_of(target)
    if not target.suffix:
        target = target.with_name(f"{target.name}.{form}")
    text = exported(conversation, ConversationFacts(agent=record.agent), form)
    await asyncio.to_thread(write_new, target, text)
    app.notify(f"Written to {one_line(str(target), 300)}.", markup=False)


class ThreadsPane(RecordsPane[ThreadRecord, SeenThread]):
    """Reads as many threads as the user looks at, however many there are."""

    TITLE = "Threads"
    HELP = """\
Every conversation that the fleet stores, of any caller and surface (`mcp`, `rest`, `chat` ...), the one used
last first. They survive a restart.

**Enter** opens a thread in a tab of the chat, with its newest messages, where you can continue it. You can
read the thread of another caller; to continue it, ask as that caller (**alt+p** in the chat), or branch off
(**a** on a message). **e** gives it another title, **x** deletes it for good, after a question. **y** copies
its id, with which it can be continued elsewhere (as `conversation_id` or `threadId`). **w** writes all of it
to a file. **o** shows only the threads of the selected one's agent, or all again.

A branch, which continues from a message of another thread, is marked in the list. Both name each other.

A filter (**/**, **ctrl+f**) searches all that was said in all threads, and titles, agents, owners and ids of
the newest 5,000; **end** loads more. **Enter** opens a hit at the message that was found.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("threads")
    NOUN, OF, EMPTY = "thread", "with", EMPTY
    FILTERED = "what was said, title, agent, owner, id"

    _book: ThreadBook

    class OpenThread(Message):
        """The user wants to go on with a thread."""

        def __init__(self, record: ThreadRecord) -> None:
            super().__init__()
            self.record = record

    def __init__(self, book: ThreadBook, glyphs: Glyphs, clock: Callable[[], float]) -> None:
        super().__init__(book, glyphs, clock)
        self._runs: object = None
        self._waiting: Timer | None = None
        """The pause before a search."""
        self._searching = False

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield TitleLine()

    def on_mount(self) -> None:
        """Show the known threads, then read the current ones."""
        self._paint()
        self.set_interval(LOOK_EVERY, self._look)
        self._refresh()

    # Reading

    def _look(self) -> None:
        """Read again when a run began or ended since."""
        fleet = getattr(self.app, "fleet", None)
        agents = fleet.snapshot().agents if fleet is not None else ()
        runs = [(agent.name, agent.runs_total, agent.runs_active) for agent in agents]
        if runs != self._runs or self._again:
            self._runs = runs
            self._refresh()

    def _refresh(self) -> None:
        super()._refresh()
        if self._words and self._waiting is None:
            self._search()

    # Searching

    def search_for(self, text: str) -> None:
        """Filter by that text."""
        self.filter.value = text
        self.filter.display = True

    def filter_by(self, words: tuple[str, ...]) -> None:
        self._searching = bool(words)
        super().filter_by(words)
        if self._waiting is not None:
            self._waiting.stop()
        self._say(f"searching{self._glyphs.ellipsis}" if words else "")
        self._waiting = self.set_timer(SEARCH_AFTER, self._search)

    def _search(self) -> None:
        """Search the messages for the words; a search that is under way is cancelled."""
        self._waiting = None
        self.run_worker(
            self._find(" ".join(self._words)),
            group="threads search",
            exclusive=True,
            description="search threads",
        )

    async def _find(self, text: str) -> None:
        told, tone = "", Tone.STARTING
        try:
            async with asyncio.timeout(SEARCH_SECONDS):
                await self._book.search(text)
        except TimeoutError:
            told, tone = f"the search took more than {SEARCH_SECONDS:g} s; add a word", Tone.ERROR
        except Fault as fault:
            told, tone = f"messages are not searched: {fault.message}", Tone.ERROR
        else:
            if self._book.has_more_hits:
                told = (
                    f"More than {len(self._book.hits)} threads have these words; add a word to "
                    f"narrow the search."
                )
        if self._is_composed:
            self._searching = False
            if tone is Tone.ERROR:
                self._book.forget_hits()
            self._say(told, tone)
            self._paint()

    def _matching(self) -> list[ThreadRecord]:
        if not self._words:
            return super()._matching()
        matching, hits = {each.id for each in super()._matching()}, self._book.hits
        known = [hits.get(each.id, each) for each in self._book.records]
        listed = {each.id for each in known}
        shown = [each for each in known if each.id in matching or each.id in hits]
        return [*shown, *(each for each in hits.values() if each.id not in listed)]

    def _hint(self) -> str:
        return f"searching{self._glyphs.ellipsis}" if self._searching else super()._hint()

    # The selected one

    def _new_rows(self) -> ThreadList:
        return ThreadList(self._glyphs)

    def _key(self, record: ThreadRecord) -> Hashable:
        return record.id, record.messages, record.last_turn_at

    async def _look_into(self, record: ThreadRecord) -> SeenThread:
        try:
            rows = await self._book.newest(record.id, SEEN_ROWS)
            branches = await self._book.branches(record.id)
        except Fault:
            return SeenThread()
        return SeenThread(rows, branches, self._title_of(record.branched_from))

    def _title_of(self, thread: str) -> str:
        """The title of a thread that is listed; else its id."""
        found = next((each.title for each in self._book.records if each.id == thread), "")
        return found or thread

    def _details(
        self, record: ThreadRecord, within: SeenThread | None, width: int, height: int
    ) -> list[Line]:
        return details(record, within, width, height, self._clock(), self._glyphs)

    def _not_looked_into(self) -> None:
        if self._resting is None:
            self._rest()

    def full_text(self) -> tuple[str, str] | None:
        record = self.rows.selected
        if record is None:
            return None
        seen = self._within.get(self._key(record), SeenThread())
        return record.title or record.id, details_text(record, seen, self._clock())

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can be done with the selected one is offered."""
        if not self._is_composed or not self.query(TitleLine):
            return True
        typing = self.query_one(TitleLine).has_focus
        if action in ("choose", "rename", "delete", "copy_id", "export", "full_text"):
            return self.rows.selected is not None and not typing
        if action == "only":
            return (bool(self._book.agent) or self.rows.selected is not None) and not typing
        return super().check_action(action, parameters) and not (action == "filter" and typing)

    def choose(self) -> None:
        """Open the thread in the chat."""
        if (record := self.rows.selected) is not None:
            self.post_message(self.OpenThread(record))

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
            self.screen.query_one(QuestionLine).ask(
                question, lambda: self._do(self._delete(record.id), "deleting")
            )

    async def _delete(self, thread: str) -> None:
        await self._book.delete(thread)
        if (gone := getattr(self.app, "thread_gone", None)) is not None:
            gone(thread)

    def action_export(self) -> None:
        """Write all of it to a file."""
        if (record := self.rows.selected) is not None:
            self._do(export_thread(self.app, self._book, record, self._clock()), "reading all of it")

    @on(TitleLine.TitleEntered)
    def _entered(self, event: TitleLine.TitleEntered) -> None:
        event.stop()
        self._do(self._book.rename(event.thread, event.title), "renaming")

    @on(TitleLine.TitleLineLeft)
    def _title_left(self, event: TitleLine.TitleLineLeft) -> None:
        event.stop()
        self.rows.focus()
