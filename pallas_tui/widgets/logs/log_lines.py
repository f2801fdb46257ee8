"""The lines in which the log is filtered and searched, and where they say what is wrong."""

from rich.cells import cell_len
from rich.highlighter import Highlighter
from rich.text import Text
from textual.content import Content
from textual.widget import Widget

from ..filter_line import FilterLine
from .filter_terms import FilterMistake


class _Mark(Highlighter):
    """Underlines what is wrong where it stands."""

    def __init__(self) -> None:
        self.mistake: FilterMistake | None = None

    def highlight(self, text: Text) -> None:
        if self.mistake is not None:
            text.stylize("bold reverse", self.mistake.at, max(self.mistake.end, self.mistake.at + 1))


class AskingLine(FilterLine):
    """A line for a filter or a regex that marks what is wrong in it."""

    def __init__(self, hint: str, *, id: str) -> None:  # noqa: A002 - Textual's word
        super().__init__(hint, id=id)
        self._mark = _Mark()
        self.highlighter = self._mark

    @property
    def mistake(self) -> FilterMistake | None:
        """What is wrong in it."""
        return self._mark.mistake

    def tell(self, mistake: FilterMistake | None) -> None:
        """Mark a mistake, or none any more."""
        if mistake is not self._mark.mistake:
            self._mark.mistake = mistake
            self.refresh()

    def column(self, at: int) -> int:
        """In which cell of the line that character stands now."""
        return self.gutter.left + cell_len(self.value[:at]) - self.scroll_offset.x

    def set_value(self, value: str) -> None:
        """Show another text in the line, as if it had been typed and kept."""
        self.value = value
        self.cursor_position = len(value)
        self.display = bool(value)


class QueryLine(AskingLine):
    """The line of the filter."""


class FindLine(AskingLine):
    """The line of the regex."""


class MistakeLine(Widget):
    """Below the lines: what is wrong, under the place where it is; not there while nothing is."""

    def __init__(self) -> None:
        super().__init__(id="log-mistake")
        self.display = False
        self._text = ""
        self._at = 0

    def tell(self, line: AskingLine | None) -> None:
        """Say what is wrong in a line; None when nothing is."""
        mistake = line.mistake if line is not None else None
        self.display = mistake is not None
        if line is not None and mistake is not None:
            self._text, self._at = str(mistake), line.column(mistake.at)
            self.refresh()

    @property
    def text(self) -> str:
        """What it says, empty when it is not there."""
        return self._text if self.display else ""

    def render(self) -> Content:
        """The words under the place, or as far on the right as they fit."""
        width = self.content_size.width
        words = f"^ {self._text}"
        lead = max(0, min(self._at, width - cell_len(words)))
        return Content(" " * lead + (words if lead == self._at else self._text)[:width])
