"""What a server lists now next to what is locked, and the question whether that is accepted."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from pallas.model import ServerDetail

from ...actions import bindings
from ..folded_lines import FoldedLines
from ..status_line import StatusLine
from .lock_lines import lock_lines


class LockScreen(ModalScreen[bool]):
    """Shows the changes of one server, word by word; ends with whether they are accepted."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("lock")

    def __init__(self, server: ServerDetail) -> None:
        super().__init__()
        self._server = server

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet", id="lock"):
            title = f" Accept what {self._server.server} lists now?"
            yield Static(Content(title), classes="title -focused", markup=False)
            yield FoldedLines(lock_lines(self._server), id="lock-lines")
            yield StatusLine()

    def on_mount(self) -> None:
        """Read first."""
        self.screen.set_focus(self.query_one(FoldedLines))

    def action_accept(self) -> None:
        """Yes."""
        self.dismiss(True)

    def action_leave(self) -> None:
        """No."""
        self.dismiss(False)
