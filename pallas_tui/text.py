"""Words and numbers as they stand on the screen: steady widths, local times, units, and the shapes."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from textwrap import wrap as wrap_words
from time import localtime, strftime
from typing import Final

from rich.cells import cell_len, set_cell_size

from pallas.model import Fault
from pallas.safe_text import one_line

Part = tuple[str, str]
"""Some text and its style (theme variables; empty for the plain one)."""
Line = tuple[Part, ...]
"""One line of the screen: hashable, so that an unchanged one need not be painted again."""

DURATION_WIDTH: Final = 9
"""Cells that any ``duration`` fits in."""
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


def duration(seconds: float, running: bool = False) -> str:
    """``40 ms``, ``3.1 s``, ``2:05 min``, ``1:02 h``; no milliseconds while ``running``: they flicker."""
    seconds = max(0.0, seconds)
    if seconds < 0.0995 and not running:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 100:
        return f"{minutes}:{rest:02} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02} h"


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
    """``text`` broken at words into lines of at most ``width`` characters; its own breaks stay."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        lines += wrap_words(paragraph, max(width, 8), break_on_hyphens=False) or [""]
    return lines


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
