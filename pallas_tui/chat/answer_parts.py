"""Where in the text of an answer its calls stand."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

MAX_PLACES: Final = 50
"""Places of one answer; calls after them stand at the last one."""


class CallPlace(NamedTuple):
    """A place in a text: ``offset`` characters are before it, and it ends with call number ``end`` - 1."""

    offset: int
    end: int


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """A piece of text; where that is empty the agent's own calls from ``first`` up to ``end``.

    ``end`` is None where all further calls belong to it.
    """

    text: str = ""
    first: int = 0
    end: int | None = None


def add_place(places: list[CallPlace], offset: int, calls: int) -> None:
    """Note that ``calls`` were made when the text had ``offset`` characters."""
    known = places[-1] if places else CallPlace(-1, 0)
    if calls <= known.end:
        return
    if offset <= known.offset or len(places) >= MAX_PLACES:
        places[-1] = CallPlace(known.offset, calls)
    else:
        places.append(CallPlace(offset, calls))


def moved(places: Sequence[CallPlace], text: str, final: str) -> tuple[CallPlace, ...]:
    """Return the places that those in the streamed ``text`` have in the ``final`` one.

    Calls behind a piece of text that is not in the final one come as soon as possible.
    """
    found: list[CallPlace] = []
    start = offset = 0
    for place in places:
        piece = text[start : place.offset].strip()
        if piece and (at := final.find(piece, offset)) >= 0:
            offset = at + len(piece)
        add_place(found, offset, place.end)
        start = place.offset
    return tuple(found)


def parts_of(text: str, places: Sequence[CallPlace]) -> list[AnswerPart]:
    """Return the pieces of an answer from top to bottom."""
    parts: list[AnswerPart] = []
    offset = first = 0
    for place in places:
        if piece := text[offset : place.offset].strip("\n"):
            parts.append(AnswerPart(piece))
        parts.append(AnswerPart("", first, None if place is places[-1] else place.end))
        offset, first = place
    rest = text[offset:].lstrip("\n") if places else text
    return [*parts, AnswerPart(rest)] if rest else parts
