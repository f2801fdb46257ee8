"""Which lines are wanted: by level and by text, found slice by slice, the newest first."""

import json
from array import array
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from .index import Index, Part


@dataclass(frozen=True)
class Query:
    """At least that grave, and holding that text (any case). The default wants everything."""

    level: int = 0
    text: str = ""

    def __bool__(self) -> bool:
        return bool(self.level or self.text)

    @cached_property
    def needles(self) -> tuple[bytes, ...]:
        """The text as it may stand in a file: as it is, and as JSON escapes it; in lower case."""
        forms = []
        for text in {self.text, self.text.lower(), self.text.upper()}:
            forms += [text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]]
        found = {form.encode("utf-8", "surrogatepass").lower() for form in forms}
        # Shorter ones first: what they find, longer ones need not.
        kept: list[bytes] = []
        for needle in sorted(found, key=len):
            if not any(shorter in needle for shorter in kept):
                kept.append(needle)
        return tuple(kept)


def find(part: Part, query: Query) -> array[int]:
    """The numbers of the lines in ``part`` that ``query`` wants. Blocks: use a thread."""
    wanted = [part.low + place for place, level in enumerate(part.levels) if level >= query.level]
    if not query.text or not wanted:
        return array("q", wanted)
    base = part.starts[0]
    hits = _lines_with(part.file.read(base, part.end).lower(), base, part.starts, query.needles)
    return array("q", [number for number in wanted if number - part.low in hits])


def _lines_with(data: bytes, base: int, starts: array[int], needles: tuple[bytes, ...]) -> set[int]:
    """Which of the lines hold one of the needles."""
    hits: set[int] = set()
    for needle in needles:
        at = data.find(needle)
        while at >= 0:
            line = bisect_left(starts, base + at + 1) - 1
            hits.add(line)
            if line + 1 >= len(starts):
                break
            at = data.find(needle, starts[line + 1] - base)
    return hits


class Rows(Protocol):
    """The lines to show, in the order of the file: what was published stays valid while more are found."""

    def __len__(self) -> int: ...

    def number(self, row: int) -> int:
        """The number of the line in that row."""
        ...

    def row(self, number: int) -> int:
        """The row of that line, or of the first one after it; the length when there is none."""
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
    """Those that a search has found: ``older`` newest first, as they were found, ``newer`` as they came."""

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


class Search:
    """A query on its way through an index: from where it began to the oldest line, and to each new one."""

    def __init__(self, query: Query, index: Index) -> None:
        self.query = query
        self._index = index
        self._older, self._newer = array("q"), array("q")
        self._low = self._high = index.stop

    def rows(self) -> FoundRows:
        """What it has found so far."""
        return FoundRows(self._older, self._newer, len(self._older), len(self._newer))

    @property
    def searched(self) -> int:
        """How many of the lines it has looked at."""
        return self._high - max(self._low, self._index.first)

    @property
    def done(self) -> bool:
        """Whether it has looked at all there is."""
        return self._high >= self._index.stop and self._low <= self._index.first

    def next(self) -> Part | None:
        """The next lines to look at, the newest first; None when it is done."""
        if self._high < self._index.stop and (block := self._index.block(self._high)) is not None:
            return block.part(self._high, block.stop)
        if self._low > self._index.first and (block := self._index.block(self._low - 1)) is not None:
            return block.part(block.first, self._low)
        return None

    def take(self, part: Part, found: array[int]) -> None:
        """What was found in the lines that ``next`` gave."""
        if part.low == self._high:
            self._newer.extend(found)
            self._high = part.high
        elif part.high == self._low:
            self._older.extend(reversed(found))
            self._low = part.low

    def adjust(self) -> None:
        """Lines went away, at either end: forget them too."""
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
