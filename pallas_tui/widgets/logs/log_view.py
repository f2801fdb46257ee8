"""The lines of the log as a list: read and parsed only where they are seen."""

from collections.abc import Hashable
from typing import ClassVar, Final

import regex
from rich.cells import cell_len
from textual.binding import BindingType
from textual.cache import LRUCache

from pallas.safe_text import one_line

from ...actions import bindings
from ...text import Glyphs, Line, Part, fit, wrapped
from ..tones import DIM
from .log_record import PARSE_LIMIT, ShownRecord, parse
from .log_source import LogSource
from .wrapping_view import WrappingView

# The level's word and the message; colour is never alone, the word says the same.
_STYLES: Final = {
    "DEBUG": (DIM, DIM),
    "INFO": ("", ""),
    "WARNING": ("$text-warning", ""),
    "ERROR": ("bold $text-error", "$text-error"),
    "CRITICAL": ("bold reverse $text-error", "bold $text-error"),
}
_LEVEL_WIDTH: Final = 5
_SHORT: Final = {"WARNING": "WARN", "CRITICAL": "CRIT"}
_SHIFT: Final = 20
_RECORDS: Final = 2_000
_LINES: Final = 2_000
_MATCH: Final = "bold reverse"
_MATCH_TIMEOUT: Final = 0.005
"""Seconds of a regex to mark its matches in a row; if it needs more, none is marked."""


