"""The messages that wait for their turn, above the prompt."""

from typing import ClassVar, Final

from rich.cells import cell_len
from textual import events
from textual.binding import BindingType
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widget import Widget

from ...actions import bindings
from ...chat.chat_entry import ChatEntry
from ...chat.message_queue import MessageQueue
from ...pictures.images import size_text
from ...text import Glyphs, count, fit
from ..tones import DIM

ROWS: Final = 3
"""Messages that are shown at once."""


class QueuedMessages(Widget, can_focus=True):
    """One line for each message of ``queue``. Takes the focus only when the user goes there."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("queue")

    class EditAsked(Message):
        """The message should be changed."""

        def __init__(self, entry: ChatEntry) -> None:
            super().__init__()
            self.entry = entry

    class QueueLeft(Message):
        """The focus should return to the prompt."""

    def __init__(self, queue: MessageQueue, glyphs: Glyphs) -> None:
        super().__init__(classes="chat-queue")
        self._queue, self._glyphs = queue, glyphs
        self._cursor = 0
        self._painted: object = None
        self.display = self.can_focus = False

    def paint(self) -> None:
        """Show what is queued now."""
        messages = self._queue.messages
        self._cursor = max(0, min(self._cursor, len(messages) - 1))
        new = ([(one.text, one.attachments) for one in messages], self._queue.held)
        if new == self._painted:
            return
        self._painted = new
        if not messages and self.has_focus:
            self.post_message(self.QueueLeft())
        self.display = bool(messages)
        self.refresh(layout=True)

    def enter(self) -> bool:
        """Take the focus, at the newest message; return False when nothing is queued."""
        if not self._queue.messages:
            return False
        self._cursor = len(self._queue.messages) - 1
        self.can_focus = True
        self.screen.set_focus(self)
        self.refresh()
        return True

    def on_blur(self) -> None:
        """Take no focus any more when the user goes elsewhere; a change of windows does not count."""
        if self.app.app_focus and self.screen.focused is not self:
            self.can_focus = False

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return min(ROWS, len(self._queue.messages))

    @property
    def _first(self) -> int:
        """The index of the first message that is shown."""
        last = len(self._queue.messages) - ROWS
        return max(0, min(self._cursor - ROWS // 2, last)) if self.has_focus else 0

    def render(self) -> Content:
        messages, first = self._queue.messages, self._first
        lines = []
        for index in range(first, min(first + ROWS, len(messages))):
            note = self._note() if index == first else ""
            label = f"{index + 1:>2}  "
            room = max(0, self.size.width - len(label) - cell_len(note) - 2)
            text = fit(_summary(messages[index]), room, self._glyphs)
            style = "reverse" if self.has_focus and index == self._cursor else ""
            lines.append(Content.assemble((label, DIM), (text, style), (f"  {note}", DIM)))
        return Content("\n").join(lines)

    def _note(self) -> str:
        if self._queue.held:
            return "held: enter sends it"
        return f"{len(self._queue.messages)} queued: up changes"

    def action_move(self, by: int) -> None:
        """Select another message; below the last one is the prompt."""
        self._cursor = max(0, self._cursor + by)
        if self._cursor >= len(self._queue.messages):
            self.post_message(self.QueueLeft())
        self.refresh()

    def action_change(self) -> None:
        """Put the message back into the prompt."""
        if self._cursor < len(self._queue.messages):
            self.post_message(self.EditAsked(self._queue.messages[self._cursor]))

    def action_remove_message(self) -> None:
        """Do not send the message."""
        del self._queue.messages[self._cursor : self._cursor + 1]
        self._queue.held = self._queue.held and bool(self._queue.messages)
        self.paint()

    def on_click(self, event: events.Click) -> None:
        """Change the message that was clicked."""
        event.stop()
        self._cursor = self._first + event.y
        self.action_change()


def _summary(entry: ChatEntry) -> str:
    """Return the message in a line, with what is attached."""
    size = size_text(sum(one.size for one in entry.attachments))
    pictures = f"[{count(len(entry.attachments), 'image')} {size}]" if entry.attachments else ""
    return f"{entry.text[:400]} {pictures}".strip()
