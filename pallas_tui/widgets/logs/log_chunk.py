"""Some lines of a log in memory for a moment, and fast searches in all of them."""

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final

import regex

from .log_index import Part
from .log_record import FULL_LIMIT, load

Lines = Sequence[int]
"""Indexes of lines in a chunk, ascending."""

TIMEOUT: Final = 0.1
"""Seconds of a regex for all lines of a chunk at once; after that each line is tried by itself."""
LINE_TIMEOUT: Final = 0.01
LINE_LIMIT: Final = 16 * 1024
"""Characters of one line, or of one field, that a regex looks at."""
MAX_SLOW: Final = 20
"""Lines of a chunk that may exceed their time before the search is given up."""
_DENSE: Final = 64
_FEW: Final = 8


class TooSlowError(Exception):
    """A regex was too slow on too many lines."""


class Needle:
    """Bytes to look for, in lower case: the search ignores case."""

    def __init__(self, needle: bytes) -> None:
        self.bytes = needle
        self.regex = regex.compile(regex.escape(needle), regex.IGNORECASE)


class Matcher:
    """A regex for lines. ``whole`` until it was too slow for all lines of a chunk at once."""

    def __init__(self, pattern: "regex.Pattern[str]") -> None:
        self.regex = pattern
        self.whole = True


class JsonKey:
    """The path of a field, and its form in a line of JSON without nested objects."""

    def __init__(self, path: str) -> None:
        self.path = path
        name = regex.escape(json.dumps(path, ensure_ascii=False)).encode()
        # A string, the beginning of a list or an object, or another value.
        self.regex = regex.compile(name + rb"""\s*:\s*("(?:[^"\\]|\\.)*+"|[\[{]|[^\s,}\]]++)""")


