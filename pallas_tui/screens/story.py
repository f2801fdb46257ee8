"""One text, in full: why an agent failed, what a run did."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from ..clipboard import copy
from ..widgets.status import StatusLine


class StoryScreen(ModalScreen[None]):
    """A text to read, scroll and copy; it stays as it was when it was opened."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "back"),
        Binding("y", "copy", "copy"),
        Binding("down,j", "scroll(1)", "down", show=False),
        Binding("up", "scroll(-1)", "up", show=False),
    ]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title = title
        self._text = text

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(f" {self._title}", classes="title -focused", markup=False)
            with VerticalScroll():
                yield Static(self._text, markup=False)
            yield StatusLine()

    def on_mount(self) -> None:
        """Arrow keys and page keys scroll."""
        self.query_one(VerticalScroll).focus()

    async def action_copy(self) -> None:
        """Copy the whole text."""
        self.notify(await copy(self.app, self._text))

    def action_scroll(self, lines: int) -> None:
        """Scroll by lines."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)
