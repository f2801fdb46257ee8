"""Static tokens: stored as SHA-256 and compared in constant time."""

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from typing import Final

from pallas.config.auth import TokenConfig

from .token_outcome import TokenRefused

MAX_TOKEN: Final = 8 * 1024
"""Characters of a token, of either kind; a longer one is refused unread."""
PREFIX: Final = "pal_"
"""The prefix of our tokens, by which people and secret scanners recognise them."""


def make_token() -> str:
    """Return a new token of 256 random bits."""
    return PREFIX + secrets.token_urlsafe(32)


def sha256_of(token: str) -> str:
    """Return the stored hash of a token, 64 hex digits."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def find_token(tokens: Iterable[TokenConfig], presented: str, now: float) -> TokenConfig | None:
    """Return the entry of the presented token; None for an unknown one, in the same time.

    ``now`` is Unix seconds. Raises TokenRefused for an expired one.
    """
    digest = bytes.fromhex(sha256_of(presented))
    found: TokenConfig | None = None
    for each in tokens:
        same = hmac.compare_digest(bytes.fromhex(each.sha256), digest)
        found = each if same else found
    if found is not None and found.expires is not None and found.expires <= now:
        raise TokenRefused(f"token {found.name} has expired", guess=False)
    return found
