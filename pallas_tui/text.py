"""Words and numbers as they stand on the screen: steady widths, local times, units, and the shapes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from time import localtime, strftime
from typing import Final

from rich.cells import cell_len, chop_cells, set_cell_size

from pallas.model import Fault
from pallas.model.time_text import duration as duration
from pallas.safe_text import one_line

Part = tuple[str, str]
"""Some text and its style (theme variables; empty for the plain one)."""
Line = tuple[Part, ...]
"""One line of the screen: hashable, so that an unchanged one need not be painted again."""

DURATION_WIDTH: Final = 9
"""Cells that any ``duration`` fits in."""
_LEAST: Final = 8
"""Cells that a line of wrapped text has at least."""
READABLE: Final = 100
"""Cells of a line of text to read; the style sheet of the chat has the same number."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """Every character outside ASCII that the shell draws; each is one cell wide."""

    ok: str = "●"
    degraded: str = "◐"
    error: str = "✖"
    starting: str = "◌"
    reloading: str = "↻"
    stopped: str = "■"
    backoff: str = "◷"
    crash_loop: str = "▲"
    rolled_back: str = "↺"
    outdated: str = "≠"
    running: str = "▶"
    open: str = "▾"
    closed: str = "▸"
    tee: str = "├"
    corner: str = "└"
    pipe: str = "│"
    dot: str = "·"
    ellipsis: str = "…"
    focus: str = "▌"
    bar: str = "█"
    bar_left: str = "▌"
    bar_right: str = "▐"
    inbound: str = "←"
    outbound: str = "→"


UNICODE: Final = Glyphs()
ASCII: Final = Glyphs(
    ok="+",
    degraded="~",
    error="x",
    starting=".",
    reloading="@",
    stopped="-",
    backoff="%",
    crash_loop="!",
    rolled_back="&",
    outdated="#",
    running=">",
    open="v",
    closed=">",
    tee="|",
    corner="`",
    pipe="|",
    dot="-",
    ellipsis="~",
    focus=">",
    bar="=",
    bar_left="=",
    bar_right="=",
    inbound="<",
    outbound=">",
)
assert all(
    cell_len(getattr(glyphs, field.name)) == 1 for glyphs in (UNICODE, ASCII) for field in fields(Glyphs)
)


def clock(at: float) -> str:
    """The local time of day, ``14:02:11``."""
    return strftime("%H:%M:%S", localtime(at))


def date(at: float, now: float) -> str:
    """The local date, ``28 Nov``; empty when it is today."""
    today = localtime(at)[:3] == localtime(now)[:3]
    return "" if today else strftime("%d %b", localtime(at))


def since(at: float, now: float) -> str:
    """The local time of day, with the date in front when it was not today; empty when ``at`` is not known."""
    if at <= 0:
        return ""
    today = localtime(at)[:3] == localtime(now)[:3]
    return strftime("%H:%M" if today else "%d %b %H:%M", localtime(at))


def moment(at: float, now: float) -> str:
    """The local time of day with its seconds, with the date in front when it was not today."""
    today = localtime(at)[:3] == localtime(now)[:3]
    return strftime("%H:%M:%S" if today else "%d %b %H:%M:%S", localtime(at))


def joined(parts: Iterable[str], glyphs: Glyphs) -> str:
    """``3 runs · 1 failed``: the parts that are not empty, with a dot between them."""
    return f" {glyphs.dot} ".join(part for part in parts if part)


def count(number: int, one: str, many: str = "") -> str:
    """``1 run``, ``3 runs``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def fit(text: str, width: int, glyphs: Glyphs = UNICODE) -> str:
    """``text`` in exactly ``width`` cells: padded on the right, or cut with an ellipsis."""
    if width <= 0:
        return ""
    text = text.replace("\n", " ").replace("\t", " ")
    if cell_len(text) > width:
        text = set_cell_size(text, width - 1) + glyphs.ellipsis
    return set_cell_size(text, width)


def right(text: str, width: int) -> str:
    """``text`` in at least ``width`` cells, against the right edge."""
    return " " * max(0, width - cell_len(text)) + text


def wrapped(text: str, width: int) -> list[str]:
    """``text`` in lines of at most ``width`` cells, broken between words; its own breaks stay."""
    lines: list[str] = []
    width = max(width, _LEAST)
    for line in text.split("\n"):
        line = line.expandtabs().rstrip()
        lines += [line[start:end] for start, end in row_spans(line, width, width)] or [""]
    return lines


def wrapped_line(line: Line, width: int, indent: int = 0) -> list[Line]:
    """``line`` in rows of at most ``width`` cells, broken as ``wrapped`` does; all but the first indented."""
    if width_of(line) <= width:
        return [line]
    indent = max(0, min(indent, width // 2))
    rows: list[Line] = []
    for start, end in row_spans("".join(text for text, _ in line), width, width - indent):
        row: list[Part] = [(" " * indent, "")] if rows and indent else []
        at = 0
        for text, style in line:
            if piece := text[max(0, start - at) : max(0, end - at)]:
                row.append((piece, style))
            at += len(text)
        rows.append(tuple(row))
    return rows or [()]


def row_spans(text: str, first: int, others: int) -> Iterator[tuple[int, int]]:
    """Where the rows of a line begin and end, with so many cells in the first row and in the others.

    A word is broken only if no row has room for it. Blanks at a break are left out.
    """
    at, room, taken = 0, first, first
    while at < len(text):
        end = after = _fitting(text, at, room, taken + 8)  # more seldom fits: it need not be measured
        taken = end - at
        if end < len(text):
            gap = end if text[end] == " " else text.rfind(" ", at, end)
            if gap >= at and (gap == end or not _is_long(text, gap + 1, others)):
                end, after = gap, _after_blanks(text, gap)
        if words := text[at:end].rstrip(" "):
            yield at, at + len(words)
            room = others
        at = after


def _fitting(text: str, at: int, room: int, most: int) -> int:
    """Where the characters end that fit into so many cells, one at least; first ``most`` are looked at."""
    while True:
        window = text[at : at + most]
        if window.isascii() and (len(window) >= room or at + most >= len(text)):
            return at + max(1, min(room, len(window)))
        piece = next(iter(chop_cells(window, room)), window)
        if len(piece) < len(window) or at + most >= len(text):
            return at + max(1, len(piece))
        most *= 2


def _is_long(text: str, at: int, room: int) -> bool:
    end = text.find(" ", at)
    return cell_len(text[at:] if end < 0 else text[at:end]) > room


def _after_blanks(text: str, at: int) -> int:
    while text[at : at + 1] == " ":
        at += 1
    return at


def width_of(line: Line) -> int:
    """Cells that a line takes."""
    return sum(cell_len(text) for text, _ in line)


def cropped(line: Line, width: int) -> Line:
    """Return ``line`` cut to ``width`` cells."""
    parts: list[Part] = []
    for text, style in line:
        parts.append((set_cell_size(text, min(width, cell_len(text))), style))
        width = max(0, width - cell_len(text))
    return tuple(parts)


def failure_text(error: Exception, seconds: float) -> str:
    """Why a question to a fleet, local or remote, got no answer in so many seconds."""
    if isinstance(error, TimeoutError):
        return f"no answer within {seconds:.0f} s"
    return error.message if isinstance(error, Fault) else f"{type(error).__name__}: {one_line(str(error))}"