class LogChunk:
    """The lines of a part, read at once. Blocks on the disk: use it in a thread."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.all: Lines = range(len(part.starts))
        self.slow = 0
        self._base = part.starts[0]

    @cached_property
    def data(self) -> bytes:
        """The bytes of all lines; fewer if the file was truncated after it was indexed."""
        return self.part.file.read(self._base, self.part.end)

    @cached_property
    def _text(self) -> str | None:
        """The same as text where each character is one byte, else None."""
        return self.data.decode("ascii") if self.data.isascii() else None

    @cached_property
    def _flat(self) -> bool:
        """Whether every line with an object is one object without nested ones."""
        data = self.data
        return data.count(b"{") == data.count(b"\n{") + data.startswith(b"{")

    def _bounds(self, line: int) -> tuple[int, int]:
        """Return where a line starts and ends in ``data``, without its newline."""
        start, end = self._start_of(line), self._start_of(line + 1)
        while end > start and self.data[end - 1 : end] in (b"\n", b"\r"):
            end -= 1
        return start, end

    def _line_of(self, offset: int) -> int:
        return bisect_right(self.part.starts, self._base + offset) - 1

    def _start_of(self, line: int) -> int:
        return (self.part.starts[line] if line < len(self.all) else self.part.end) - self._base

    def _are_few(self, among: Lines) -> bool:
        return _FEW * len(among) < len(self.all)

    def _within(self, found: Iterable[int], among: Lines) -> Lines:
        if len(among) == len(self.all):
            return list(found)
        wanted = set(found)
        return [line for line in among if line in wanted]

    # The queries of filters, for the lines ``among`` only

    def holding(self, needle: Needle, among: Lines) -> Lines:
        """Return the lines that contain some bytes."""
        # This takes a fraction of a millisecond: releasing other threads for it would cost more.
        if self._are_few(among):
            return [
                line
                for line in among
                if needle.regex.search(self.data, *self._bounds(line), concurrent=False) is not None
            ]
        found: list[int] = []
        at = 0
        while (match := needle.regex.search(self.data, at, concurrent=False)) is not None:
            line = self._line_of(match.start())
            found.append(line)
            if len(found) == _DENSE and line < 2 * _DENSE:  # so many that it is faster to search each line
                rows = [row for row in self.data.lower().split(b"\n") if row]
                found = [line for line, row in enumerate(rows) if needle.bytes in row]
                break
            at = self._start_of(line + 1)
        return self._within(found, among)

    def matching(self, matcher: Matcher, among: Lines) -> Lines:
        """Return the lines that a regex matches somewhere; raises TooSlowError."""
        if matcher.whole and self._text is not None and not self._are_few(among):
            try:
                return self._within(self._matching_all(matcher.regex, self._text), among)
            except TimeoutError:
                matcher.whole = False
        return self._matching_each(matcher.regex, among)

    def _matching_all(self, pattern: "regex.Pattern[str]", text: str) -> list[int]:
        found: list[int] = []
        at = 0
        while (match := pattern.search(text, at, timeout=TIMEOUT)) is not None:
            line = self._line_of(match.start())
            start, end = self._bounds(line)
            # A match beyond the end of its line may be there in a shorter form, or not at all.
            if match.end() <= end or pattern.search(text, start, end, timeout=TIMEOUT) is not None:
                found.append(line)
            if (at := self._start_of(line + 1)) >= len(text):
                break
        return found

    def _matching_each(self, pattern: "regex.Pattern[str]", among: Lines) -> Lines:
        found = []
        for line in among:
            start, end = self._bounds(line)
            text = self.data[start : min(end, start + LINE_LIMIT)].decode("utf-8", "replace")
            if self.matches(pattern, text):
                found.append(line)
        return found

    def matches(self, pattern: "regex.Pattern[str]", text: str) -> bool:
        """Return whether a regex matches a text; False if that takes too long; raises TooSlowError."""
        try:
            return pattern.search(text, 0, LINE_LIMIT, timeout=LINE_TIMEOUT) is not None
        except TimeoutError:
            self.slow += 1
            if self.slow > MAX_SLOW:
                raise TooSlowError from None
            return False

    def values(self, key: JsonKey, among: Lines) -> Iterator[tuple[int, Iterable[Any]]]:
        """Yield the lines that have a field, and its values: several where there are lists."""
        if self._flat and "." not in key.path and not self._are_few(among):
            wanted = among if isinstance(among, range) else set(among)
            last = -1
            for match in key.regex.finditer(self.data, concurrent=False):
                line = self._line_of(match.start())
                if line != last and line in wanted and self._is_object(line):
                    last = line
                    yield line, self._values_in(match[1], line, key)
            return
        for line in among:
            if (record := self._record(line)) is not None and (values := list(values_at(record, key.path))):
                yield line, values

    def _values_in(self, raw: bytes, line: int, key: JsonKey) -> Iterable[Any]:
        if raw[0] == 0x22 and b"\\" not in raw:
            return (raw[1:-1].decode("utf-8", "replace"),)
        if raw[0] in b"[{":
            record = self._record(line)
            return values_at(record, key.path) if record is not None else ()
        try:
            return (json.loads(raw),)
        except ValueError:
            return ()

    def _is_object(self, line: int) -> bool:
        return self.data.startswith(b"{", self._start_of(line))

    def _record(self, line: int) -> dict[str, Any] | None:
        start, end = self._bounds(line)
        return load(self.data[start:end]) if end - start <= FULL_LIMIT else None


def values_at(record: dict[str, Any], path: str) -> Iterator[Any]:
    """Yield the values at ``path``: a key as it is, else key by key; each item of a list, and the list."""
    if path in record:
        value = record[path]
        if isinstance(value, list):
            yield from value
        yield value
        return
    head, dot, rest = path.partition(".")
    while dot:
        inner = record.get(head)
        for each in inner if isinstance(inner, list) else (inner,):
            if isinstance(each, dict):
                yield from values_at(each, rest)
        more, dot, rest = rest.partition(".")
        head = f"{head}.{more}"
