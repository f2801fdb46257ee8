"""The lines of the details next to a list: facts with their labels, cut to the height of the pane."""

from typing import Final

from ..text import Line, count, wrapped
from .tones import DIM, KEY

_LABEL_WIDTH: Final = 8


def fact(label: str, text: str, width: int) -> list[Line]:
    """Return a label and its text, in as many lines as needed."""
    first, *rest = wrapped(text, width - _LABEL_WIDTH)
    lines: list[Line] = [((f"{label:<{_LABEL_WIDTH}}", DIM), (first, ""))]
    return lines + [((" " * _LABEL_WIDTH, ""), (line, "")) for line in rest]


def ended(lines: list[Line], height: int) -> list[Line]:
    """The lines that fit, the last one saying how many more there are and which key shows them."""
    if len(lines) > height > 0:
        lines[height - 1 :] = [(("i", KEY), (f" {count(len(lines) - height + 1, 'more line')}", DIM))]
    return lines
