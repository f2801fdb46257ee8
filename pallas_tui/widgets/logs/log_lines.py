"""The lines for the filter and the search of the log, and how they show mistakes."""

from rich.cells import cell_len
from rich.highlighter import Highlighter
from rich.text import Text
from textual.content import Content
from textual.widget import Widget

from ..filter_line import FilterLine
from .filter_terms import FilterMistake


class _Mark(Highlighter):
    """Underlines the mistake in the text."""

    def __init__(self) -> None:
        self.mistake: FilterMistake | None = None

    def highlight(self, text: Text) -> None:
        if self.mistake is not None:
            text.stylize("bold reverse", self.mistake.at, max(self.mistake.end, self.mistake.at + 1))


class AskingLine(FilterLine):
    """A line for a filter or a regex that marks mistakes."""

    def __init__(self, hint: str, *, id: str) -> None:  # noqa: A002 - Textual's word
        super().__init__(hint, id=id)
        self._mark = _Mark()
        self.highlighter = self._mark

    @property
    def mistake(self) -> FilterMistake | None:
        """The mistake in it."""
        return self._mark.mistake

    def tell(self, mistake: FilterMistake | None) -> None:
        """Mark a mistake, or remove the mark."""
        if mistake is not self._mark.mistake:
            self._mark.mistake = mistake
            self.refresh()

    def column(self, at: int) -> int:
        """Return the cell of the line that has that character now."""
        return self.gutter.left + cell_len(self.value[:at]) - self.scroll_offset.x

    def set_value(self, value: str) -> None:
        """Set the text of the line, as if it had been typed and kept."""
        self.value = value
        self.cursor_position = len(value)
        self.display = bool(value)


class QueryLine(AskingLine):
    """The line of the filter."""


class RegexLine(AskingLine):
    """The line of the regex."""


class MistakeLine(Widget):
    """Below the lines: the mistake, under its place; hidden while there is none."""

    def __init__(self) -> None:
        super().__init__(id="log-mistake")
        self.display = False
        self._text = ""
        self._at = 0

    def tell(self, line: AskingLine | None) -> None:
        """Show the mistake of a line; None when there is none."""
        mistake = line.mistake if line is not None else None
        self.display = mistake is not None
        if line is not None and mistake is not None:
            self._text, self._at = str(mistake), line.column(mistake.at)
            self.refresh()

    @property
    def text(self) -> str:
        """Its text, empty while it is hidden."""
        return self._text if self.display else ""

    def render(self) -> Content:
        """Render the text under the place, or as far on the right as it fits."""
        width = self.content_size.width
        words = f"^ {self._text}"
        lead = max(0, min(self._at, width - cell_len(words)))
        return Content(" " * lead + (words if lead == self._at else self._text)[:width])
