"""Characters that look like those of YAML and are others, as editors and web pages write them."""

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

MEANT: Final = {
    **dict.fromkeys("“”„‟＂", '"'),
    **dict.fromkeys("‘’‚‛＇", "'"),
    **dict.fromkeys("：﹕∶", ":"),
    **dict.fromkeys("，﹐、", ","),
    **dict.fromkeys("‐‑‒–—−－", "-"),
    **dict(zip("［］｛｝＃＊＆！｜＞％＠｀", "[]{}#*&!|>%@`", strict=True)),
}
"""What was meant by each."""
LINE_ENDS: Final = "\x85\u2028\u2029"
"""Ends of lines to YAML, and to no editor."""
_QUOTES: Final = "“”„‟＂‘’‚‛＇"
_SPACES: Final = "".join(chr(code) for code in (0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000))
_UNSEEN: Final = "\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff"
_BLANK: Final = f"[{_SPACES}{_UNSEEN}]"
_START: Final = r"^[ \t]*(?:- +)*"
_PLACES: Final = (
    re.compile(f"[{LINE_ENDS}]"),
    re.compile(rf"{_START}({_BLANK})"),
    re.compile(rf"{_START}([‐‑‒–—−－])[ {_SPACES}]"),
    re.compile(rf"{_START}([{_QUOTES}])[^:：]*:"),
    re.compile(rf"{_START}[\w.$\"'{{}}-]+[ ]*([：﹕∶])"),
    re.compile(rf"{_START}[^\s:#\"']*({_BLANK})[^:#\"']*:"),
    re.compile(rf":[ \t]*({_BLANK})"),
)
"""Where in a line such a character is in place of one of YAML, most telling first."""
_VALUE: Final = re.compile(rf"(?::|-|[\[{{,])[ \t]+([{_QUOTES}＊＆！｜＞％＠｀])")
"""In the line where YAML fails, a value may begin with one: elsewhere that is a text like others."""
_IN_FLOW: Final = re.compile(f"[{_QUOTES}：﹕∶，﹐、［］｛｝{_SPACES}{_UNSEEN}]")
_LINES: Final = re.compile("\r\n|\r|\n")
_NEAR: Final = 2
"""Lines above the one where YAML fails that may be the reason."""
MAX_LINE: Final = 400
"""Characters of a line that are looked at."""
_KEY_LIKE: Final = re.compile(rf"[A-Za-z_][\w.-]*(?:[：﹕∶]|:{_BLANK})")


@dataclass(frozen=True, slots=True)
class OddCharacter:
    """One of them, and its place, counted from 1."""

    character: str
    line: int
    column: int

    def __str__(self) -> str:
        return self._named(f", column {self.column}")

    @property
    def name(self) -> str:
        """As in ``a no-break space (U+00A0)``."""
        return self._named("")

    def _named(self, place: str) -> str:
        words = unicodedata.name(self.character, "control character").lower()
        article = "an" if words[0] in "aeiou" else "a"
        return f"{article} {words} (U+{ord(self.character):04X}{place})"

    @property
    def remedy(self) -> str:
        """What to do about it."""
        if self.character in MEANT:
            return f"write {MEANT[self.character]} instead"
        if self.character in _SPACES:
            return "write a space instead"
        if self.character in LINE_ENDS:
            return "write a space or a new line instead"
        return "remove it: it cannot be seen"


def split_lines(text: str) -> list[str]:
    """The lines of a text as editors count them."""
    return _LINES.split(text)


def place_of(text: str, position: int) -> tuple[int, int]:
    """Line and column of a position, as editors count them."""
    lines = split_lines(text[:position])
    return len(lines), len(lines[-1]) + 1


def without_line_ends(text: str) -> str:
    """``text`` with spaces for what only YAML takes for the end of a line: its lines become an editor's."""
    return re.sub(f"[{LINE_ENDS}]", " ", text)


def other_line_end(text: str) -> OddCharacter | None:
    """The first such end of a line in a text."""
    found = re.search(f"[{LINE_ENDS}]", text)
    return OddCharacter(found[0], *place_of(text, found.start())) if found is not None else None


def near_failure(lines: list[str], number: int, since: int | None = None) -> OddCharacter | None:
    """The character that probably makes YAML fail at line ``number``, the nearest to it.

    With ``since`` the lines from there on are one list or mapping in brackets.
    """
    above = [at for at in range(number - 1, 0, -1) if at <= len(lines) and lines[at - 1].strip()][:_NEAR]
    for at in (number, *above):
        line = lines[at - 1][:MAX_LINE] if at <= len(lines) else ""
        places = (*_PLACES, _VALUE) if at == number else _PLACES
        found = next(filter(None, (place.search(line) for place in places)), None)
        if found is not None:
            return OddCharacter(found[found.lastindex or 0], at, found.start(found.lastindex or 0) + 1)
    for at in range(since or number + 1, number + 1):
        if at <= len(lines) and (found := _IN_FLOW.search(lines[at - 1])) is not None:
            return OddCharacter(found[0], at, found.start() + 1)
    return None


def in_key(key: str, line: int, column: int) -> tuple[OddCharacter, str] | None:
    """What a key has that no key has, and the key as it was meant."""
    found = re.search(_BLANK, key)
    if found is None and len(key) > 1 and key[0] in _QUOTES and key[-1] in _QUOTES:
        return OddCharacter(key[0], line, column), key[1:-1]
    if found is None:
        return None
    meant = re.sub(_BLANK, lambda each: " " if each[0] in _SPACES else "", key).strip()
    return OddCharacter(found[0], line, column + found.start()), meant


def in_value(text: str, line: int, column: int) -> OddCharacter | None:
    """What a text without quotes begins or ends with that is none of its own, or the colon of a key in it."""
    if not text or text.isascii():
        return None
    if text[0] in _QUOTES and text[-1] in _QUOTES and len(text) > 1:
        return OddCharacter(text[0], line, column)
    if key := _KEY_LIKE.match(text):
        return OddCharacter(key[0][-1], line, column + key.end() - 1)
    at = next((at for at in (0, len(text) - 1) if re.match(_BLANK, text[at])), None)
    return OddCharacter(text[at], line, column + at) if at is not None else None
