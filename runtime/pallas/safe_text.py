"""Makes text from outside safe to show: no character of it may drive a terminal or reorder a line."""

import re
from operator import is_
from typing import Any, Final

_ESCAPES: Final = {0x1B: "␛", 0x7F: "␡"}


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return _ESCAPES.get(code) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


# C0 except tab and newline, DEL, C1; bidirectional controls; zero-width and other invisible formats;
# line and paragraph separators; lone surrogates, which no encoder takes. A joiner stays between two pictures,
# which are one emoji together.
_PICTURE: Final = "\u2190-\u2bff\U0001f000-\U0001faff"
_HOSTILE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    rf"\ud800-\udfff]|(?<![{_PICTURE}\ufe0f])\u200d|\u200d(?![{_PICTURE}])"
)


def sanitize(text: str, limit: int | None = None) -> str:
    """``text`` with every character that could drive a terminal or reorder a line replaced by a visible form.

    Newlines and tabs stay; ``\\r\\n`` becomes ``\\n``. With ``limit`` the result has at most that many
    characters and ends in an ellipsis if something was cut. Idempotent.
    """
    cut = limit is not None and len(text) > limit
    if not cut and text.isascii() and text.isprintable():
        return text
    if cut:
        text = text[:limit].rstrip("\u200d")
    clean = _HOSTILE.sub(_visible, text.replace("\r\n", "\n"))
    if limit is not None and (cut or len(clean) > limit):
        clean = clean[: limit - 1].rstrip("\u200d") + "…"
    return clean


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
