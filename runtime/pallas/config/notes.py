"""Mistakes, collected while files are read and reported together."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Literal

from pallas.safe_text import one_line

from .models import Mistake, Where

_LIMIT = 600
_SHOWN = 40


class Notes:
    """What was found wrong so far. Reading goes on after a mistake, so that none hides another."""

    def __init__(self) -> None:
        self._found: dict[Mistake, None] = {}

    def error(self, where: Where, key: str, problem: str, *hints: str) -> None:
        """Note something that stops the project; empty hints are left out."""
        self._add("error", where, key, problem, hints)

    def warn(self, where: Where, key: str, problem: str, *hints: str) -> None:
        """Note something a person should know that stops nothing."""
        self._add("warning", where, key, problem, hints)

    def _add(
        self, level: Literal["error", "warning"], where: Where, key: str, problem: str, hints: Sequence[str]
    ) -> None:
        mistake = Mistake(
            where=replace(where, file=one_line(where.file)),
            key=one_line(key),
            problem=one_line(problem, _LIMIT),
            hint=one_line("; ".join(hint for hint in hints if hint), 2 * _LIMIT),
            level=level,
        )
        self._found.setdefault(mistake)

    def sorted(self, files: Sequence[str]) -> tuple[Mistake, ...]:
        """Everything noted, in the order of ``files``, then of other files, and of the places in them."""
        names = dict.fromkeys((*files, *(found.where.file for found in self._found)))
        rank = {name: number for number, name in enumerate(names)}

        def place(found: Mistake) -> tuple[int, int, int]:
            return rank[found.where.file], found.where.line, found.where.column

        return tuple(sorted(self._found, key=place))


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word that ``word`` was most likely meant to be, None when none is close."""
    plain = {_plain(name): name for name in known}
    close = get_close_matches(_plain(word[:100]), plain, n=1, cutoff=cutoff)
    return plain[close[0]] if close else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``did you mean X``, empty when nothing is close."""
    name = nearest(word, known)
    return suggest(name if name != word else None)


def suggest(name: str | None) -> str:
    """``did you mean X``, empty when there is no X."""
    return f"did you mean {name}" if name else ""


def allowed(known: Iterable[str]) -> str:
    """``allowed: a, b, c``, empty when there is nothing to choose from; long lists are cut."""
    names = list(known)
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    return f"allowed: {shown}" if names else ""


def no_such_key(name: str, known: Iterable[str]) -> str:
    """The problem of a key of a document that it does not have: the nearest that it has, and all of them."""
    names = list(known)
    listed = f"known: {', '.join(names)}" if names else ""
    return "; ".join(filter(None, ("there is no such key", did_you_mean(name, names), listed)))


def _plain(word: str) -> str:
    return word.lower().replace("-", "_")
