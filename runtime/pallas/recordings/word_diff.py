"""The difference of two texts, word by word where that is readable, else in larger parts."""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from typing import Final, Literal

from .alignment import common, merged

Sign = Literal["=", "-", "+"]
type Piece = tuple[Sign, str]
"""Text that is in both, in the first only, or in the second only."""

MAX_PARTS: Final = 5_000
"""Most lines or clauses of a text that are compared; longer ones are compared in other parts."""
MAX_WORDS: Final = 1_000
"""Most words of a passage that is compared word by word."""
MAX_COMPARED: Final = 8_000_000
"""Most words of passages times those of their counterparts that are compared in one text."""
_LEAST_ALIKE: Final = 0.3
"""Share of the words that two passages must have in common to be compared word by word."""
_LINES: Final = re.compile(r"[^\n]*\n|[^\n]+")
_CLAUSES: Final = re.compile(r"[^.,;:!?{}\[\]\n]*(?:[.,;:!?{}\[\]\n]\s*|$)")
_WORDS: Final = re.compile(r"\s+|\w+|[^\w\s]")


def word_diff(before: str, after: str) -> tuple[Piece, ...]:
    """The pieces of both texts, in order: ``=`` and ``-`` make up the first one, ``=`` and ``+`` the second.

    Takes some tenths of a second at most, for any texts.
    """
    return tuple(_joined(list(_Comparison().pieces(before, after, (_LINES, _CLAUSES, _WORDS)))))


class _Comparison:
    def __init__(self) -> None:
        self._left = MAX_COMPARED

    def pieces(self, before: str, after: str, cuts: Sequence[re.Pattern[str]]) -> Iterator[Piece]:
        """The pieces of two passages. The first of ``cuts`` divides them, the others parts that differ."""
        cut, *finer = cuts
        old, new = cut.findall(before), cut.findall(after)
        head = _common(old, new)
        tail = _common(old[head:][::-1], new[head:][::-1])
        yield "=", "".join(old[:head])
        a, b = old[head : len(old) - tail], new[head : len(new) - tail]
        if not a or not b:
            yield from _replaced(a, b)
        elif finer:
            yield from self._parts(a, b, finer)
        else:
            yield from self._words(a, b)
        yield "=", "".join(old[len(old) - tail :])

    def _parts(
        self, old: Sequence[str], new: Sequence[str], finer: Sequence[re.Pattern[str]]
    ) -> Iterator[Piece]:
        if max(len(old), len(new)) > MAX_PARTS:
            yield from self.pieces("".join(old), "".join(new), finer)
            return
        gone: list[str] = []
        came: list[str] = []
        for a, b in (*merged(common(old, new), len(old), len(new)), (-1, -1)):
            if a is None or b is None:
                gone += [old[a]] if a is not None else []
                came += [new[b]] if b is not None else []
                continue
            if gone and came:
                yield from self.pieces("".join(gone), "".join(came), finer)
            else:
                yield from _replaced(gone, came)
            gone, came = [], []
            if a >= 0:
                yield "=", old[a]

    def _words(self, old: Sequence[str], new: Sequence[str]) -> Iterator[Piece]:
        size = len(old) * len(new)
        if max(len(old), len(new)) > MAX_WORDS or size > self._left:
            yield from _replaced(old, new)
            return
        self._left -= size
        # A blank is no sign that two passages are alike, nor is a word that is everywhere in a long one.
        opcodes = SequenceMatcher(str.isspace, old, new).get_opcodes()
        same = sum(_count(old[a:b]) for tag, a, b, _, _ in opcodes if tag == "equal")
        if 2 * same < _LEAST_ALIKE * (_count(old) + _count(new)):
            yield from _replaced(old, new)
            return
        for tag, a, b, c, d in opcodes:
            if tag == "equal":
                yield "=", "".join(old[a:b])
            else:
                yield from _replaced(old[a:b], new[c:d])


def _common(old: Sequence[str], new: Sequence[str]) -> int:
    """How many items are the same at the beginning."""
    most = min(len(old), len(new))
    return next((index for index in range(most) if old[index] != new[index]), most)


def _count(words: Sequence[str]) -> int:
    return sum(not each.isspace() for each in words)


def _replaced(old: Sequence[str], new: Sequence[str]) -> Iterator[Piece]:
    yield "-", "".join(old)
    yield "+", "".join(new)


def _joined(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """The pieces without empty ones. A change is one ``-`` and one ``+``, with the blanks inside of it."""
    filled = [each for each in pieces if each[1]]
    last = len(filled) - 1
    same = [
        sign == "=" and not (0 < index < last and text.isspace() and "\n" not in text)
        for index, (sign, text) in enumerate(filled)
    ]
    for is_same, group in groupby(range(len(filled)), key=same.__getitem__):
        part = [filled[index] for index in group]
        if is_same:
            yield "=", "".join(text for _, text in part)
            continue
        signs: tuple[tuple[Sign, Sign], ...] = (("-", "+"), ("+", "-"))
        for sign, other in signs:
            if text := "".join(text for each, text in part if each != other):
                yield sign, text
