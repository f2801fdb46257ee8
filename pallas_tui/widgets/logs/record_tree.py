"""A record as a tree of lines: folded and unfolded, every value in full, a traceback in colours."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from rich.cells import cell_len
from textual.highlight import highlight

from pallas.safe_text import one_line, sanitize

from ...text import Glyphs, Line, Part, wrapped, wrapped_line
from ..tones import DIM
from .filter_terms import text_of

MAX_LINES: Final = 20_000
MAX_DEPTH: Final = 50
_HIGHLIGHTED: Final = 64 * 1024
_INDENT: Final = 2
_LEAST: Final = 12
_STYLES: Final = {str: "$text-success", bool: "$text-accent", int: "$text-warning", float: "$text-warning"}

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class TreeLine:
    """One line of the tree; ``part`` counts the lines of a value with several lines."""

    path: Path
    part: int
    line: Line
    foldable: bool = False


def tree_lines(
    record: dict[str, Any], folded: Collection[Path], width: int, glyphs: Glyphs
) -> list[TreeLine]:
    """Return the whole record for that width, at most ``MAX_LINES`` of it."""
    lines: list[TreeLine] = []
    for key, value in record.items():
        _add(lines, (key,), one_line(str(key), 200), value, folded, width, glyphs)
    if len(lines) > MAX_LINES:
        left = len(lines) - MAX_LINES + 1
        lines[MAX_LINES - 1 :] = [
            TreeLine((), 0, ((f"({left:,} more lines; copy the record to have all)", DIM),))
        ]
    return lines


def text_lines(text: str, width: int) -> list[TreeLine]:
    """Return a line that is not JSON, for that width."""
    pieces = wrapped(text, width)
    return [TreeLine((), part, ((piece, ""),)) for part, piece in enumerate(pieces[:MAX_LINES])]


def value_at(record: Any, path: Path) -> Any:
    """Return the value of a line of the tree; raises LookupError or TypeError where there is none."""
    for step in path:
        record = record[step]
    return record


def _add(
    lines: list[TreeLine],
    path: Path,
    key: str,
    value: Any,
    folded: Collection[Path],
    width: int,
    glyphs: Glyphs,
) -> None:
    if len(lines) > MAX_LINES:
        return
    lead = " " * min(_INDENT * (len(path) - 1), max(0, width // 2))
    many = isinstance(value, dict | list) and bool(value)
    block = isinstance(value, str) and "\n" in value.strip()
    closed = path in folded
    mark = glyphs.closed if closed else glyphs.open if many or block else " "
    head: list[Part] = [(f"{lead}{mark} ", DIM), (f"{key}: ", "bold")]
    if many or block:
        amount = len(value) if many else value.count("\n") + 1
        unit = "line" if block else "key" if isinstance(value, dict) else "item"
        note = f"{amount} {unit}{'s' * (amount != 1)}"
        lines.append(TreeLine(path, 0, (*head, (note, DIM)), foldable=True))
        if closed:
            return
        if block:
            lines += _block(path, value, len(lead) + _INDENT, width)
        elif len(path) >= MAX_DEPTH:
            lines += _scalar(path, [(" " * len(lead), "")], text_of(value), "", width, 1)
        else:
            for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
                _add(lines, (*path, name), one_line(str(name), 200), inner, folded, width, glyphs)
        return
    style = _STYLES.get(type(value), DIM)
    lines += _scalar(path, head, sanitize(text_of(value)), style, width, 0)


def _scalar(path: Path, head: list[Part], text: str, style: str, width: int, first: int) -> list[TreeLine]:
    indent = sum(cell_len(part) for part, _ in head)
    if width - indent < _LEAST and len(head) > 1:  # a long key, or deeply nested: the value is below it
        below = min(_INDENT * len(path), width // 2)
        start = [TreeLine(path, first, tuple(head))]
        return start + _scalar(path, [(" " * below, "")], text, style, width, first + 1)
    pieces = wrapped(text.replace("\n", " "), width - indent)
    lines = [TreeLine(path, first, (*head, (pieces[0], style)))]
    for part, piece in enumerate(pieces[1:], first + 1):
        lines.append(TreeLine(path, part, ((" " * indent, ""), (piece, style))))
    return lines


def _block(path: Path, text: str, indent: int, width: int) -> list[TreeLine]:
    """Return a text with several lines."""
    indent = min(indent, width // 2)
    room = max(1, width - indent)
    lines: list[TreeLine] = []
    for parts in _coloured(sanitize(text.strip("\n"))):
        for piece in wrapped_line(parts, room):
            lines.append(TreeLine(path, len(lines) + 1, ((" " * indent, ""), *piece)))
    return lines


def _coloured(text: str) -> list[Line]:
    """Return the lines of a text, with the colours of a traceback where it is one."""
    if 'File "' not in text or len(text) > _HIGHLIGHTED:
        return [((line, ""),) for line in text.split("\n")]
    lines: list[Line] = []
    for content in highlight(text, language="pytb").split("\n", allow_blank=True):
        plain, parts, at = content.plain, list[Part](), 0
        for span in sorted(content.spans, key=lambda span: span.start):
            if span.start >= at and span.style != "$text":  # that one is for the whole
                parts += [(plain[at : span.start], ""), (plain[span.start : span.end], str(span.style))]
                at = span.end
        parts.append((plain[at:], ""))
        lines.append(tuple(part for part in parts if part[0]) or (("", ""),))
    return lines
