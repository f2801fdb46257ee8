"""The lines of the details next to a list: facts with their labels, cut to the height of the pane."""

from collections.abc import Iterable
from typing import Final

from textual.content import Content
from textual.widgets import Static

from ..state import Tone
from ..text import Glyphs, Line, count, wrapped
from .tones import DIM, KEY, STYLES

_LABEL_WIDTH: Final = 8


def fact(label: str, text: str, width: int) -> list[Line]:
    """Return a label and its text, in as many lines as needed."""
    first, *rest = wrapped(text, width - _LABEL_WIDTH)
    lines: list[Line] = [((f"{label:<{_LABEL_WIDTH}}", DIM), (first, ""))]
    return lines + [((" " * _LABEL_WIDTH, ""), (line, "")) for line in rest]


def ended(lines: list[Line], height: int, key: str = "i") -> list[Line]:
    """The lines that fit, the last one saying how many more there are and which key shows them."""
    if len(lines) > height > 0:
        lines[height - 1 :] = [((key, KEY), (f" {count(len(lines) - height + 1, 'more line')}", DIM))]
    return lines


class DetailLines(Static):
    """The details next to a list, in lines that the caller wrapped to the size of ``content_region``."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's word
        super().__init__(id=id, markup=False)
        self._lines: list[Line] = []

    def show_lines(self, lines: Iterable[Line]) -> None:
        """Show these lines, if they are not shown already."""
        if (new := list(lines)) != self._lines:
            self._lines = new
            self.update(Content("\n").join(Content.assemble(*line) for line in new), layout=False)


class ActionStatus(Static):
    """A line below a list: the action in progress, or why it failed. Hidden when there is neither."""

    def __init__(self, glyphs: Glyphs, *, id: str) -> None:  # noqa: A002 - Textual's word
        super().__init__(id=id, markup=False)
        self.display = False
        self._glyphs = glyphs

    def report(self, text: str, tone: Tone = Tone.STARTING) -> None:
        """Show the text with the mark of its tone; empty hides the line."""
        self.display = bool(text)
        self.update(
            Content.assemble((f"{getattr(self._glyphs, tone.value)} {text}", STYLES[tone])) if text else ""
        )
