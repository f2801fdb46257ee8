"""The line in which a thread gets another title."""

from typing import ClassVar

from textual.binding import BindingType
from textual.message import Message
from textual.widgets import Input

from ...actions import bindings

MAX_TITLE = 200


class TitleLine(Input):
    """Hidden until ``open``; enter gives what was typed, escape leaves the title as it is."""

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
        # At once: what is typed right after the key must not reach the list as keys.
        self.screen.set_focus(self)

    def action_leave(self) -> None:
        """Nothing is wanted after all."""
        self._close()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Hand over what was typed."""
        event.stop()
        self.post_message(self.TitleEntered(self._thread, self.value.strip()))
        self._close()

    def _close(self) -> None:
        self.display = False
        self.post_message(self.TitleLineLeft())
