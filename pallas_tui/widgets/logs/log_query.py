"""Searches for the lines that match a query: slice by slice, the newest first."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from time import monotonic
from typing import Final, Protocol

from .filter_language import read_filter
from .filter_terms import Both, FilterTerm, FromProject, Level, Pattern
from .log_chunk import LogChunk, TooSlowError
from .log_index import LEVELS, Index, Part

AT_ONCE: Final = 64
"""Parts that are passed to a thread at once; it stops after ``TURN`` seconds and leaves the rest."""
TURN: Final = 0.05


@dataclass(frozen=True)
class LogQuery:
    """The lines of at least that level that match the filter ``text`` and the regex ``pattern``.

    With ``project`` the records of the fleets of that folder only. The default matches all lines. The caller
    has checked that text and pattern can be parsed.
    """

    level: int = 0
    text: str = ""
    pattern: str = ""
    project: str = ""

    def __bool__(self) -> bool:
        return self.where is not None

    @cached_property
    def where(self) -> FilterTerm | None:
        """All of it as one condition; None when all lines match."""
        parts: list[FilterTerm] = [Level(frozenset(range(self.level, len(LEVELS))))] if self.level else []
        if self.project:
            parts.append(FromProject(self.project))
        if (text := read_filter(self.text)) is not None:
            parts.append(text)
        if self.pattern:
            parts.append(Pattern(self.pattern))
        return Both(tuple(parts)) if parts else None


@dataclass(frozen=True, slots=True)
class LogMatches:
    """The matches in a part: the numbers of its lines, and on how many lines a regex was given up."""

    found: array[int]
    slow: int = 0
    trouble: str = ""


def find(part: Part, query: LogQuery) -> LogMatches:
    """Return the lines in ``part`` that match ``query``. Blocks: use a thread."""
    chunk = LogChunk(part)
    try:
        lines = query.where.lines(chunk, chunk.all) if query.where is not None else chunk.all
    except (TooSlowError, TimeoutError):
        return LogMatches(array("q"), chunk.slow, "given up: the regex takes too long, make it simpler")
    return LogMatches(array("q", [part.low + line for line in lines]), chunk.slow)


def find_in(parts: Sequence[Part], query: LogQuery, cancelled: Callable[[], bool]) -> list[LogMatches]:
    """Call ``find`` on the first parts: until the turn is over, or the search is cancelled."""
    outcomes: list[LogMatches] = []
    end = monotonic() + TURN
    for part in parts:
        if cancelled() or (outcomes and (monotonic() > end or outcomes[-1].trouble)):
            break
        outcomes.append(find(part, query))
    return outcomes


class Rows(Protocol):
    """The lines to show, in the order of the file: published rows stay valid while more are found."""

    def __len__(self) -> int: ...

    def number(self, row: int) -> int:
        """Return the number of the line in that row."""
        ...

    def row(self, number: int) -> int:
        """Return the row of that line, or of the first one after it; the length when there is none."""
        ...


@dataclass(frozen=True, slots=True)
class AllRows:
    """Every line from ``first`` up to ``stop``."""

    first: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.first

    def number(self, row: int) -> int:
        return self.first + row

    def row(self, number: int) -> int:
        return min(max(number - self.first, 0), len(self))


@dataclass(frozen=True, slots=True)
class FoundRows:
    """The lines that a search found: ``older`` newest first, as found, ``newer`` as added."""

    older: array[int]
    newer: array[int]
    old: int
    new: int

    def __len__(self) -> int:
        return self.old + self.new

    def number(self, row: int) -> int:
        return self.older[self.old - 1 - row] if row < self.old else self.newer[row - self.old]

    def row(self, number: int) -> int:
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.number(middle) < number:
                low = middle + 1
            else:
                high = middle
        return low

    def place(self, number: int | None) -> int:
        """Return the place of that line among them, counted from one; 0 when it is none of them."""
        row = len(self) if number is None else self.row(number)
        return row + 1 if row < len(self) and self.number(row) == number else 0


class Search:
    """A query that walks through an index: from its start to the oldest line, and to each new one."""

    def __init__(self, query: LogQuery, index: Index) -> None:
        self.query = query
        self._index = index
        self._older, self._newer = array("q"), array("q")
        self._low = self._high = index.stop
        self.slow = 0
        self.trouble = ""

    def rows(self) -> FoundRows:
        """The matches so far."""
        return FoundRows(self._older, self._newer, len(self._older), len(self._newer))

    @property
    def searched(self) -> int:
        """How many of the lines are searched."""
        return self._high - max(self._low, self._index.first)

    @property
    def low(self) -> int:
        """All lines from that one on are searched, except for new ones."""
        return self._low

    @property
    def done(self) -> bool:
        """Whether all lines are searched, or the search was given up."""
        return bool(self.trouble) or (self._high >= self._index.stop and self._low <= self._index.first)

    def upcoming(self, most: int = AT_ONCE) -> list[Part]:
        """Return the next parts to search, the newest first; empty when it is done."""
        if self.done:
            return []
        index, parts = self._index, list[Part]()
        if self._high < index.stop and (block := index.block(self._high)) is not None:
            return [block.part(self._high, block.stop)]
        low = self._low
        while low > index.first and len(parts) < most and (block := index.block(low - 1)) is not None:
            parts.append(block.part(block.first, low))
            low = block.first
        return parts

    def take(self, part: Part, outcome: LogMatches) -> None:
        """Take in the matches in the parts that ``upcoming`` returned, in their order."""
        self.slow += outcome.slow
        self.trouble = self.trouble or outcome.trouble
        if part.low == self._high and part.low != part.high:
            self._newer.extend(outcome.found)
            self._high = part.high
        elif part.high == self._low:
            self._older.extend(reversed(outcome.found))
            self._low = part.low

    def adjust(self) -> None:
        """Remove matches whose lines were removed, at either end."""
        first, stop = self._index.first, self._index.stop
        while self._newer and self._newer[-1] >= stop:
            self._newer.pop()
        while self._older and self._older[0] >= stop:
            self._older.pop(0)
        while self._older and self._older[-1] < first:
            self._older.pop()
        if self._newer and self._newer[0] < first:
            del self._newer[: bisect_left(self._newer, first)]
        self._high = min(max(self._high, first), stop)
        self._low = min(max(self._low, first), self._high)
