"""How steps keep a long string, such as a picture: by its length and digest."""

import re
from hashlib import sha256
from typing import Final

MAX_STRING: Final = 32 * 1024
"""Longest string of a request that is stored; a longer one is replaced by its length and digest."""
LEFT_OUT: Final = re.compile(r"\[\d+ characters, SHA-256 ([0-9a-f]{64})\]")
"""What ``shortened`` puts in place of a string; a prefix of a data URL may precede it."""


def shortened(text: str) -> str:
    """A string as it is stored: one that is too long is replaced by its length and digest."""
    if len(text) <= MAX_STRING:
        return text
    digest = sha256(text.encode("utf-8", "replace")).hexdigest()
    head, comma, _ = text[:64].partition(",")
    kind = head if comma and head.startswith("data:") else ""
    return f"{kind}[{len(text)} characters, SHA-256 {digest}]"
