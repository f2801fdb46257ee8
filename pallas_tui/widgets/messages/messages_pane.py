"""The live messages of one run: delivered ones, and refused ones with the reason."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.message import Message
from textual.timer import Timer

from pallas.model import Envelope

from ...actions import bindings
from ...clipboard import copy
from ...messages import MessageBook, RunEnvelopes
from ...messages.message_reader import Reader
from ...messages.message_replay import AGAIN
from ...messages.message_tree import HEAD, MessageLines, MessageQuery
from ...messages.xml_text import as_text, hang_of, lines_of, run_lines
from ...runs.feed_run import FeedRun
from ...state import Tone
from ...targets import opener_of
from ...text import Glyphs, Line, count, joined
from ..fact_lines import ActionStatus
from ..filter_line import NOTHING_MATCHES, FilterLine
from ..folded_lines import FoldedLines
from ..list_pane import ListPane
from ..pane import Pane
from .handler_lookup import open_source
from .message_list import EMPTY, UNFIT, MessageList

if TYPE_CHECKING:
    from ..feed import FeedPane

HINT: Final = "agent, payload, route, outcome, any word of the XML"
REST: Final = 0.06
"""Seconds that the cursor stays before a long message is laid out."""
_LONG: Final = 8_000


class EnvelopePane(Pane):
    """One message; it does not change after it was opened."""

    TITLE = "Message"
    HELP = """\
One message between handlers: its result, whether it fits the schema of its class, its frame, and the whole
envelope, indented. For a refused message, **why** gives all names; its sender received only the code. Secrets
are masked. **y** copies everything, **c** the stored XML.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("envelope")

    def __init__(self, letter: Envelope, running: bool, glyphs: Glyphs) -> None:
        super().__init__(id="envelope")
        self._letter, self._running_run, self._glyphs = letter, running, glyphs

    def compose(self) -> ComposeResult:
        lines = lines_of(self._letter, self._running_run, arrow=self._glyphs.outbound)
        yield FoldedLines(lines, id="envelope-lines", hang=hang_of)

    async def action_copy(self) -> None:
        """Copy all details of it."""
        self.notify(await copy(self.app, as_text(self._letter, self._running_run)), markup=False)

    async def action_copy_xml(self) -> None:
        """Copy the envelope."""
        self.notify(await copy(self.app, self._letter.xml), markup=False)


