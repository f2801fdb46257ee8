"""Limits on the number of values in one message of an MCP server."""

import re
from collections.abc import Mapping
from typing import Any, Final

from . import MAX_ENTRIES, MAX_NODES, MAX_PARTS

_STRING: Final = re.compile(rb'"(?:[^"\\]+|\\.)*+"', re.DOTALL)
_STRING_TEXT: Final = re.compile(_STRING.pattern.decode(), re.DOTALL)
_ENTRIES: Final = ("tools", "prompts", "resources", "resourceTemplates", "messages")


def too_many_nodes(message: bytes | str) -> str | None:
    """The problem with the JSON text of a message that has more than ``MAX_NODES`` objects and arrays, else
    None.
    """
    if _nodes(message) <= MAX_NODES:  # counts those within strings too, and is seldom exceeded
        return None
    plain = _STRING.sub(b"", message) if isinstance(message, bytes) else _STRING_TEXT.sub("", message)
    if _nodes(plain) <= MAX_NODES:
        return None
    return f"the message holds more than {MAX_NODES:,} objects and arrays"


def _nodes(message: bytes | str) -> int:
    if isinstance(message, bytes):
        return message.count(b"{") + message.count(b"[")
    return message.count("{") + message.count("[")


def too_many_parts(result: Mapping[str, Any]) -> str | None:
    """The problem with a result that has too many content parts or entries, else None."""
    for key in ("content", "contents"):
        parts = result.get(key)
        if isinstance(parts, list) and len(parts) > MAX_PARTS:
            return f"the result has {len(parts):,} content parts; at most {MAX_PARTS:,} are taken"
    for key in _ENTRIES:
        entries = result.get(key)
        if isinstance(entries, list) and len(entries) > MAX_ENTRIES:
            return f"the result lists {len(entries):,} {key}; at most {MAX_ENTRIES:,} are taken"
    return None
