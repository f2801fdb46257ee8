"""The terms of a filter: each selects some lines of a chunk."""

import json
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from functools import cached_property
from itertools import compress
from typing import Any, Final

import regex

from .log_chunk import JsonKey, Lines, LogChunk, Matcher, Needle
from .log_index import LEVELS
from .log_record import clock_of

_SIGNS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
}
# JSON has only one way to write these.
_PLAIN: Final = re.compile(r"[A-Za-z0-9 _.,:;=@#$%*+-]+")


class FilterMistake(ValueError):
    """A mistake in a filter, from character ``at`` up to ``end``."""

    def __init__(self, at: int, end: int, text: str) -> None:
        super().__init__(text)
        self.at = at
        self.end = end


class FilterTerm(ABC):
    """A term of a filter."""

    cost: int = 0
    """Of several terms the one with the smallest cost runs first."""

    @abstractmethod
    def lines(self, chunk: LogChunk, among: Lines) -> Lines:
        """Return those of the lines ``among`` that match."""


@dataclass(frozen=True)
class Both(FilterTerm):
    """All of the terms."""

    parts: tuple[FilterTerm, ...]

    @property
    def cost(self) -> int:  # type: ignore[override]
        """The highest cost of a term."""
        return max(part.cost for part in self.parts)

    def lines(self, chunk: LogChunk, among: Lines) -> Lines:
        for part in self.parts:
            if not among:
                break
            among = part.lines(chunk, among)
        return among


@dataclass(frozen=True)
class Either(FilterTerm):
    """At least one of the terms."""

    parts: tuple[FilterTerm, ...]

    @property
    def cost(self) -> int:  # type: ignore[override]
        """The highest cost of a term."""
        return max(part.cost for part in self.parts)

    def lines(self, chunk: LogChunk, among: Lines) -> Lines:
        found: set[int] = set()
        for part in self.parts:
            found.update(part.lines(chunk, [line for line in among if line not in found] if found else among))
        return sorted(found)


@dataclass(frozen=True)
class Not(FilterTerm):
    """All lines that do not match the term."""

    part: FilterTerm

    @property
    def cost(self) -> int:  # type: ignore[override]
        """The cost of the negated term."""
        return self.part.cost

    def lines(self, chunk: LogChunk, among: Lines) -> Lines:
        gone = set(self.part.lines(chunk, among))
        return [line for line in among if line not in gone]


@dataclass(frozen=True)
class Level(FilterTerm):
    """One of some levels, by number: no line is read for that."""

    wanted: frozenset[int]

    def lines(self, chunk: LogChunk, among: Lines) -> Lines:
        table = bytes(number in self.wanted for number in range(256))
        chosen = chunk.part.levels.translate(table)
        if len(among) == len(chunk.all):
            return list(compress(among, chosen))
        return [line for line in among if chosen[line]]


@dataclass(frozen=True)
class TextTerm(FilterTerm):
    """Text anywhere in the line, ignoring case."""

    text: str
    cost = 1

    @cached_property
    def _needles(self) -> tuple[Needle, ...]:
        return tuple(Needle(needle) for needle in needles_of(self.text))

    def lines(self, chunk: LogChunk, among: Lines) -> Lines:
        found = [chunk.holding(needle, among) for needle in self._needles]
        return found[0] if len(found) == 1 else sorted(set().union(*found))


@dataclass(frozen=True)
class FromProject(FilterTerm):
    """The records of one project's folder, as Pallas writes them: no line is read as JSON for that."""

    folder: str
    cost = 1

    @cached_property
    def _needle(self) -> Needle:
        value = json.dumps(self.folder, ensure_ascii=False)
        return Needle(f'"project": {value}'.lower().encode("utf-8", "surrogatepass"))

    def lines(self, chunk: LogChunk, among: Lines) -> Lines:
        return chunk.holding(self._needle, among)


@dataclass(frozen=True)
class Pattern(FilterTerm):
    """A regex that matches somewhere in the line, ignoring case."""

    pattern: str
    cost = 3

    @cached_property
    def _matcher(self) -> Matcher:
        return Matcher(compile_regex(self.pattern))

    def lines(self, chunk: LogChunk, among: Lines) -> Lines:
        return chunk.matching(self._matcher, among)


@dataclass(frozen=True)
class FieldTerm(FilterTerm):
    """A condition on a field of a JSON record. ``needle`` occurs in every line that may match."""

    path: str
    test: Callable[[Any, LogChunk], bool] = field(compare=False)
    needle: bytes
    cost = 2

    @cached_property
    def _needle(self) -> Needle | None:
        return Needle(self.needle) if self.needle else None

    @cached_property
    def _key(self) -> JsonKey:
        return JsonKey(self.path)

    def lines(self, chunk: LogChunk, among: Lines) -> Lines:
        if self._needle is not None:
            among = chunk.holding(self._needle, among)
        found = []
        for line, values in chunk.values(self._key, among):
            if any(self.test(value, chunk) for value in values):
                found.append(line)
        return found


def text_term(text: str) -> FilterTerm:
    """Return a term for text anywhere."""
    return TextTerm(text)


