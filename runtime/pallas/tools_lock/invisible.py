"""Characters that no reader sees, or that show text in another order than it is in."""

import re
import unicodedata
from functools import lru_cache
from typing import Final

_BIDI: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# Blank, although Unicode counts them among letters, symbols and marks.
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_CATEGORIES: Final = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"))
_USUAL: Final = frozenset("\n\r\t")
_NOT_ASCII: Final = re.compile(r"[^\x20-\x7e\n\r\t]")
_JOINER: Final = "\u200d"
_EMOJI_STYLE: Final = "\ufe0f"


def bidirectional_in(text: str) -> list[str]:
    """Return the characters of ``text`` that change its direction, each once, in order."""
    return [each for each in _strange(text) if each in _BIDI]


def invisible_in(text: str) -> list[str]:
    """Return the other characters of ``text`` that are not seen, each once, in order.

    Joiners and styles of emoji are left out where they follow a picture.
    """
    found = (each for each in _strange(_without_emoji_parts(text)) if each not in _BIDI)
    return [each for each in found if is_hidden(each)]


def visible(text: str) -> str:
    """Return ``text`` with each such character, also of emoji, written as ``\\u202e``."""
    return _NOT_ASCII.sub(lambda match: _escaped(match[0]) if is_hidden(match[0]) else match[0], text)


def name_of(character: str) -> str:
    """Return a character as ``U+202E RIGHT-TO-LEFT OVERRIDE``."""
    return f"U+{ord(character):04X} {unicodedata.name(character, '')}".rstrip()


@lru_cache(4096)
def is_hidden(character: str) -> bool:
    """Return whether a reader does not see the character."""
    if character in _USUAL or " " <= character <= "~":
        return False
    return unicodedata.category(character) in _CATEGORIES or _BLANK.match(character) is not None


def _strange(text: str) -> list[str]:
    return list(dict.fromkeys(_NOT_ASCII.findall(text)))


def _without_emoji_parts(text: str) -> str:
    if _JOINER not in text and _EMOJI_STYLE not in text:
        return text
    kept: list[str] = []
    for index, each in enumerate(text):
        before = text[index - 1] if index else ""
        follows = before == _EMOJI_STYLE or (before and unicodedata.category(before) in ("So", "Sk"))
        if not (each in (_JOINER, _EMOJI_STYLE) and follows):
            kept.append(each)
    return "".join(kept)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    pairs = (units[index : index + 2] for index in range(0, len(units), 2))
    return "".join(f"\\u{pair.hex()}" for pair in pairs)
