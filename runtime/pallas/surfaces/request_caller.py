"""Finds the caller of a request: the one the gate let in, else the holder of the bearer token."""

from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

from pallas.access.identity import unverified_principal
from pallas.model import Principal

PRINCIPAL: Final = "pallas.principal"
"""The scope's key for the caller that the gate let in."""


def principal_in(scope: Scope) -> Principal:
    """Return the caller that the gate verified; else the unchecked identity of a bearer; else anonymous."""
    verified = scope.get(PRINCIPAL)
    if isinstance(verified, Principal):
        return verified
    return unverified_principal(bearer_in(Headers(scope=scope).get("authorization")))


def bearer_in(authorization: str | None) -> str | None:
    """Return the token of an ``Authorization`` header; None without one, and for another scheme."""
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None
