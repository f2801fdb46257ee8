"""The messages, scrolled: follows only at the end, and never moves text that the user reads."""

from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import ClassVar, Final

from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from pallas.model import ToolEvent

from ...actions import bindings
from ...chat.answer_runs import Runs
from ...chat.call_tree import MAX_CALLS, Node
from ...chat.chat_entry import ChatEntry
from ...chat.conversation import KEEP, ChatConversation, ChatRun
from ...runs.feed_run import FeedRun
from ...text import UNICODE, Glyphs, count
from ..removal import remove
from .answer_lines import AnswerScroll, DrawnRows
from .message_view import MessageView

_RECENT: Final = 3
"""Answers whose runs may just have ended."""


class Transcript(AnswerScroll, can_focus=True):
    """The messages of one conversation, updated from the model by ``paint``."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("transcript")

    class TranscriptMoved(Message):
        """The transcript was scrolled, or a message was selected."""

    class Top(Message):
        """The user is at the first message that is shown, and there are older ones."""

    def __init__(self, conversation: ChatConversation, glyphs: Glyphs = UNICODE) -> None:
        super().__init__(classes="chat-transcript")
        self._conversation = conversation
        self._glyphs = glyphs
        self._welcome = Static(markup=False, classes="chat-welcome")
        self._pruned = Static(markup=False, classes="chat-pruned")
        self._views: dict[int, MessageView] = {}
        self._drawn = DrawnRows()
        self._below = 0
        self._away = False
        self._staying = False
        self.reading = False
        self.problem = ""
        """Why older messages could not be read."""
        self.selected: MessageView | None = None
        self._wanted: int | None = None

    def _size_updated(
        self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True
    ) -> bool:
        # It was just laid out: a new height is no reason to lay out the screen a second time.
        return super()._size_updated(size, virtual_size, container_size, layout=False)

    def on_mount(self) -> None:
        """Keep the end in view until the user scrolls away from it."""
        self.mount(self._pruned, self._welcome)
        self._pruned.display = False
        self.anchor()

    @property
    def at_end(self) -> bool:
        """Whether the newest line is in view."""
        return self.scroll_offset.y >= self.max_scroll_y

    @property
    def below(self) -> str:
        """How much new text is out of view, in words; empty at the end."""
        if not self._away or not self._below:
            return ""
        return f"{count(self._below, 'new message')} below (G)"

    def welcome(self, text: str) -> None:
        """Set the text of an empty conversation."""
        if text != self._welcome.content:  # an update draws all of it again
            self._welcome.update(text)

    async def paint(self) -> None:
        """Update the widgets from the model: add, remove, stream, settle."""
        conversation, following = self._conversation, not self._away
        # The model goes on while widgets are mounted: paint this state of it, the next paint has the next.
        run, entries = conversation.run, tuple(conversation.entries)
        self._welcome.display = conversation.untouched and conversation.stored is None
        self._tell_of_older()
        keys = {entry.key for entry in entries} | ({run.key} if run else set())
        # Old messages are removed only while the user is at the end: it would move the text.
        if self._away and len(self._views) < len(entries) + KEEP:
            keys |= self._views.keys() & conversation.hidden
        gone = [self._views.pop(key) for key in list(self._views) if key not in keys]
        if gone:
            if self.selected in gone:
                self._select(None)
            await remove(gone)
            if not self._views:
                self._drawn = DrawnRows()
        older = list(takewhile(lambda entry: entry.key not in self._views, entries)) if self._views else []
        await self._add_above(older)
        added = [entry for entry in entries if entry.key not in self._views]
        await self._add(added)
        if not following:
            self._below += sum(entry.role != "user" for entry in added)
        for entry in entries:
            if (view := self._views[entry.key]).live:
                await view.settle(entry)
                self._below += not following
            await self._views[entry.key].reason(entry.reasoning)
        if run is not None and (run.text or run.tree or run.reasoning):
            if run.key not in self._views:
                await self._add([ChatEntry("assistant", "", run.at, key=run.key)], live=True)
            await self._views[run.key].stream(run)
            await self._views[run.key].reason(run.reasoning)
        if self._wanted in self._views:
            self._go_to(self._wanted)
            self._wanted = None

    def _tell_of_older(self) -> None:
        """Show a line above the rest about messages that are not shown."""
        conversation = self._conversation
        stored = conversation.stored
        text = f"{count(conversation.pruned, 'earlier message')} not shown any more"
        if self.problem:
            text = f"{self.problem} (g tries again)"
        elif self.reading:
            text = "reading earlier messages" + self._glyphs.ellipsis
        elif conversation.more_above and (stored is not None or conversation.pruned):
            text = (text if conversation.pruned else "there are earlier messages") + ": scroll up (g) for it"
        elif not conversation.pruned:
            text = "" if stored is None or stored.complete else "the rest is in the thread: export it there"
        self._pruned.display = bool(text)
        if text:
            self._pruned.update(text)

    async def _add_above(self, entries: list[ChatEntry]) -> None:
        """Add older messages before the others, without moving the text that the user reads."""
        if not entries:
            return
        first = next(child for child in self.children if isinstance(child, MessageView))
        views = self._made(entries)
        self._views = {view.entry.key: view for view in views} | self._views
        if not self._away:
            await self.mount_all(views, before=first)
            return
        below = self.max_scroll_y - self.scroll_offset.y
        await self.mount_all(views, before=first)

        def stay() -> None:
            self._staying = True
            self.scroll_to(y=max(0, self.max_scroll_y - below), animate=False, force=True, immediate=True)
            self._staying = False

        self.call_after_refresh(stay)

    def open_calls(self) -> bool:
        """Unfold the calls of the selected message, else of the newest that has some, and focus them."""
        views = [self.selected] if self.selected else list(reversed(self.children))
        for view in views:
            if isinstance(view, MessageView) and view.calls:
                for calls in view.calls:
                    calls.unfold()
                view.calls[0].open_up()
                return True
        return False

    def show_message(self, key: int) -> None:
        """Select the message with that key and bring its beginning into view, once it is painted."""
        self._wanted = key

    def _go_to(self, key: int) -> None:
        if (view := self.point_at(key)) is not None:
            # Messages above it may be painted in the same turn, and move it.
            self.call_after_refresh(self.scroll_to_widget, view, animate=False, top=True, force=True)

    def point_at(self, key: int) -> MessageView | None:
        """Select the message with that key, and follow the end no longer."""
        view = self._views.get(key)
        if view is not None:
            self.release_anchor()
            self._select(view)
        return view

    def show_row(self, widget: Widget, row: int) -> None:
        """Scroll to a row of a widget inside."""
        region = Region(0, row, max(1, widget.size.width), 1)
        node: Widget = widget
        while node is not self and isinstance(node.parent, Widget):
            region, node = region.translate(node.virtual_region.offset), node.parent
        self.scroll_to_region(region, animate=False, center=True, force=True)

    def toggle_reasoning(self) -> bool:
        """Unfold or fold the reasoning of the selected message, else of the newest that has some."""
        views = [self.selected] if self.selected else list(reversed(self.children))
        for view in views:
            if isinstance(view, MessageView) and view.reasoning is not None:
                view.reasoning.toggle()
                return True
        return False

    def tick(self) -> None:
        """Update the times of the calls of a run in flight."""
        run = self._conversation.run
        if run is not None and (view := self._views.get(run.key)) is not None:
            for calls in view.calls:
                calls.tick()

    def take_calls(self, run_of: Callable[[str], FeedRun | None], runs: Runs) -> None:
        """Show the calls of the last answers as their runs recorded them, if those are over and known."""
        for entry in self._conversation.entries[-_RECENT:]:
            if entry.tree is None or entry.tree.is_recorded:
                continue
            run = run_of(runs.of(entry))
            view = self._views.get(entry.key)
            if run is not None and take_calls(entry, run) and view is not None:
                view.take_calls()

    def explain(self, event: ToolEvent, runs: Runs) -> None:
        """Say why a call failed, if it is one of the run in flight or of an answer that is shown."""
        run = self._conversation.run
        found: ChatRun | ChatEntry | None = run
        if run is None or runs.traced(run.trace.trace_id) != event.run_id:
            entries = reversed(self._conversation.entries)
            found = next((each for each in entries if each.tree and runs.of(each) == event.run_id), None)
        if found is not None and found.tree is not None:
            found.tree.explain(f"{event.server}/{event.tool}", event.error)
            view = self._views.get(found.key)
            for calls in view.calls if view is not None else ():
                calls.tick()

    def _author(self, entry: ChatEntry) -> str:
        return {"user": "you", "note": "pallas"}.get(entry.role, self._conversation.agent)

    def _made(self, entries: Iterable[ChatEntry], live: bool = False) -> list[MessageView]:
        return [
            MessageView(
                entry,
                self._author(entry),
                live=live,
                glyphs=self._glyphs,
                now=self._conversation.now,
                drawn=self._drawn,
            )
            for entry in entries
        ]

    async def _add(self, entries: Iterable[ChatEntry], live: bool = False) -> None:
        views = self._made(entries, live)
        self._views.update({view.entry.key: view for view in views})
        if views:
            await self.mount_all(views)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Clear the count of new text at the end."""
        super().watch_scroll_y(old_value, new_value)
        # Only a user scrolls up; text that grows is below for a moment before the anchor follows it.
        self._away = not self.at_end and (self._away or new_value < old_value)
        if not self._away:
            self._below = 0
        if new_value <= 0 < old_value and not self._staying:
            self.want_older()
        self.post_message(self.TranscriptMoved())

    def want_older(self) -> None:
        """Ask for older messages."""
        if self._conversation.more_above and not self.reading:
            self.post_message(self.Top())

    def action_scroll_home(self) -> None:
        """Go to the first message; from there to older ones."""
        if self.scroll_offset.y <= 0:
            self.want_older()
        super().action_scroll_home()

    def action_select(self, by: int) -> None:
        """Select the message before or after; past the last one, none."""
        views = [view for view in self.children if isinstance(view, MessageView)]
        if not views:
            return
        if self.selected is None:
            self._select(views[-1] if by < 0 else None)
        elif self.selected is views[0] and by < 0:
            self.want_older()
        else:
            index = views.index(self.selected) + by
            self._select(views[max(0, index)] if index < len(views) else None)
        if self.selected is not None:
            self.selected.scroll_visible(animate=False)

    def unselect(self) -> bool:
        """Clear the selection; return False when there was none."""
        was = self.selected is not None
        self._select(None)
        return was

    def _select(self, view: MessageView | None) -> None:
        if self.selected is not None:
            self.selected.remove_class("-selected")
        self.selected = view
        if view is not None:
            view.add_class("-selected")
        self.post_message(self.TranscriptMoved())

    def on_message_view_pointed(self, event: MessageView.Pointed) -> None:
        """Select a message on a click, or clear the selection."""
        event.stop()
        self._select(None if event.view is self.selected else event.view)


