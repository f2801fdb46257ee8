"""The reasoning of a model above its answer, folded to one line."""

from typing import Final

from textual import events
from textual.content import Content
from textual.widgets import Static

from pallas.safe_text import sanitize

from ...text import Glyphs, count
from ..tones import DIM

SHOWN: Final = 20_000
"""Characters that are shown, the newest ones."""


class ReasoningView(Static):
    """One line until it is unfolded, also while the reasoning goes on."""

    def __init__(self, text: str, glyphs: Glyphs) -> None:
        super().__init__(markup=False, classes="chat-reasoning")
        self._glyphs = glyphs
        self._text = ""
        self._open = False
        self.show(text)

    def show(self, text: str) -> None:
        """Show this reasoning, of which an earlier part may already be shown."""
        if text != self._text:
            self._text = text
            self._draw()

    def toggle(self) -> None:
        """Unfold or fold it."""
        self._open = not self._open
        self._draw()

    def _draw(self) -> None:
        mark = self._glyphs.open if self._open else self._glyphs.closed
        head = Content.assemble(f"{mark} reasoning", (f"  {count(len(self._text.split()), 'word')}", DIM))
        if not self._open:
            self.update(head)
            return
        text = self._text.strip("\n")
        shown = text if len(text) <= SHOWN else self._glyphs.ellipsis + text[-SHOWN:]
        self.update(Content("\n").join([head, Content(sanitize(shown)).stylize("dim italic")]))

    def on_click(self, event: events.Click) -> None:
        """Unfold or fold it."""
        event.stop()
        self.toggle()
