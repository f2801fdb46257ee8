"""The line in which a registry's URL is typed."""

from typing import ClassVar

from textual.binding import BindingType
from textual.message import Message
from textual.widgets import Input

from ...actions import bindings
from ...instances.registry_address import MAX_URL


class UrlLine(Input):
    """Hidden until ``open``; enter sends what was typed, and it stays until that went well."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("url_line")

    class UrlEntered(Message):
        """A URL was typed."""

        def __init__(self, url: str) -> None:
            super().__init__()
            self.url = url

    class UrlLineLeft(Message):
        """The focus should go back to the list."""

    def __init__(self) -> None:
        super().__init__(
            placeholder="URL of a registry, for example http://127.0.0.1:24200",
            compact=True,
            select_on_focus=False,
            max_length=MAX_URL + 1,
            id="instance-url",
        )
        self.display = False

    def open(self) -> None:
        """Show the line and type into it."""
        self.display = True
        # At once: what is typed right after the key must not reach the list as keys.
        self.screen.set_focus(self)

    def close(self) -> None:
        """Take the line away, empty for the next time."""
        self.value = ""
        self.display = False

    def action_leave(self) -> None:
        """Go back; what was typed is gone."""
        self.close()
        self.post_message(self.UrlLineLeft())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Hand over what was typed."""
        event.stop()
        self.post_message(self.UrlEntered(self.value))
