"""The pane shown instead of the chat when the fleet could not start."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from pallas_tui.placeholder_fleet import outlives

from ..actions import bindings
from ..clipboard import copy
from ..state import Tone
from ..text import Glyphs, count
from .tones import DIM, KEY, STYLES


class Failure(VerticalScroll):
    """Every mistake in full, and what to do about it."""

    HELP = """\
The fleet could not start. Each line names the file and line of a mistake, what is wrong, and what is allowed.
Fix them in your editor, save, and try again here; there is no need to leave the workbench.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("failure")

    class Retry(Message):
        """The user wants the fleet started again."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="failure")
        self.display = False
        self._glyphs = glyphs
        self._error = ""

    def compose(self) -> ComposeResult:
        yield Static(id="failure-text", markup=False)

    def tell(self, error: str) -> None:
        """Show the mistakes, one a line; empty takes the whole thing away."""
        if error == self._error:
            return
        self._error = error
        self.display = bool(error)
        lines = [line for line in error.splitlines() if line.strip()]
        elsewhere = outlives(getattr(self.app, "fleet", None))
        what = "The fleet could not be attached" if elsewhere else "The fleet could not start"
        cure = "Fix that, then press " if elsewhere else "Fix the files in your editor, save, then press "
        text = Content.assemble(
            (f"{self._glyphs.error} {what}", STYLES[Tone.ERROR]),
            (f"   {count(len(lines), 'mistake')}\n\n" if len(lines) > 1 else "\n\n", DIM),
            "\n\n".join(lines),
            (f"\n\n{cure}", DIM),
            ("r", KEY),
            (" to try again. ", DIM),
            ("y", KEY),
            (" copies this, ", DIM),
            ("4", KEY),
            (" shows the log, ", DIM),
            ("^q", KEY),
            (" quits.", DIM),
        )
        self.query_one(Static).update(text)

    def action_retry(self) -> None:
        """Start the fleet again."""
        self.post_message(self.Retry())

    async def action_copy(self) -> None:
        """Copy the mistakes."""
        self.notify(await copy(self.app, self._error))
