"""The lines of the log as a list: read and parsed only where they are seen."""

from collections.abc import Hashable
from typing import ClassVar, Final

from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.cache import LRUCache

from pallas.text import one_line

from ...text import Glyphs, Line, Part, fit, wrapped
from ..lines import LineView
from ..tones import DIM
from .record import PARSE_LIMIT, Record, parse
from .source import LogSource

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


class LogList(LineView):
    """One row a line. Follows at the end; elsewhere what is read stays where it is."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("g", "move_to(0)", "First", show=False),
        Binding("G", "last", "Last", show=False),
        Binding("right", "shift(1)", "Further right", show=False),
        Binding("left", "shift(-1)", "Back to the left", show=False),
    ]

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
        self._records: LRUCache[tuple[int, int], Record] = LRUCache(_RECORDS)

    @property
    def selected(self) -> int | None:
        """The number of the line under the cursor."""
        return self._rows.number(self.cursor) if self.cursor < len(self._rows) else None

    @property
    def unseen(self) -> int:
        """How many lines came at the end since it stopped following."""
        return 0 if self.follow else len(self._rows) - self._rows.row(self._seen)

    def show(self) -> None:
        """Take over the rows that the source has published."""
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

    def hold(self) -> None:
        """Another question is asked: come back to the line under the cursor as soon as it is found."""
        if self._held is None and not self.follow:
            self._held = self.selected

    def set_follow(self, follow: bool) -> None:
        """Stay at the end from now on, or where it is."""
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
        record = self._record(self._rows.number(index))
        if not record.time and not record.level and not record.logger:
            return ((fit(record.message[self._shift :], width, self._glyphs), ""),)
        word, style = _STYLES.get(record.level, ("", ""))
        logger = 12 if width < 100 else 20
        head: list[Part] = [
            (f"{record.time:<12} ", DIM),
            (_SHORT.get(record.level, record.level), word),
            (" " * (_LEVEL_WIDTH + 1 - len(_SHORT.get(record.level, record.level))), ""),
            (f"{_tail(record.logger, logger, self._glyphs)} ", DIM),
        ]
        room = width - sum(cell_len(text) for text, _ in head)
        text = record.message[self._shift :]
        if cell_len(text) >= room:
            return (*head, (fit(text, room, self._glyphs), style))
        extra = record.extra[max(0, self._shift - len(record.message)) :]
        return (*head, (f"{text}  ", style), (fit(extra, room - cell_len(text) - 2, self._glyphs), DIM))

    def _record(self, number: int) -> Record:
        block = self._source.index.block(number)
        if block is None:
            return Record("", "", "", "(this line is gone)")
        start, end = block.bounds(number)
        key = (number, end - start)  # a line that was not finished becomes longer
        if (record := self._records.get(key)) is None:
            line, whole = self._source.read(number, PARSE_LIMIT)
            record = self._records[key] = parse(line, whole)
        return record

    def empty(self, width: int) -> list[Line]:
        source = self._source
        path = one_line(str(source.path), 500)
        if source.query and source.exists:
            hint = "No line matches.\nEscape takes the filter away, l shows all levels."
        elif source.exists:
            hint = f"The log is empty.\n{path}"
        else:
            hint = f"There is no log yet. It will be written to\n{path}"
        return [((line, DIM),) for line in wrapped(hint, width)]


def _tail(text: str, width: int, glyphs: Glyphs) -> str:
    """The end of a dotted name, which is what tells it from others, in exactly ``width`` cells."""
    if len(text) > width:
        text = glyphs.ellipsis + text[-(width - 1) :]
    return fit(text, width, glyphs)
