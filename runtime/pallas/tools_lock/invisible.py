"""Characters that no reader sees, or that show text in another order than it is in."""

import re
import unicodedata
from functools import lru_cache
from typing import Final

from pallas.safe_text import is_invisible, json_escape, without_seen_parts

_BIDI: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_USUAL: Final = frozenset("\n\r\t")
# What no font need have, and the blank among the patterns of Braille.
_UNKNOWN: Final = frozenset(("Cn", "Co"))
_BLANK: Final = "\u2800"
_NOT_ASCII: Final = re.compile(r"[^\x20-\x7e\n\r\t]")


def bidirectional_in(text: str) -> list[str]:
    """Return the characters of ``text`` that change its direction, each once, in order."""
    return [each for each in _strange(text) if each in _BIDI]


def invisible_in(text: str) -> list[str]:
    """Return the other characters of ``text`` that are not seen, each once, in order.

    Joiners and styles in emoji are left out, and selectors of a form of an ideograph.
    """
    found = (each for each in _strange(without_seen_parts(text)) if each not in _BIDI)
    return [each for each in found if is_hidden(each)]


def visible(text: str) -> str:
    """Return ``text`` with each such character, also of emoji, written as ``\\u202e``."""
    return _NOT_ASCII.sub(lambda match: json_escape(match[0]) if is_hidden(match[0]) else match[0], text)


def name_of(character: str) -> str:
    """Return a character as ``U+202E RIGHT-TO-LEFT OVERRIDE``."""
    return f"U+{ord(character):04X} {unicodedata.name(character, '')}".rstrip()


@lru_cache(4096)
def is_hidden(character: str) -> bool:
    """Return whether a reader does not see the character."""
    if character in _USUAL or " " <= character <= "~":
        return False
    return is_invisible(character) or character == _BLANK or unicodedata.category(character) in _UNKNOWN


def _strange(text: str) -> list[str]:
    return list(dict.fromkeys(_NOT_ASCII.findall(text)))
