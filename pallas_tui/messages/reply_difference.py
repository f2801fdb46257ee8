"""The differences of two replies, line by line."""

import difflib
from typing import Final

from ..text import Line
from .xml_text import pretty

MAX_LINES: Final = 4_000
"""Lines of each reply that are compared."""
_STYLES: Final = {"+": "$text-success", "-": "$text-error", "?": "dim"}


def readable(reply: str) -> list[str]:
    """Return a reply line by line: XML indented, other text unchanged."""
    text = pretty(reply) if reply.lstrip().startswith("<") else reply
    return text.split("\n")[:MAX_LINES]


def difference(before: str, after: str) -> list[str]:
    """Return all lines of both, with ``-`` before those only the old one has and ``+`` for the new one.

    Empty when they are equal.
    """
    old, new = readable(before), readable(after)
    if old == new:
        return []
    found: list[str] = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=True).get_opcodes():
        if tag == "equal":
            found += [f"  {line}" for line in old[a:b]]
            continue
        found += [f"- {line}" for line in old[a:b]]
        found += [f"+ {line}" for line in new[c:d]]
    return found


def difference_lines(before: str, after: str) -> list[Line]:
    """Return the same in colour; the signs are enough without it."""
    return [((line, _STYLES.get(line[:1], "")),) for line in difference(before, after)]
