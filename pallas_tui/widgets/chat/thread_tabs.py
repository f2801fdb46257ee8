"""Durable threads as tabs: opened from any list, and reopened after a restart."""

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from pallas.model import (
    ANONYMOUS,
    Compacted,
    Event,
    Fault,
    FaultType,
    FleetPort,
    MessageRecord,
    Page,
    QuestionAnswered,
    StepStarted,
    TextDelta,
    ThreadRecord,
    ToolEvent,
)
from pallas.model.ledger_records import MAX_TITLE
from pallas.safe_text import one_line

from ...chat.conversation import ChatConversation, ChatRun
from ...chat.stored_thread import StoredThread
from ...chat.tab_store import SavedTab, SavedTabs
from ...instances.attached_snapshots import is_attached_name
from ...records.question_book import QuestionBook
from ...records.question_text import answer_note, subject_of
from ...records.thread_book import ThreadBook
from ...runs.event_text import compacted_text
from ...targets import opener_of
from .chat_desk import setting
from .side_by_side import SideBySide
from .thread_title import follow

_KEEP_AFTER: Final = 1.0
_FOLLOW_EVERY: Final = 2.0
"""Seconds between two looks at the title of a thread, each time that of the next tab."""


class ThreadTabs(SideBySide):
    """Opens threads in tabs, and saves which are open."""

    _reopened = False
    _keeping = False
    _learnt = False
    _followed = 0
    _following = False

    def on_mount(self) -> None:
        """Follow the titles of threads: other clients may rename them."""
        self.set_interval(_FOLLOW_EVERY, self._follow_next)

    @abstractmethod
    def _paint(self) -> None:
        """Update the screen."""

    def open_thread(self, record: ThreadRecord) -> None:
        """Show the tab of a thread, or open one; one that a search found, at what was said."""
        for view in self._views:
            if record.id in (view.conversation.thread, view.conversation.handle):
                self._switch(view, wanted=True)
                view.show_said(record.snippet)
                return
        options, front = None, self._current
        if front is not None and front.conversation.agent == record.agent and record.owner != ANONYMOUS.id:
            # A caller with a bearer token here has the same one there: the thread may belong to it.
            held = front.talk.options
            options = replace(held, principal=held.principal.lend())
        conversation = self._opened_from(record)
        self.new_conversation(record.agent, wanted=True, conversation=conversation, options=options)

    def learn_threads(self) -> None:
        """Read the newest threads once, so that the palette finds them."""
        book: ThreadBook | None = getattr(self.app, "threads", None)
        if book is not None and not self._learnt:
            self._learnt = True
            self.run_worker(_learn(book), group="threads", description="read the newest threads")

    def _follow_next(self) -> None:
        if self._views:
            self._followed = (self._followed + 1) % len(self._views)
            self._follow(self._views[self._followed].conversation)

    def _follow(self, conversation: ChatConversation) -> None:
        """Take in the title of the thread, or give it the one that waits for it."""

        async def following() -> None:
            try:
                if problem := await follow(self.app, conversation):
                    self.app.notify(problem, severity="error", markup=False)
            finally:
                self._following = False

        if not self._following:
            self._following = True
            self.run_worker(following(), group="title", description="follow the title of a thread")

    def thread_gone(self, thread: str) -> None:
        """Begin again in the tab of a deleted thread."""
        for view in self._views:
            if thread in (view.conversation.thread, view.conversation.handle):
                view.conversation.reseat()
                view.conversation.stored = None
                view.conversation.note(
                    "This thread was deleted. The next message begins another one, and the agent receives "
                    "what is shown here.",
                    view.desk.clock(),
                )

    def note_compacted(self, events: Sequence[Event]) -> None:
        """Say in a transcript that the agent now gets a summary instead of its older messages."""
        for event in events:
            if isinstance(event, Compacted):
                for view in self._views:
                    run = view.conversation.run
                    if run is not None and self._runs.traced(run.trace.trace_id) == event.run_id:
                        view.conversation.note(f"{compacted_text(event)}.", event.at)

    def show_questions(self, events: Sequence[Event], now: float) -> None:
        """Show each open question in the conversation whose run waits for it, and note the answers."""
        book: QuestionBook | None = getattr(self.app, "questions", None)
        if book is None:
            return
        for event in events:
            if isinstance(event, QuestionAnswered):
                for view in self._views:
                    asked = view.card.question
                    if asked is not None and asked.id == event.question:
                        view.conversation.note(answer_note(asked, event), event.at)
        for view in self._views:
            held = view.conversation
            root = self._runs.traced(held.run.trace.trace_id) if held.run is not None else ""
            threads = {held.thread, held.handle}
            view.card.show(
                [each for each in book.open if (root and each.root == root) or each.thread in threads], now
            )

    def shows_run(self, run_id: str) -> bool:
        """Whether a conversation in view waits for that run."""
        return self.is_showing and any(
            view.display
            and view.conversation.run is not None
            and self._runs.traced(view.conversation.run.trace.trace_id) == run_id
            for view in self._views
        )

    def asks_for(self, trace_id: str) -> str:
        """Say that the run with that trace waits for an answer of the user; empty if it does not."""
        for view in self._views:
            run = view.conversation.run
            if run is not None and run.trace.trace_id == trace_id and view.card.question is not None:
                return f"waits for your answer: {subject_of(view.card.question)}"
        return ""

    def show_recorded_calls(self) -> None:
        """Show the calls of answers as their runs recorded them, as soon as those are over."""
        if (opener := opener_of(self.app)) is not None:
            for view in self._views:
                view.transcript.take_calls(opener.run_of, self._runs)

    def explain_failures(self, events: Sequence[Event]) -> None:
        """Say in the transcripts why tool calls failed: callers over MCP do not learn it."""
        for event in events:
            if isinstance(event, ToolEvent) and event.error and not event.nested:
                for view in self._views:
                    view.transcript.explain(event, self._runs)

    def note_reasoning(self, events: Sequence[Event]) -> None:
        """Show the reasoning of models: it comes with the fleet's events, and is no part of an answer."""
        for event in events:
            if not isinstance(event, StepStarted) and not _is_reasoning(event):
                continue
            text = event.text if isinstance(event, TextDelta) else ""
            for view in self._views:
                held = view.conversation
                answers = (entry for entry in held.entries[-3:] if entry.role == "assistant")
                asked = [*([held.run] if held.run else ()), *answers]
                for each in asked:
                    trace = each.trace.trace_id if isinstance(each, ChatRun) else each.trace_id
                    if trace and self._runs.traced(trace) == getattr(event, "run_id", ""):
                        held.reason(each, text)

    def _opened_from(self, record: ThreadRecord, resolve: bool = False) -> ChatConversation:
        conversation = ChatConversation(record.agent, stopwatch=self._desk.stopwatch)

        async def rows(limit: int, cursor: str) -> Page[MessageRecord]:
            return await self._port().thread_messages(stored.record.id, limit, cursor, True)

        async def found() -> ThreadRecord:
            return await self._port().thread(record.agent, record.id)

        find: Callable[[], Awaitable[ThreadRecord]] | None = found if resolve else None
        stored = StoredThread(record, rows, find)
        conversation.open(stored)
        conversation.name = one_line(record.title, MAX_TITLE)
        return conversation

    def _port(self) -> FleetPort:
        fleet: Any = getattr(self.app, "fleet", None)
        if fleet is None:
            raise Fault(FaultType.TRANSPORT, "the fleet is not running")
        port: FleetPort = fleet
        return port

    # Between two starts

    def reopen(self) -> None:
        """Restore the tabs of the last start, once there are agents; each is read when it is shown."""
        self._reopened = True
        tabs, front = self._saved_tabs().load()
        if self._views or not setting(self.app, "reopen", True):
            return
        views = []
        for tab in tabs:
            record = ThreadRecord(tab.thread, tab.agent, ANONYMOUS.id, tab.name)
            conversation = self._opened_from(record, resolve=True)
            if (view := self._make(tab.agent, conversation)) is not None:
                views.append(view)
        if views:
            # The one in front is shown last.
            wanted = views[front]
            ordered = [wanted, *(view for view in views if view is not wanted)]
            self.run_worker(self._mount(ordered, False), group="open", description="open the last tabs")

    def keep_tabs(self) -> None:
        """Save soon which threads are open: at once if a conversation has begun, which a crash would lose."""
        saved, opened = self._saved_tabs(), self._open_tabs()
        if not self._reopened or saved.has(*opened):
            return
        if saved.lacks(opened[0]):
            saved.note(*opened)
            self.run_worker(
                asyncio.to_thread(saved.write),
                group="tabs",
                exclusive=True,
                description="save the open tabs",
            )
        elif not self._keeping:
            self._keeping = True
            self.set_timer(_KEEP_AFTER, self.keep_tabs_now)

    def keep_tabs_now(self) -> None:
        """Save which threads are open; tabs of other fleets are left alone."""
        self._keeping = False
        if self._reopened:
            self._saved_tabs().keep(*self._open_tabs())

    def _open_tabs(self) -> tuple[tuple[SavedTab, ...], int]:
        """The tabs with a thread, and the index of the one in front."""
        views = [
            view
            for view in self._views
            if not is_attached_name(view.conversation.agent)
            and (view.conversation.thread or view.conversation.entries)
        ]
        tabs = tuple(
            SavedTab(
                view.conversation.agent,
                view.conversation.thread or view.conversation.handle,
                view.conversation.name,
            )
            for view in views
        )
        front = next((at for at, view in enumerate(views) if view is self._current), 0)
        return tabs, front

    def on_unmount(self) -> None:
        """Save the open tabs for the next start."""
        self.keep_tabs_now()

    def _saved_tabs(self) -> SavedTabs:
        tabs: SavedTabs | None = getattr(self.app, "saved_tabs", None)
        return tabs if tabs is not None else SavedTabs()


def _is_reasoning(event: Event) -> bool:
    return isinstance(event, TextDelta) and event.reasoning and event.actor in ("", event.agent)


async def _learn(book: ThreadBook) -> None:
    with suppress(Fault):  # the list of threads shows the fault
        await book.refresh()
