"""Aligned columns, cut to the width of a terminal, or in full for a pipe."""

import shutil
import sys
import unicodedata
from collections.abc import Sequence
from typing import Final, TextIO

from pallas.safe_text import one_line

GAP: Final = 3
LEAST: Final = 8
"""The width below which no column is cut."""
_MAX_CELL: Final = 2_000


def width_of(stream: TextIO | None = None) -> int | None:
    """Return the columns of the output terminal, None when it is none: then nothing is cut."""
    stream = stream or sys.stdout
    return shutil.get_terminal_size().columns if stream.isatty() else None


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> str:
    """Return headers and rows in columns, without trailing spaces.

    If they do not fit into ``width``, the widest columns are cut first, with an ellipsis.
    """
    cells = [list(headers), *([one_line(cell, _MAX_CELL) for cell in row] for row in rows)]
    widths = [max(cells_in(row[column]) for row in cells) for column in range(len(headers))]
    if width is not None:
        _narrow(widths, width)
    lines = []
    for row in cells:
        shown = [_fit(cell, space) for cell, space in zip(row, widths, strict=True)]
        lines.append((" " * GAP).join(shown).rstrip())
    return "\n".join(lines)


def pairs(rows: Sequence[tuple[str, str]]) -> str:
    """Return ``label:  value`` lines with aligned values; multi-line values begin below their label."""
    space = max((cells_in(label) for label, _ in rows), default=0) + 1 + GAP
    lines: list[str] = []
    for label, value in rows:
        head = f"{label}:"
        if "\n" in value:
            lines += [head, *(f"  {line}".rstrip() for line in value.lstrip("\n").split("\n"))]
        else:
            lines.append((head + " " * (space - cells_in(head)) + value).rstrip())
    return "\n".join(lines)


def cells_in(text: str) -> int:
    """Return how many terminal columns a line takes."""
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for each in text
    )


def _narrow(widths: list[int], width: int) -> None:
    over = sum(widths) + GAP * (len(widths) - 1) - width
    while over > 0:
        widest = max(range(len(widths)), key=lambda column: widths[column])
        if widths[widest] <= LEAST:
            return
        widths[widest] -= 1
        over -= 1


def _fit(cell: str, space: int) -> str:
    taken = cells_in(cell)
    if taken <= space:
        return cell + " " * (space - taken)
    shortened = ""
    for each in cell:
        if cells_in(shortened) + cells_in(each) > space - 1:
            break
        shortened += each
    return shortened + "…" + " " * (space - 1 - cells_in(shortened))