_CALLS = frozenset({"tool", "agent"})


def take_calls(entry: ChatEntry, run: FeedRun) -> bool:
    """Have an answer show the calls of its run, which is over, as they were recorded; whether it does.

    Until then it shows what the agent's progress messages say, which have no numbers and no durations.
    """
    recorded = sum(step.record is not None for step in run.steps)
    if entry.tree is None or entry.tree.is_recorded or run.running or run.left_out or not recorded:
        return False
    calls = _calls_of(run)
    if sum(1 + len(list(node.walk())) for _, node in calls) > MAX_CALLS:
        return False
    entry.tree.take(node for _, node in calls)
    entry.place_calls([cause for cause, _ in calls])
    entry.steps, entry.tools = (
        recorded,
        sum(step.record is not None and step.record.kind in _CALLS for step in run.steps),
    )
    entry.seconds = run.seconds
    return True


def _calls_of(run: FeedRun) -> list[tuple[int, Node]]:
    """The calls that no other call of the run caused, each with the number of the step that did."""
    nodes: dict[int, Node] = {}
    own: list[tuple[int, Node]] = []
    for step in sorted(run.steps, key=lambda each: each.at):
        record = step.record
        if record is None or record.kind not in _CALLS:
            continue
        above = step.below
        while above is not None and id(above) not in nodes:
            above = above.below
        parent = nodes[id(above)] if above is not None else None
        node = nodes[id(step)] = Node("call", step.name, step.at, parent, step.state, record=record)
        node.ended = None if record.seconds is None else step.at + record.seconds
        node.error = step.notice if step.state == "error" else ""
        for child in step.runs or ():
            for _, each in _calls_of(child):
                each.parent = node
                node.children.append(each)
        if parent is None:
            own.append((record.parent, node))
        else:
            parent.children.append(node)
    return own
