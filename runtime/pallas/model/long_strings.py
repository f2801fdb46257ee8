"""How steps keep a long string: in its place by its length and digest, and once as a whole.

A picture has its length and digest in a request, and is kept with its question or its result.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

MAX_STRING: Final = 32 * 1024
"""Longest string that is kept in its place; a longer one is replaced by its length and digest."""
MAX_TEXT: Final = 16 * 1024 * 1024
"""Most characters of a long string that is kept."""
LEFT_OUT: Final = re.compile(r"\[\d+ characters, SHA-256 ([0-9a-f]{64})\]")
"""What ``shortened`` puts in place of a string; a prefix of a data URL may precede it."""
_IN_JSON: Final = re.compile(
    r'(?<!\\)(?<!"data":)(?<!"data": )"\[(\d+) characters, SHA-256 ([0-9a-f]{64})\]"'
)
"""The same as the whole of a string, but for the data of pictures."""
_STRING: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


@dataclass(frozen=True, slots=True)
class LongText:
    """A long string as a whole. ``digest`` is the one that is kept in its place."""

    digest: str
    text: str


def digest_of(text: str) -> str:
    """The digest that is kept in place of a long string."""
    return sha256(text.encode("utf-8", "replace")).hexdigest()


def is_data_url(text: str) -> bool:
    """Whether a string is a picture, or another file, in base64."""
    head, comma, _ = text[:64].partition(",")
    return bool(comma) and head.startswith("data:") and head.endswith(";base64")


def shortened(text: str) -> str:
    """A string in its place: one that is too long is replaced by its length and digest."""
    if len(text) <= MAX_STRING:
        return text
    kind = text[:64].partition(",")[0] if is_data_url(text) else ""
    return f"{kind}[{len(text)} characters, SHA-256 {digest_of(text)}]"


def shortened_json(text: str) -> tuple[str, tuple[LongText, ...]]:
    """A JSON text with its long strings shortened, and these, but for those that are too long to be kept."""
    if len(text) <= MAX_STRING:
        return text, ()
    found: dict[str, LongText] = {}

    def put(match: re.Match[str]) -> str:
        value = json.loads(match[0], strict=False) if match.end() - match.start() > MAX_STRING else ""
        if not MAX_STRING < len(value) <= MAX_TEXT or is_data_url(value):
            return match[0]
        digest = digest_of(value)
        found[digest] = LongText(digest, value)
        return json.dumps(shortened(value))

    return _STRING.sub(put, text), tuple(found.values())


def left_out(text: str) -> dict[str, int]:
    """The lengths of the strings that a JSON text has shortened, by digest; of pictures there is none."""
    if "characters, SHA-256" not in text:
        return {}
    return {match[2]: int(match[1]) for match in _IN_JSON.finditer(text)}


def lacking_line(length: int, why: str = "") -> str:
    """Says of a long string why it is not kept; without a reason that it is too long."""
    return f"a text of {length} characters: {why or f'{MAX_TEXT} is the most'}"


def whole_json(text: str, texts: Mapping[str, str]) -> str:
    """A JSON text with the strings that were shortened as a whole again: those in ``texts``, by digest."""
    if not texts:
        return text
    return _IN_JSON.sub(lambda match: json.dumps(texts[match[2]]) if match[2] in texts else match[0], text)
