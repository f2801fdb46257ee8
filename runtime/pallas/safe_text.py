"""Makes text from outside safe to show: no character of it may drive a terminal, reorder a line or hide."""

import re
import unicodedata
from collections.abc import Callable
from functools import cache, lru_cache
from operator import is_
from typing import Any, Final

_SHORT_FORMS: Final = {"\x1b": "␛", "\x7f": "␡"}

_UNSEEN_CATEGORIES: Final = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
# Default_Ignorable_Code_Point of Unicode, the whole property: Python's tables do not have it.
_DEFAULT_IGNORABLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_MARKS: Final = frozenset(("Mn", "Me"))

_JOINER: Final = "\u200d"
_SELECTORS: Final = "".join(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
_TAIL: Final = _JOINER + _SELECTORS
"""What may end a cut text without what it belongs to."""
_PICTURE: Final = (
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
# The emoji that have a style as text and one as picture, in Unicode's property Emoji.
_STYLED: Final = (
    "["
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u231a\u231b\u2328\u23cf\u23e9-\u23f3"
    "\u23f8-\u23fa\u24c2\u25aa\u25ab\u25b6\u25c0\u25fb-\u25fe\u2600-\u2604\u260e\u2611\u2614\u2615"
    "\u2618\u261d\u2620\u2622\u2623\u2626\u262a\u262e\u262f\u2638-\u263a\u2640\u2642\u2648-\u2653\u265f"
    "\u2660\u2663\u2665\u2666\u2668\u267b\u267e\u267f\u2692-\u2697\u2699\u269b\u269c\u26a0\u26a1\u26a7"
    "\u26aa\u26ab\u26b0\u26b1\u26bd\u26be\u26c4\u26c5\u26c8\u26ce\u26cf\u26d1\u26d3\u26d4\u26e9\u26ea"
    "\u26f0-\u26f5\u26f7-\u26fa\u26fd\u2702\u2705\u2708-\u270d\u270f\u2712\u2714\u2716\u271d\u2721"
    "\u2728\u2733\u2734\u2744\u2747\u274c\u274e\u2753-\u2755\u2757\u2763\u2764\u2795-\u2797\u27a1\u27b0"
    "\u27bf\u2934\u2935\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u3030\u303d\u3297\u3299"
    "\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa\U0001f400-\U0001faff]"
)
# Unified_Ideograph: a selector after one chooses its form.
_IDEOGRAPH: Final = (
    "[\u3400-\u4dbf\u4e00-\u9fff\ufa0e\ufa0f\ufa11\ufa13\ufa14\ufa1f\ufa21\ufa23\ufa24\ufa27-\ufa29"
    "\U00020000-\U0002ee5d\U00030000-\U000323af]"
)


# A joiner between two pictures, and one selector after a character that has several forms, are parts of what
# is seen.
@cache
def _seen_parts() -> re.Pattern[str]:
    """Compiled when first used: every start imports this module."""
    return re.compile(
        f"(?:(?<={_PICTURE})|(?<={_PICTURE}\ufe0f)){_JOINER}(?={_PICTURE})"
        f"|(?:(?<={_STYLED})[\ufe0e\ufe0f]|(?<={_IDEOGRAPH})[\U000e0100-\U000e01ef])(?![{_SELECTORS}])"
        "|(?<=[0-9#*])\ufe0f(?=\u20e3)"
    )


@lru_cache(8192)
def is_invisible(character: str) -> bool:
    """Whether no reader sees the character: a control, a format, or one that Unicode says is not drawn.

    Newline and tab count as seen.
    """
    if character in "\n\t":
        return False
    unseen = unicodedata.category(character) in _UNSEEN_CATEGORIES
    return unseen or _DEFAULT_IGNORABLE.match(character) is not None


@lru_cache(8192)
def _is_mark(character: str) -> bool:
    return unicodedata.category(character) in _MARKS and not is_invisible(character)


def _form(character: str) -> str:
    code = ord(character)
    form = f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return _SHORT_FORMS.get(character, form)


def json_escape(character: str) -> str:
    r"""Return the character as JSON escapes it: ``\u202e``, and two such forms beyond U+FFFF."""
    units = character.encode("utf-16-be", "surrogatepass")
    pairs = (units[index : index + 2] for index in range(0, len(units), 2))
    return "".join(f"\\u{pair.hex()}" for pair in pairs)


def without_seen_parts(text: str) -> str:
    """``text`` without the invisible parts of emoji and selectors of an ideograph's form."""
    return text if text.isascii() else _seen_parts().sub("", text)


def replace_invisible(text: str, replace: Callable[[str], str]) -> str:
    """``text`` with each invisible character replaced, except the parts of an emoji or ideograph."""
    forms = {ord(each): replace(each) for each in set(text) if is_invisible(each)}
    if not forms:
        return text
    pieces: list[str] = []
    end = 0
    for part in _seen_parts().finditer(text):
        pieces += (text[end : part.start()].translate(forms), part[0])
        end = part.end()
    return "".join((*pieces, text[end:].translate(forms)))


def sanitize(text: str, limit: int | None = None) -> str:
    r"""``text`` with every character that could drive a terminal, reorder a line or hide in a visible form.

    Those are all invisible characters outside an emoji or ideograph, and marks without a letter to stand on.
    Newlines and tabs stay; ``\r\n`` becomes ``\n``. With ``limit`` the result has at most that many
    characters and ends in an ellipsis if something was cut. Idempotent.

    For people who look at a screen; what a model or a program reads must stay as it is.
    """
    cut = limit is not None and len(text) > limit
    if not cut and text.isascii() and text.isprintable():
        return text
    if cut:
        text = text[:limit].rstrip(_TAIL)
    text = text.replace("\r\n", "\n")
    clean = replace_invisible(text if text.isascii() else _without_bare_marks(text), _form)
    if limit is not None and (cut or len(clean) > limit):
        clean = clean[: limit - 1].rstrip(_TAIL) + "…"
    return clean


_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def without_controls(text: str, limit: int | None = None) -> str:
    r"""``text`` as data: every letter, joiner, mark and direction stays as it is.

    Only what drives a terminal, or cannot be encoded, has a visible form; ``\r\n`` becomes ``\n``. With
    ``limit`` as ``sanitize``.
    """
    cut = limit is not None and len(text) > limit
    clean = _CONTROLS.sub(lambda match: _form(match[0]), text[:limit].replace("\r\n", "\n"))
    return f"{clean[: limit - 1]}…" if limit is not None and (cut or len(clean) > limit) else clean


def _without_bare_marks(text: str) -> str:
    """``text`` with each mark in its visible form that has no character to stand on, or too many before it.

    It would change the cell before it, cover the lines around it, or not be seen.
    """
    characters = set(text)
    marks = "".join(sorted(filter(_is_mark, characters)))
    if not marks:
        return text
    no_base = re.escape("".join(sorted({"\n", "\t", *filter(is_invisible, characters)})))
    bare = re.compile(rf"(?:\A|(?<=[{no_base}]))[{re.escape(marks)}]+")
    emoji = {part.end() for part in _seen_parts().finditer(text)}

    def shown(match: re.Match[str]) -> str:
        return match[0] if match.start() in emoji else "".join(map(_form, match[0]))

    stack = re.compile(f"([{re.escape(marks)}]{{{_MOST_MARKS}}})([{re.escape(marks)}]+)")
    return stack.sub(lambda found: found[1] + "".join(map(_form, found[2])), bare.sub(shown, text))


_MOST_MARKS: Final = 12
"""Marks on one letter that are drawn; no script has as many."""
_CONTEXT: Final = _MOST_MARKS + 4
"""Characters that can decide how the next one is shown."""


class PieceSanitizer:
    """Sanitises a text that arrives in pieces, which may be cut at any character."""

    def __init__(self) -> None:
        self._before = self._held = ""

    def feed(self, piece: str) -> str:
        """Return what is shown for this piece; its end waits where the next one decides how it is shown."""
        text = self._held + piece
        ready = text.rstrip(f"\r{_TAIL}")
        self._held = text[len(ready) :]
        return self._shown(ready)

    def end(self) -> str:
        """Return what waits; the next piece begins another text."""
        shown = self._shown(self._held)
        self._before = self._held = ""
        return shown

    def _shown(self, text: str) -> str:
        before = self._before
        self._before = (before + text)[-_CONTEXT:]
        return sanitize(before + text)[len(sanitize(before)) :]


def handle_start(handle: str) -> str:
    """The beginning of a handle, enough to tell two apart: the whole handle would give access."""
    return one_line(handle, 9)


_LONE: Final = re.compile("[\ud800-\udfff]")


def has_lone_surrogate(text: str) -> bool:
    """Whether ``text`` contains half of a surrogate pair, which cannot be encoded."""
    return not text.isascii() and _LONE.search(text) is not None


def encodable(value: Any) -> Any:
    """A JSON value with each lone surrogate replaced; the value itself if there is none."""
    if isinstance(value, str):
        return _LONE.sub("\ufffd", value) if has_lone_surrogate(value) else value
    if isinstance(value, dict):
        found: Any = {encodable(key): encodable(each) for key, each in value.items()}
        same = all(map(is_, found.values(), value.values())) and all(map(is_, found, value))
        return value if same else found
    if isinstance(value, list):
        found = [encodable(each) for each in value]
        return value if all(map(is_, found, value)) else found
    return value


def one_line(text: str, limit: int = 200) -> str:
    """The first non-empty line of ``text``, sanitised, at most ``limit`` characters."""
    head = text[: limit * 8].strip()
    line = next((part.strip() for part in head.split("\n") if part.strip()), "")
    return sanitize(line, limit).replace("\t", " ")
