"""The unverified identity of a bearer that no one checked, and the conversations that it may continue.

Without ``auth:`` a token proves nothing. A JWT still names an issuer and a subject, so that a client with a
new token for each turn keeps its conversation. Such an identity is unverified: anyone can claim it. It may
continue what a handle names, and nothing else. Lists, searches and administration compare whole principals,
which are the same only for the same token or a verified caller.
"""

import re
from typing import Any, Final

from pallas.access.bearer_lease import payload_of
from pallas.model import Fault, Principal
from pallas.model.fingerprint import fingerprint
from pallas.model.refusals import not_found

_MAX_CLAIM: Final = 500
_MINTED: Final = re.compile(r"conv-[A-Za-z0-9_-]{24}")
_UUID: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE
)
OTHER_IDENTITY: Final = (
    "opened with another identity; send the token it was opened with, or one of the same issuer and subject"
)


def unverified_principal(bearer: str | None) -> Principal:
    """The principal of a token that no one checked; anonymous without a token.

    Its id holds salted fingerprints only: of the token, and of the issuer and subject if a JWT names them.
    """
    if not bearer:
        return Principal()
    shown = fingerprint(bearer)
    claim = _claim(bearer)
    return Principal(f"bearer:{shown}.{claim}" if claim else f"bearer:{shown}", shown)


def may_continue(owner: str, caller: Principal, *, secret: bool) -> bool:
    """Whether ``caller`` may continue what the principal with the id ``owner`` began, by its handle.

    The same principal always may. An unverified caller may if the owner is unverified and claims the same
    issuer and subject, or if the owner sent no token and the handle is ``secret``: such a handle is what
    protects it from callers without a token too.
    """
    if owner == caller.id:
        return True
    if not caller.is_unverified:
        return False
    if owner == Principal().id:
        return secret
    claim = Principal(owner).claim
    return bool(claim) and claim == caller.claim


def minted(handle: str | None) -> bool:
    """Whether a handle looks like one that Pallas made."""
    return handle is not None and _MINTED.fullmatch(handle) is not None


def is_secret(handle: str) -> bool:
    """Whether a handle cannot be guessed: made by Pallas, or a random UUID."""
    return minted(handle) or _UUID.fullmatch(handle) is not None


def other_identity(what: str, **data: Any) -> Fault:
    """The Fault for a caller that knows a secret handle but is not its owner."""
    return not_found(f"{what} not found: it was {OTHER_IDENTITY}", **data)


def _claim(token: str) -> str:
    """The fingerprint of the issuer and subject that a JWT claims; empty for other tokens."""
    claims = payload_of(token)
    named = [claims.get("iss"), claims.get("sub")]
    if not all(
        isinstance(each, str) and 0 < len(each) <= _MAX_CLAIM and each.isprintable() for each in named
    ):
        return ""
    return fingerprint(f"claimed\0{named[0]}\0{named[1]}")
