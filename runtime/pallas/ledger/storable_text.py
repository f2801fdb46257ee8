"""Text and ids as databases take them."""

import re
import secrets
from typing import Final

from sqlalchemy import Dialect, Text, TypeDecorator

# No database takes them, and no text that was read properly has them.
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


def new_id() -> str:
    """An id for whatever has no better one: 96 random bits."""
    return secrets.token_hex(12)


def storable(text: str) -> str:
    """``text`` without the characters that a database refuses; they are made visible."""
    if text.isascii() and "\0" not in text:
        return text
    return _UNSTORABLE.sub(_visible, text)


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code else "\\x00"


class Words(TypeDecorator[str]):
    """A column of text that takes any, and may be asked for any: what cannot be stored is not found."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Called by the library with every value on its way to the database."""
        return storable(value) if value is not None else None
