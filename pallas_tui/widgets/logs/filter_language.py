"""The parser of log filters: text and fields, negated, in brackets, alternatives.

``level>=warning agent:research "two words" -logger:httpx2 (tool:search OR tool~^find) field.sub=3``
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .filter_terms import Both, Either, FilterMistake, FilterTerm, Not, field_term, text_term

MAX_LENGTH: Final = 2_000
MAX_DEPTH: Final = 20

_FIELD: Final = re.compile(r"([A-Za-z_@][\w@.\-/]*)(>=|<=|!=|:(?!//)|=|~|>|<)")
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r'\\(["\\])')
_BARE: Final = re.compile(r'[^\s"()]+')
_PATTERN: Final = re.compile(r"\S+")


def read_filter(text: str) -> FilterTerm | None:
    """Parse ``text``; return None when it matches all lines. Raises FilterMistake, which says where."""
    if len(text) > MAX_LENGTH:
        raise FilterMistake(MAX_LENGTH, len(text), f"a filter has at most {MAX_LENGTH} characters")
    return _Reader(text).read()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # "(", ")", "-", "OR", "term"
    at: int
    end: int
    where: FilterTerm | None = None


class _Reader:
    """A parser of tokens: alternatives of sequences of terms."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0

    def read(self) -> FilterTerm | None:
        if not self._tokens:
            return None
        found = self._either(0)
        if (token := self._next()) is not None:
            raise FilterMistake(token.at, token.end, "this bracket has no opening bracket")
        return found

    def _next(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _either(self, depth: int) -> FilterTerm:
        parts = [self._both(depth)]
        while (token := self._next()) is not None and token.kind == "OR":
            self._at += 1
            parts.append(self._both(depth))
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _both(self, depth: int) -> FilterTerm:
        parts: list[FilterTerm] = []
        while (token := self._next()) is not None and token.kind not in (")", "OR"):
            parts.append(self._one(depth))
        if not parts:
            token = self._next() or _Token("", len(self._text), len(self._text) + 1)
            what = "OR needs something on both sides" if self._beside_or() else "there is nothing in here"
            raise FilterMistake(token.at, token.end, what)
        # Cheap terms come first and leave less for the rest.
        parts.sort(key=lambda part: part.cost)
        return parts[0] if len(parts) == 1 else Both(tuple(parts))

    def _beside_or(self) -> bool:
        near = self._tokens[max(self._at - 1, 0) : self._at + 1]
        return any(token.kind == "OR" for token in near)

    def _one(self, depth: int) -> FilterTerm:
        token = self._tokens[self._at]
        self._at += 1
        if depth >= MAX_DEPTH:
            raise FilterMistake(
                token.at, token.end, f"brackets and minus signs may be nested {MAX_DEPTH} deep at most"
            )
        if token.kind == "-":
            following = self._next()
            if following is None or following.kind in (")", "OR"):
                raise FilterMistake(token.at, token.end, 'what should be left out? Quote it to find it: "-"')
            return Not(self._one(depth + 1))
        if token.kind == "(":
            inner = self._either(depth + 1)
            closing = self._next()
            if closing is None:
                raise FilterMistake(token.at, token.end, "this bracket is never closed")
            self._at += 1
            return inner
        assert token.where is not None
        return token.where


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        sign = text[at]
        if sign.isspace():
            at += 1
        elif sign in "()":
            yield _Token(sign, at, at + 1)
            at += 1
        elif sign == "-":
            yield _Token("-", at, at + 1)
            at += 1
        elif (word := re.compile(r"(OR|AND)(?=[\s()]|$)").match(text, at)) is not None:
            if word[1] == "OR":
                yield _Token("OR", at, word.end())
            at = word.end()
        else:
            token = _term(text, at)
            yield token
            at = token.end


def _term(text: str, at: int) -> _Token:
    """Return a field with its condition, a regex, or text that may stand anywhere."""
    field = _FIELD.match(text, at)
    if field is None and text[at] != "~":
        value, end = _value(text, at, at, _BARE)
        return _Token("term", at, end, text_term(value))
    name, sign = (field[1], field[2]) if field is not None else ("", "~")
    start = field.end() if field is not None else at + 1
    value, end = _value(text, at, start, _PATTERN if sign == "~" else _BARE)
    quoted = text[start : start + 1] == '"'
    try:
        return _Token("term", at, end, field_term(name, sign, value, quoted=quoted))
    except FilterMistake as mistake:
        offset = start + quoted
        raise FilterMistake(
            min(offset + mistake.at, end), max(min(offset + mistake.end, end), at + 1), str(mistake)
        ) from None


def _value(text: str, term: int, at: int, bare: re.Pattern[str]) -> tuple[str, int]:
    if text[at : at + 1] == '"':
        if (quoted := _QUOTED.match(text, at)) is None:
            raise FilterMistake(at, len(text), "the quotation mark is never closed")
        # In a regex a backslash keeps its own meaning.
        raw = quoted[1]
        return (raw if bare is _PATTERN else _ESCAPE.sub(r"\1", raw)), quoted.end()
    if (found := bare.match(text, at)) is None:
        sign = text[term:at]
        hint = f'; to find it as text: "{sign}"' if sign else ""
        raise FilterMistake(term, max(at, term + 1), f"a value is missing{hint}")
    return found[0], found.end()
