"""JWT checks: issuer, audience, lifetime, and a signature by one of the issuer's keys."""

import base64
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import jwt
from jwt.exceptions import (
    ExpiredSignatureError,
    ImmatureSignatureError,
    InvalidAudienceError,
    InvalidIssuerError,
    InvalidSignatureError,
    MissingRequiredClaimError,
    PyJWTError,
)

from pallas.config.auth import IssuerConfig

from .token_outcome import TokenRefused

LEEWAY: Final = 30
"""Seconds by which an issuer's clock may be wrong."""
# An access token has this type or none; other types (a logout, a proof) are not access tokens.
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})
_REQUIRED: Final = ("exp", "iss", "aud", "sub")
_MAX_SCOPES: Final = 200

type KeyOf = Callable[[IssuerConfig, str | None, str], Awaitable[Any]]
"""Returns an issuer's key by key id and algorithm. Raises TokenRefused, Unavailable."""


async def claims_of(
    token: str, issuers: Iterable[IssuerConfig], key_of: KeyOf
) -> tuple[IssuerConfig, Mapping[str, Any]]:
    """Return the issuer and claims of a valid token. Raises TokenRefused, Unavailable."""
    head, body, _ = token.split(".")
    header, claimed = _decoded(head), _decoded(body)
    issuer = next((each for each in issuers if each.issuer == claimed.get("iss")), None)
    if issuer is None:
        raise TokenRefused("its issuer is not accepted")
    algorithm, kid, typ = header.get("alg"), header.get("kid"), header.get("typ")
    if not isinstance(algorithm, str) or algorithm not in issuer.algorithms:
        raise TokenRefused("its algorithm is not accepted")
    if algorithm.startswith("HS") != bool(issuer.secret):  # a public key must not serve as a shared secret
        raise TokenRefused("its algorithm is not accepted")
    if typ is not None and (not isinstance(typ, str) or typ.lower() not in _TYPES):
        raise TokenRefused("it is a signed token, but not an access token (typ)")
    if "crit" in header or (kid is not None and not isinstance(kid, str)):
        raise TokenRefused("its header has a critical extension or an invalid kid")
    key = await key_of(issuer, kid, algorithm)
    return issuer, _checked(token, issuer, algorithm, key)


def scopes_of(claims: Mapping[str, Any]) -> frozenset[str]:
    """Return the scopes of a token: ``scope``, else ``scp``; either is a list or a text of words."""
    for name in ("scope", "scp"):
        if (given := claims.get(name)) is not None:
            words = given.split(" ") if isinstance(given, str) else given if isinstance(given, list) else []
            return frozenset(word for word in words[:_MAX_SCOPES] if isinstance(word, str) and word)
    return frozenset()


def _checked(token: str, issuer: IssuerConfig, algorithm: str, key: Any) -> Mapping[str, Any]:
    try:
        claims: Mapping[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=list(issuer.audience),
            issuer=issuer.issuer,
            leeway=LEEWAY,
            options={"require": list(_REQUIRED), "enforce_minimum_key_length": True},
        )
    # The signature is checked first: the other errors are only for tokens of that issuer.
    except InvalidSignatureError:
        raise TokenRefused(f"its signature is not one of {issuer.name}") from None
    except ExpiredSignatureError:
        raise TokenRefused("it has expired (exp)", guess=False) from None
    except ImmatureSignatureError:
        raise TokenRefused("it is not valid yet (nbf, iat)", guess=False) from None
    except InvalidAudienceError:
        raise TokenRefused("it is meant for another audience (aud)", guess=False) from None
    except InvalidIssuerError:
        raise TokenRefused("it has another issuer (iss)", guess=False) from None
    except MissingRequiredClaimError as error:
        missing = error.claim if error.claim in _REQUIRED else "something"
        raise TokenRefused(f"it lacks {missing}", guess=False) from None
    except (PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise TokenRefused(f"it cannot be read ({type(error).__name__})") from None
    if not isinstance(claims["sub"], str) or not claims["sub"]:
        raise TokenRefused("it has no subject (sub)", guess=False)
    return claims


def _decoded(part: str) -> Mapping[str, Any]:
    try:
        value = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        raise TokenRefused("it is not a JWT") from None
    if not isinstance(value, dict):
        raise TokenRefused("it is not a JWT")
    return value
