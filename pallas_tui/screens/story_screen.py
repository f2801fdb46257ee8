"""One text, in full: why an agent failed, what a run did."""

from collections.abc import Iterable

from textual.widget import Widget
from textual.widgets import Static

from .sheet_screen import Sheet


class StoryScreen(Sheet):
    """A text to read, scroll and copy; it stays as it was when it was opened."""

    def __init__(self, title: str, text: str) -> None:
        super().__init__(title)
        self._text = text

    def body(self) -> Iterable[Widget]:
        yield Static(self._text, markup=False)

    def plain(self) -> str:
        return self._text
