"""Templates of instructions that name the current date, and the texts that are made of them."""

import re
from dataclasses import dataclass, field
from typing import Final

DATE: Final = "currentDate"
"""The placeholder that fast-agent replaces by the date, as ``28 November 2026``."""
_PLACEHOLDER: Final = re.compile(r"(?<!\\)\{\{([^{}]*)\}\}")
_DATE_TEXT: Final = (
    "([0-9]{2} (?:January|February|March|April|May|June|July|August|September|October|November|December) "
    "[0-9]{4})"
)
_IN_PLACE: Final = f"{{{{{DATE}}}}}"


def names_the_date(template: str) -> bool:
    """Whether the text of a template is another one on another day."""
    return any(each == DATE for each in _PLACEHOLDER.findall(template))


@dataclass(frozen=True, slots=True)
class DatedTemplate:
    """A template. The texts between its other placeholders are looked for, one after the other."""

    text: str
    _pieces: tuple[re.Pattern[str], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Make the patterns."""
        object.__setattr__(self, "_pieces", tuple(map(re.compile, _patterns(self.text))))

    def undated(self, text: str) -> str | None:
        """A text with placeholders in place of the dates that the template put there.

        None if it is not a text of this template.
        """
        found, end = "", 0
        for index, piece in enumerate(self._pieces):
            match = piece.search(text, end) if index else piece.match(text)
            if match is None:
                return None
            for group in range(1, (match.re.groups or 0) + 1):
                found += text[end : match.start(group)] + _IN_PLACE
                end = match.end(group)
            found += text[end : match.end()]
            end = match.end()
        return found + text[end:]


def _patterns(template: str) -> list[str]:
    """A pattern for each piece between placeholders of unknown text. A date needs words next to it."""
    parts = _PLACEHOLDER.split(template)
    literals, names = parts[::2], parts[1::2]
    pieces: list[list[str]] = [[_literal(literals[0])]]
    for name, literal in zip(names, literals[1:], strict=True):
        if name == DATE:
            pieces[-1] += [_DATE_TEXT, _literal(literal)]
        else:
            pieces.append([_literal(literal)])
    first = pieces[0]
    return [
        # Anywhere behind a text that is not known, a date alone might be another one.
        "".join(each for each in piece if piece is first or each != _DATE_TEXT or _is_marked(piece))
        for piece in pieces
    ]


def _is_marked(piece: list[str]) -> bool:
    return any(each.strip("\\\n \t") for each in piece if each != _DATE_TEXT)


def _literal(text: str) -> str:
    return re.escape(text.replace(r"\{{", "{{").replace(r"\}}", "}}"))