class LogList(WrappingView):
    """One row a record, or several when wrapped. Follows at the end; elsewhere rows stay in place."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("log_list")

    def __init__(self, source: LogSource, glyphs: Glyphs) -> None:
        super().__init__(id="log-list")
        self.follow = True
        self._source = source
        self._rows = source.rows
        self._glyphs = glyphs
        self._shift = 0
        self._seen = 0
        self._held: int | None = None
        self._placing = False
        self._records: LRUCache[tuple[int, int, int], ShownRecord] = LRUCache(_RECORDS)
        self._made: LRUCache[tuple[object, ...], list[Line]] = LRUCache(_LINES)
        self._pattern: regex.Pattern[str] | None = None

    @property
    def selected(self) -> int | None:
        """The number of the line under the cursor."""
        return self._rows.number(self.cursor) if self.cursor < len(self._rows) else None

    @property
    def unseen(self) -> int:
        """How many lines were added at the end since it stopped following."""
        return 0 if self.follow else len(self._rows) - self._rows.row(self._seen)

    def show(self) -> None:
        """Show the rows that the source has published."""
        self._rows = self._source.rows
        self.reload()
        if not self._rows:
            self.refresh()  # the hint depends on more than the number of lines
        elif self._held is not None:
            self._placing = True
            self.action_move_to(self._rows.row(self._held))
            self._placing = False
        if not self._source.busy:
            self._held = None

    def mark(self, pattern: "regex.Pattern[str] | None") -> None:
        """Mark the matches of a regex in the rows."""
        self._pattern = pattern
        self.repaint()

    def go_to(self, number: int) -> None:
        """Move the cursor to a line."""
        self.action_move_to(self._rows.row(number))

    def hold(self) -> None:
        """Return to the line under the cursor once a new query has found it."""
        if self._held is None and not self.follow:
            self._held = self.selected

    def set_follow(self, follow: bool) -> None:
        """Follow the end from now on, or stay here."""
        if self.follow and not follow:
            self._seen = self._source.index.stop
        self.follow = follow

    def moved(self, scrolled: bool) -> None:
        if not self._placing:
            self._held = None
            self.follow_from(scrolled)
        super().moved(scrolled)

    def action_last(self) -> None:
        self.set_follow(True)
        self.reload()
        self.moved(scrolled=False)

    def action_shift(self, by: int) -> None:
        """Show another part of long messages."""
        self._shift = max(0, self._shift + by * _SHIFT)
        self.repaint()

    def line_count(self) -> int:
        return len(self._rows)

    def key_at(self, index: int) -> Hashable:
        return self._rows.number(index)

    def find(self, key: Hashable) -> int | None:
        return self._rows.row(key) if isinstance(key, int) else None

    def line_at(self, index: int, width: int) -> Line:
        return self._lines(index, width, wrap=False)[0]

    def lines_of(self, index: int, width: int) -> list[Line]:
        return self._lines(index, width, wrap=True)

    def _lines(self, index: int, width: int, *, wrap: bool) -> list[Line]:
        number = self._rows.number(index)
        block = self._source.index.block(number)
        if block is None:
            return [((fit("(this line is gone)", width, self._glyphs), DIM),)]
        start, end = block.bounds(number)
        # An unfinished line becomes longer; after truncation others have its number.
        known = (self._source.index.epoch, number, end - start)
        # Never more than half of the view, so that the next one can be seen too.
        most = max(1, self._height // 2) if wrap else 1
        key = (known, width, self._shift, self._pattern, wrap, most)
        if (made := self._made.get(key)) is None:
            record = self._record(number, known)
            lines = self._wrapped(record, width, most) if wrap else [self._one(record, width)]
            made = self._made[key] = [self._marked(line) for line in lines]
        return made

    def _record(self, number: int, known: tuple[int, int, int]) -> ShownRecord:
        if (record := self._records.get(known)) is None:
            line, whole = self._source.read(number, PARSE_LIMIT)
            record = self._records[known] = parse(line, whole)
        return record

    def _head(self, record: ShownRecord, width: int) -> tuple[list[Part], str]:
        word, style = _STYLES.get(record.level, ("", ""))
        logger = 12 if width < 100 else 20
        level = _SHORT.get(record.level, record.level)
        head: list[Part] = [
            (f"{record.time:<12} ", DIM),
            (level, word),
            (" " * (_LEVEL_WIDTH + 1 - len(level)), ""),
            (f"{_tail(record.logger, logger, self._glyphs)} ", DIM),
        ]
        return head, style

    def _one(self, record: ShownRecord, width: int) -> Line:
        if record.is_raw:
            return ((fit(record.message[self._shift :], width, self._glyphs), ""),)
        head, style = self._head(record, width)
        room = width - sum(cell_len(text) for text, _ in head)
        text = record.message[self._shift :]
        if cell_len(text) >= room:
            return (*head, (fit(text, room, self._glyphs), style))
        extra = record.extra[max(0, self._shift - len(record.message)) :]
        return (*head, (f"{text}  ", style), (fit(extra, room - cell_len(text) - 2, self._glyphs), DIM))

    def _wrapped(self, record: ShownRecord, width: int, most: int) -> list[Line]:
        """Return time, level and logger once; message and other keys one per line, at least 20 cells wide."""
        head, style = ([], "") if record.is_raw else self._head(record, width)
        indent = sum(cell_len(text) for text, _ in head)
        if width - indent < 20:
            indent = min(2, width // 2)
        room = max(1, width - indent)
        parts: list[Part] = [(text, style) for text in wrapped(record.message, room)]
        parts += [(text, DIM) for text in wrapped(record.extra, room) if text]
        if len(parts) > most:
            text, tone = parts[most - 1]
            parts[most - 1 :] = [(fit(text, room - 1, self._glyphs) + self._glyphs.ellipsis, tone)]
        margin = (" " * indent, "")
        lines: list[Line] = [(margin, (fit(text, room, self._glyphs), tone)) for text, tone in parts]
        if sum(cell_len(text) for text, _ in head) > indent:
            lines.insert(0, tuple(head))
        elif head:
            lines[0] = (*head, lines[0][1])
        return lines

    def _marked(self, line: Line) -> Line:
        pattern = self._pattern
        if pattern is None:
            return line
        parts: list[Part] = []
        try:
            for text, style in line:
                at = 0
                for match in pattern.finditer(text.rstrip(), timeout=_MATCH_TIMEOUT):
                    if match.end() > match.start():
                        parts += [(text[at : match.start()], style), (match[0], _MATCH)]
                        at = match.end()
                parts.append((text[at:], style))
        except TimeoutError:
            self._pattern = None
            return line
        return tuple(part for part in parts if part[0])

    def empty_text(self) -> str:
        source = self._source
        path = one_line(str(source.path), 500)
        if source.query and source.exists:
            return source.trouble or "No line matches.\nEscape clears the filter, l shows all levels."
        if source.exists:
            return f"The log is empty.\n{path}"
        return f"There is no log yet. It will be written to\n{path}"


def _tail(text: str, width: int, glyphs: Glyphs) -> str:
    """Return the end of a dotted name, its distinctive part, in exactly ``width`` cells."""
    if len(text) > width:
        text = glyphs.ellipsis + text[-(width - 1) :]
    return fit(text, width, glyphs)
