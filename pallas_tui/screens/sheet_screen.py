"""Screens that open above the main one and are read: a title, a text that scrolls, keys.

``Sheet`` is their base, ``TextScreen`` shows one text: why an agent failed, what a run did.
"""

from collections.abc import Iterable
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Static

from ..actions import bindings
from ..clipboard import copy
from ..widgets.status_line import StatusLine

# In a small terminal a sheet has all of it.
CRAMPED: Final = [(0, "-cramped"), (70, "-roomy")]
LOW: Final = [(0, "-low"), (22, "-high")]


class Sheet(ModalScreen[None]):
    """Something to read. Arrow keys, page keys and vi's scroll; escape closes; ``y`` copies ``plain``."""

    HORIZONTAL_BREAKPOINTS = CRAMPED
    VERTICAL_BREAKPOINTS = LOW
    BINDINGS: ClassVar[list[BindingType]] = bindings("sheet", "vim")

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(f" {self._title}", classes="title -focused", markup=False)
            with VerticalScroll():
                yield from self.body()
            yield StatusLine()

    def body(self) -> Iterable[Widget]:
        """Yield the widgets to read."""
        return ()

    def plain(self) -> str:
        """Return the text to copy; empty if there is none."""
        return ""

    def on_mount(self) -> None:
        """The keys go to the text."""
        self.query_one(VerticalScroll).focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what there is can be copied."""
        return bool(self.plain()) if action == "copy" else True

    async def action_copy(self) -> None:
        """Copy all of it."""
        self.notify(await copy(self.app, self.plain()))


class TextScreen(Sheet):
    """A text to read, scroll and copy; it stays as it was when it was opened."""

    def __init__(self, title: str, text: str) -> None:
        super().__init__(title)
        self._text = text

    def body(self) -> Iterable[Widget]:
        yield Static(self._text, markup=False)

    def plain(self) -> str:
        return self._text
