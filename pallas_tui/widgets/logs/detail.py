"""One record of the log in full."""

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.highlight import highlight
from textual.screen import ModalScreen
from textual.widgets import Static

from ...clipboard import copy
from .record import full, title_of

Step = Callable[[int], tuple[bytes, int] | None]
"""Gives the line so many rows further, and its bytes in all; None where there is none."""


class RecordScreen(ModalScreen[None]):
    """A record as JSON on many lines, its traceback as text; n and p go to the next and the previous one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", "Back"),
        Binding("y", "copy", "Copy"),
        Binding("n", "step(1)", "Next"),
        Binding("p", "step(-1)", "Previous"),
        Binding("down,j", "scroll(1)", "Down", show=False),
        Binding("up,k", "scroll(-1)", "Up", show=False),
    ]

    def __init__(self, line: bytes, whole: int, step: Step) -> None:
        super().__init__()
        self._line, self._whole, self._step = line, whole, step
        self._text = ""

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet", id="log-record") as sheet:
            sheet.border_subtitle = "y copies, n next, p previous, escape leaves"
            with VerticalScroll():
                yield Static(id="log-record-json", markup=False)
                yield Static(id="log-record-text", markup=False)

    def on_mount(self) -> None:
        """Arrow keys and page keys scroll."""
        self.query_one(VerticalScroll).focus()
        self._show()

    def _show(self) -> None:
        data, text = full(self._line, self._whole)
        self._text = "\n\n".join(part for part in (data, text) if part)
        sheet = self.query_one("#log-record", Vertical)
        sheet.border_title = Content(title_of(self._line)).markup
        json_part, text_part = (
            self.query_one("#log-record-json", Static),
            self.query_one("#log-record-text", Static),
        )
        json_part.update(highlight(data, language="json") if data else "")
        json_part.display = bool(data)
        text_part.update(text)
        text_part.display = bool(text)
        self.query_one(VerticalScroll).scroll_home(animate=False)

    def action_step(self, by: int) -> None:
        """Show the next or the previous record of those that are listed."""
        if (found := self._step(by)) is not None:
            self._line, self._whole = found
            self._show()

    async def action_copy(self) -> None:
        """Copy the whole record."""
        self.notify(await copy(self.app, self._text), markup=False)

    def action_scroll(self, lines: int) -> None:
        """Scroll by lines."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)
