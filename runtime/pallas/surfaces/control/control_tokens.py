"""The tokens of the control API, and their scopes."""

import hashlib
import hmac
import os
import secrets
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final

from pallas.model import TokenScope
from pallas.model.fingerprint import fingerprint
from pallas.surfaces.token_attempts import BURST as BURST
from pallas.surfaces.token_attempts import Attempts as Attempts

FULL_VARIABLE: Final = "PALLAS_CONTROL_TOKEN"
TEXTS_VARIABLE: Final = "PALLAS_CONTROL_TEXTS_TOKEN"
READ_VARIABLE: Final = "PALLAS_CONTROL_READ_TOKEN"
VARIABLES: Final = (FULL_VARIABLE, TEXTS_VARIABLE, READ_VARIABLE)
MIN_LENGTH: Final = 16
MAX_LENGTH: Final = 512


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """The sender of a request: the scope and the fingerprint of their token."""

    scope: TokenScope
    fingerprint: str


@dataclass(frozen=True, slots=True)
class ControlTokens:
    """The tokens of one fleet, empty for none. Never shown, not even by ``repr``.

    ``local`` says that the fleet made the full token itself and keeps it in a file of its user: then it is
    valid on this machine only.
    """

    full: str = field(default="", repr=False)
    read: str = field(default="", repr=False)
    local: bool = False
    texts: str = field(default="", repr=False)

    def caller_of(self, presented: str, address: str) -> TokenHolder | None:
        """The holder of that token; None for a wrong one. Takes the same time in both cases.

        ``address`` is where the request comes from.
        """
        digest = _digest(presented)
        found: TokenScope | None = None
        for token, scope in self._known():
            same = hmac.compare_digest(_digest(token), digest)
            found = scope if token and same else found
        if found is TokenScope.FULL and self.local and not is_loopback(address):
            return None
        return TokenHolder(found, fingerprint(presented)) if found is not None else None

    def _known(self) -> tuple[tuple[str, TokenScope], ...]:
        return (self.read, TokenScope.READ), (self.texts, TokenScope.TEXTS), (self.full, TokenScope.FULL)

    @property
    def given(self) -> tuple[str, ...]:
        """The tokens that are set."""
        return tuple(token for token, _ in self._known() if token)


def is_loopback(host: str) -> bool:
    """Whether ``host`` is a loopback address or ``localhost``."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def make_token() -> str:
    """A new token of 256 random bits."""
    return secrets.token_urlsafe(32)


_PAIRS: Final = (
    (READ_VARIABLE, FULL_VARIABLE, "not be read-only"),
    (TEXTS_VARIABLE, FULL_VARIABLE, "not be read-only"),
    (READ_VARIABLE, TEXTS_VARIABLE, "show conversations"),
)
# Taken out of the environment; a fleet that is started again in this process needs it again.
_taken: dict[str, str] = {}


def take_tokens(environ: MutableMapping[str, str] = os.environ) -> tuple[ControlTokens, tuple[str, ...]]:
    """Take the tokens out of the environment; returns them, and the mistakes in them, a line each.

    Child processes do not inherit them. A wrong one is left out; the caller makes none in its place.
    """
    problems: list[str] = []
    found: dict[str, str] = {}
    for name in VARIABLES:
        if (value := environ.pop(name, "").strip()) or (value := _taken.get(name, "")):
            _taken[name] = value
            if problem := _problem(value):
                problems.append(f"{name} {problem}")
            else:
                found[name] = value
    tokens = ControlTokens(
        found.get(FULL_VARIABLE, ""), found.get(READ_VARIABLE, ""), texts=found.get(TEXTS_VARIABLE, "")
    )
    for name, other, why in _PAIRS:
        if name in found and other in found and hmac.compare_digest(found[name], found[other]):
            problems.append(f"{name} is the same as {other}, so it would {why}")
    return tokens, tuple(problems)


def _problem(token: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token:
        return "must be ASCII letters, digits and signs without blanks"
    if not MIN_LENGTH <= len(token) <= MAX_LENGTH:
        return (
            f"has {len(token)} characters; {MIN_LENGTH} to {MAX_LENGTH} are allowed, for example what "
            "`openssl rand -hex 32` prints"
        )
    return ""


def _digest(token: str) -> bytes:
    # Of the same length for any input, so that not even the length of a token can be measured.
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