class MessagesPane(ListPane):
    """Follows one run while it is open; paints only the visible lines of any number."""

    TITLE = "Messages"
    HELP = """\
Every message between the handlers of one run, in the order in which they passed. The indent shows the frame
of a message: a call opens a frame, a respond ends it. Below a call to an agent of another kind is that
agent's run, and in it the messages of the handlers it called in turn.

Beside the list is the whole envelope of the selected message, with the result of its schema check. For a
refused message, **why** gives the reason with all names: only you see it, its sender received only the code.

**Enter** opens it on its own screen, **o** shows only undelivered messages. **s** writes a message to its
handler in a form, **p** sends this one again to the handler as it is now and compares the replies. **e**
opens the handler's code. **[** and **]** go to the previous and the next run. **y** copies everything about
the message, **c** its XML. The list follows while the cursor is at its end.

A filter (**/**) searches agents, payloads, routes and outcomes, and the XML that was read.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("messages")

    class OpenEnvelope(Message):
        """A message should be shown in full."""

        def __init__(self, letter: Envelope) -> None:
            super().__init__()
            self.letter = letter

    class ReplayMessage(Message):
        """A message should be sent again."""

        def __init__(self, letter: Envelope) -> None:
            super().__init__()
            self.letter = letter

    class ShowMessagesElsewhere(Message):
        """Another pane should show the run."""

        def __init__(self, run_id: str, pane: str) -> None:
            super().__init__()
            self.run_id, self.pane = run_id, pane

    def __init__(self, book: MessageBook, feed: "FeedPane", glyphs: Glyphs, run_id: str = "") -> None:
        super().__init__(id="messages")
        self.run_id = run_id
        self._book, self._feed, self._glyphs = book, feed, glyphs
        self._wanted = MessageQuery()
        self._state: object = None
        self._reader = Reader(book)
        self._outline = MessageLines(book)
        self._resting: Timer | None = None
        self._shown: object = None

    def compose(self) -> ComposeResult:
        with Container(id="message-columns"):
            yield MessageList(self._book, self._glyphs, id="message-list")
            yield FoldedLines(id="message-text", hang=hang_of)
        yield FilterLine(HINT, id="message-filter")
        yield ActionStatus(self._glyphs, id="message-status")

    @property
    def view(self) -> MessageList:
        return self.query_one(MessageList)

    @property
    def _is_composed(self) -> bool:
        return self.is_mounted and self.is_attached and len(self.query("#message-list, #message-text")) == 2

    @property
    def messages(self) -> RunEnvelopes | None:
        """The messages of the run."""
        return self._book.run(self.run_id)

    def on_mount(self) -> None:
        """Subscribe to the feed, and read the messages."""
        self._feed.watchers.append(self.advance)
        run = self._feed.feed.run(self.run_id)
        self.view.follow = run is not None and run.running
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        if self._is_composed:
            self._lay_out(force=True)
            self.action_read()

    def on_unmount(self) -> None:
        """Unsubscribe from the feed, and drop the XML."""
        if self.advance in self._feed.watchers:
            self._feed.watchers.remove(self.advance)
        if (messages := self.messages) is not None:
            messages.lighten()

    # Showing

    def advance(self, now: float, changed: bool) -> None:
        """Update the time, and with ``changed`` the lines; does nothing while the pane is hidden."""
        if not self._is_composed or self.app.screen is not self.screen:
            return
        if not self.run_id and (first := self._book.last_of()) is not None:  # opened before there was any
            self.show_run(first.run_id)
        self._lay_out()
        self._read_on()

    @property
    def _live(self) -> bool:
        run = self._feed.feed.run(self.run_id)
        return run is not None and run.running

    def _family(self) -> dict[str, FeedRun]:
        run = self._feed.feed.run(self.run_id)
        return {each.id: each for each in run.family()} if run is not None else {}

    def _lay_out(self, force: bool = False) -> None:
        """Rebuild the lines where anything changed."""
        run = self._feed.feed.run(self.run_id)
        state = (
            self.run_id,
            self._book.version,
            run.tree_version if run is not None else 0,
            self._wanted,
            self._reader.problem,
        )
        now = self._feed.now
        if state == self._state and not force:
            self.view.tick(now)
            if self.view.selected is None:  # a running run's duration changes
                self._show()
            return
        self._state = state
        rows = self._outline.of(self.run_id, run, self._wanted) if self.run_id else []
        self.view.take(rows, self._family(), now, self._hint())
        self._show_details()
        self.refresh_bindings()

    def _hint(self) -> str:
        if self._reader.problem:
            return f"{self._reader.problem}\n\nr reads again."
        if self._wanted and self.messages is not None:
            if self._wanted.refused and not self._wanted.words:
                return "Every message was delivered.\no shows them."
            return NOTHING_MATCHES
        if self._reader.busy:
            return f"reading{self._glyphs.ellipsis}"
        if not self.run_id:
            return EMPTY
        run = self._feed.feed.run(self.run_id)
        if run is not None and run.state == "error":
            return f"No message of it is kept. It failed: {run.fault}\n\n{UNFIT}"
        return "No message of it is kept: only those of the last runs are."

    def _show_details(self) -> None:
        """Update the title, and the details of the selected message."""
        self._say_caption()
        letter = self.view.selected
        size = len(letter.xml) if letter is not None else 0
        if self._resting is not None:
            self._resting.stop()
            self._resting = None
        if size < _LONG:
            self._show()
        else:
            self._resting = self.set_timer(REST, self._show)

    def _show(self) -> None:
        self._resting = None
        if not self._is_composed:
            return
        row, letter = self.view.row, self.view.selected
        run = self._family().get(row.run) if row is not None else None
        head = run_lines(run, self._feed.now) if run is not None and letter is None else []
        shown = (row, letter, self._reader.problem, self._live, run.state if run is not None else "", head)
        if shown == self._shown:
            return
        before, self._shown = self._shown, shown
        same = isinstance(before, tuple) and before[0] == row
        lines = head if letter is None else self._lines(letter)
        self.query_one("#message-text", FoldedLines).put(lines, top=not same)

    def _lines(self, letter: Envelope) -> list[Line]:
        reading = self._reader.problem or (f"reading{self._glyphs.ellipsis}" if self._reader.busy else "")
        return lines_of(letter, self.view.running(letter.run_id), reading, self._glyphs.outbound)

    def _say_caption(self) -> None:
        messages = self.messages
        words = []
        if messages is not None:
            shown = sum(row.number != HEAD for row in self.view.rows) if self._wanted else 0
            total = count(len(messages), "message")
            words.append(f"{shown} of {total}" if self._wanted else total)
            words += [f"{messages.refused} not delivered"] if messages.refused else []
            words += [f"{messages.left_out} left out"] if messages.left_out else []
        if self._wanted.refused:
            words.append("refused only")
        self.caption = joined(words, self._glyphs)

    def _say(self, problem: str) -> None:
        self.query_one(ActionStatus).report(problem, Tone.ERROR)

    def selection_changed(self) -> None:
        self._show_details()
        row = self.view.row
        if row is None or row.number == HEAD or self._reader.busy or self._reader.problem:
            return
        messages = self._book.run(row.run)
        if messages is not None and not messages.is_whole(row.number):
            self._read(self._reader.one(row.run, row.number))

    # Reading

    def action_read(self) -> None:
        """Ask the fleet for all messages."""
        self._reader.forget_read()
        self._say("")
        self._read_on()

    def _read_on(self) -> None:
        """Read further messages that the user did not select."""
        now, running = self._feed.now, self._live
        if self._reader.due(self.run_id, running, now):
            runs = (self.run_id, *(each for each in self._family() if each != self.run_id))
            self._read(self._reader.follow(runs, running, now))

    def _read(self, work: Coroutine[Any, Any, None]) -> None:
        async def reading() -> None:
            await work
            if self._is_composed:
                self._say(f"{self._reader.problem}. r tries again." if self._reader.problem else "")
                self._lay_out(force=True)

        self.run_worker(reading(), group="messages", exit_on_error=False, description="read messages")

    # Keys

    def filter_by(self, words: tuple[str, ...]) -> None:
        self._wanted = MessageQuery(self._wanted.refused, words)
        self._lay_out()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer only actions that the selected line allows."""
        if not self._is_composed:
            return True
        letter = self.view.selected
        if action in ("copy", "copy_xml"):
            return letter is not None
        if action == "replay":
            return letter is not None and letter.route in AGAIN and bool(letter.to)
        if action in ("send", "source"):
            return letter is not None or self.messages is not None
        if action == "choose":
            return self.view.row is not None
        return super().check_action(action, parameters)

    def choose(self) -> None:
        """Open the message, or the run in the feed."""
        row, letter = self.view.row, self.view.selected
        if letter is not None:
            self.post_message(self.OpenEnvelope(letter))
        elif row is not None:
            self.post_message(self.ShowMessagesElsewhere(row.run, "feed"))

    def full_text(self) -> tuple[str, str] | None:
        letter = self.view.selected
        if letter is None:
            return None
        return f"message {letter.number}", as_text(letter, self.view.running(letter.run_id))

    async def action_copy_xml(self) -> None:
        """Copy the envelope."""
        if (letter := self.view.selected) is not None:
            self.notify(await copy(self.app, letter.xml), markup=False)

    def action_refused(self) -> None:
        """Show only undelivered messages, or all again."""
        self._wanted = MessageQuery(not self._wanted.refused, self._wanted.words)
        self._lay_out()

    def _handler(self) -> str:
        # The receiver of the selected message; if it is none of the fleet, the sender.
        letter, messages = self.view.selected, self.messages
        if letter is None:
            return messages.agent if messages is not None else ""
        return letter.sender if letter.route == "result" or letter.to.startswith("system.") else letter.to

    def action_send(self) -> None:
        """Write a message to the handler."""
        if (agent := self._handler()) and (opener := opener_of(self.app)) is not None:
            opener.open_send(agent)

    def action_source(self) -> None:
        """Open the handler's code."""
        if agent := self._handler():
            open_source(self, agent)

    def action_replay(self) -> None:
        """Send the message again."""
        if (letter := self.view.selected) is not None:
            self.post_message(self.ReplayMessage(letter))

    def action_elsewhere(self, pane: str) -> None:
        """Show the run in another pane."""
        row = self.view.row
        self.post_message(self.ShowMessagesElsewhere(row.run if row is not None else self.run_id, pane))

    def action_step(self, by: int) -> None:
        """Show the messages of the run before, or of the next."""
        runs = [run.run_id for run in self._book.runs]
        place = runs.index(self.run_id) + by if self.run_id in runs else len(runs) - 1
        if 0 <= place < len(runs) and runs[place] != self.run_id:
            self.show_run(runs[place])
        else:
            self.notify(f"There is no {'later' if by > 0 else 'earlier'} run with messages.", markup=False)

    def show_run(self, run_id: str) -> None:
        """Show another run."""
        if (messages := self.messages) is not None:
            messages.lighten()
        self.run_id = run_id
        self._say("")
        self.view.follow = self._live
        self.view.cursor = 0
        self._lay_out(force=True)
        self.post_message(self.RunOfMessagesShown(run_id))
        self.action_read()

    class RunOfMessagesShown(Message):
        """Another run is shown."""

        def __init__(self, run_id: str) -> None:
            super().__init__()
            self.run_id = run_id

    @on(FilterLine.FilterLeft)
    def _left(self, event: FilterLine.FilterLeft) -> None:
        event.stop()
        self.view.focus()
