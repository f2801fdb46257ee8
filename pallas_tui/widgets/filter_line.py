"""The line in which a list is filtered."""

from typing import Any, ClassVar, Final

from textual import events
from textual.app import App
from textual.binding import BindingType
from textual.message import Message
from textual.widgets import Input

from ..actions import bindings

NOTHING_MATCHES: Final = "Nothing matches.\nEscape clears the filter."
"""The text of a list in which the filter found nothing."""


class FilterLine(Input):
    """Appears on ``/`` below a list, filters as one types, and stays while it filters.

    Enter goes back to the list, escape also takes the filter away.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings("filter")

    class Filtered(Message):
        """The words changed: ``words`` are lower case, empty when there is no filter."""

        def __init__(self, line: "FilterLine") -> None:
            super().__init__()
            self.words = line.words

    class FilterLeft(Message):
        """The focus should go back to the list."""

    def __init__(self, hint: str, *, id: str | None = None) -> None:  # noqa: A002 - Textual's word
        super().__init__(placeholder=f"filter: {hint}", compact=True, select_on_focus=False, id=id)
        self.display = False

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the filter."""
        return tuple(self.value.lower().split())

    def open(self) -> None:
        """Show the line and type into it."""
        self.display = True
        # At once: text typed right after the key must not reach the list as keys.
        self.screen.set_focus(self)

    def clear_filter(self) -> None:
        """Take the filter away."""
        self.value = ""
        self.display = False

    def action_close(self) -> None:
        """Take the filter away and go back."""
        self.clear_filter()
        self.post_message(self.FilterLeft())

    def action_keep(self) -> None:
        """Go back, the filter stays."""
        self.display = bool(self.words)
        self.post_message(self.FilterLeft())

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while typing."""
        event.stop()
        self.post_message(self.Filtered(self))


def late_letter(app: App[Any], event: events.Key) -> None:
    """What an application does with a key that no one took: a letter belongs to the line that has the focus.

    Letters typed at once after the key that opens a line are on their way to the list before the line has
    the focus. A line takes every letter, so one that comes by while a line has the focus was typed for it.
    """
    if event.is_printable and isinstance(app.focused, Input):
        event.prevent_default().stop()
        app.focused.post_message(events.Key(event.key, event.character))
