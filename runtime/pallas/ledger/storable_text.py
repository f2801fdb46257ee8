"""Text and ids in a form that databases accept."""

import re
from typing import Final

from sqlalchemy import Dialect, Text, TypeDecorator

from pallas.model.ids import random_hex

# Characters that databases refuse, and that properly decoded text does not contain.
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


def new_id() -> str:
    """A new id of 96 random bits."""
    return random_hex(12)


def storable(text: str) -> str:
    """``text`` with the characters that databases refuse made visible."""
    if text.isascii() and "\0" not in text:
        return text
    return _UNSTORABLE.sub(_visible, text)


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code else "\\x00"


class Words(TypeDecorator[str]):
    """A text column that accepts any text. A search for text that cannot be stored finds nothing."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Called by SQLAlchemy with every value sent to the database."""
        return storable(value) if value is not None else None