def field_term(name: str, sign: str, value: str, *, quoted: bool = False) -> FilterTerm:
    """Return a term for a field; without a name a regex for the whole line.

    Raises FilterMistake with positions in ``value``.
    """
    if sign == "~":
        pattern = compile_regex(value)
        if not name:
            return Pattern(value)
        return FieldTerm(name, lambda found, chunk: chunk.matches(pattern, text_of(found)), b"")
    if sign == "!=":
        return Not(field_term(name, "=", value, quoted=quoted))
    if name == "level":
        return _level_term(sign, value)
    if sign == ":":
        if value == "*" and not quoted:
            return FieldTerm(name, lambda found, chunk: found is not None, b"")
        wanted = value.casefold()
        return FieldTerm(name, lambda found, chunk: wanted in text_of(found).casefold(), _plain_run(value))
    compare = _SIGNS[sign]
    if name == "time" and (moment := _moment(value)) is not None:
        return FieldTerm(name, lambda found, chunk: _at(found, moment, compare), b"")
    number = _number(value)
    if sign == "=":
        wanted = value.casefold()
        test = lambda found, chunk: (  # noqa: E731
            text_of(found).casefold() == wanted or (number is not None and _number_in(found) == number)
        )
        return FieldTerm(name, test, _plain_run("" if number is not None else value))
    if number is None:
        hint = " or times such as 14:02 and 2026-06-01T14:02" if name == "time" else ""
        if not hint and (close := get_close_matches(name, ("level", "time"), 1, 0.75)):
            hint = f"; did you mean {close[0]}?"
        raise FilterMistake(0, len(value), f"{sign} compares numbers{hint}")
    return FieldTerm(
        name,
        lambda found, chunk: (has := _number_in(found)) is not None and compare(has, number),
        b"",
    )


def compile_regex(pattern: str) -> "regex.Pattern[str]":
    """Return the regex, ignoring case; raises FilterMistake with a position in ``pattern``."""
    try:
        return regex.compile(pattern, regex.IGNORECASE | regex.MULTILINE)
    except regex.error as error:
        # Its type stubs lack these attributes.
        place, words = getattr(error, "pos", None), getattr(error, "msg", str(error))
        at = min(place or 0, max(len(pattern) - 1, 0))
        raise FilterMistake(at, at + 1, f"regex: {words}") from None
    except (OverflowError, RecursionError, MemoryError):
        raise FilterMistake(0, len(pattern), "regex: too large") from None


def needles_of(text: str) -> tuple[bytes, ...]:
    """Return text in the forms that a file may have: as it is, and as JSON escapes it; in lower case."""
    forms = []
    for each in {text, text.lower(), text.upper()}:
        forms += [each, json.dumps(each)[1:-1], json.dumps(each, ensure_ascii=False)[1:-1]]
    found = {form.encode("utf-8", "surrogatepass").lower() for form in forms}
    # Shorter ones first: a line that has them needs no search for longer ones.
    shortest: list[bytes] = []
    for needle in sorted(found, key=len):
        if not any(shorter in needle for shorter in shortest):
            shortest.append(needle)
    return tuple(shortest)


def text_of(value: Any) -> str:
    """Return a value as text: a string as it is, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _plain_run(text: str) -> bytes:
    """Return the longest part of a text that JSON writes in one way only; empty without one."""
    longest = max(_PLAIN.findall(text), key=len, default="")
    return longest.lower().encode() if len(longest) > 1 else b""


def _level_term(sign: str, value: str) -> FilterTerm:
    names = [name for name in LEVELS if name]
    found = [name for name in names if name.startswith(value.upper())] if value else []
    aliases = {"WARN": "WARNING", "FATAL": "CRITICAL", "TRACE": "DEBUG", "NOTICE": "INFO"}
    name = aliases.get(value.upper(), found[0] if found else "")
    if not name:
        close = get_close_matches(value.upper(), names, 1)
        hint = f"did you mean {close[0].lower()}?" if close else f"there are {', '.join(names).lower()}"
        raise FilterMistake(0, len(value), f"no such level; {hint}")
    number = LEVELS.index(name)
    compare = _SIGNS["=" if sign == ":" else sign]
    # A line without a level is never below or above one.
    return Level(frozenset(each for each in range(1, len(LEVELS)) if compare(each, number)))


def _number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def _number_in(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _moment(value: str) -> datetime | str | None:
    """Return a time of day as on the screen, or a moment; local without an offset."""
    if re.fullmatch(r"\d\d:\d\d(:\d\d(\.\d{1,3})?)?", value):
        return value
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment.astimezone() if moment.tzinfo is None else moment


def _at(found: Any, moment: datetime | str, compare: Callable[[Any, Any], bool]) -> bool:
    at = clock_of(found)
    if at is None:
        return False
    if isinstance(moment, str):
        return compare(f"{at:%H:%M:%S}.{at.microsecond // 1000:03}"[: len(moment)], moment)
    return compare(at if at.tzinfo is not None else at.astimezone(), moment)
