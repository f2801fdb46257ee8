"""Says who shows a token: one of the project's own, or one that an issuer signed."""

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from time import time
from typing import Any, Final

from pallas.config.auth import AuthConfig, IssuerConfig
from pallas.model import Principal
from pallas.model.fingerprint import fingerprint, subject_id

from .issuer_keys import KeySet
from .jwt import claims_of, looks_like_jwt, scopes_of
from .static_tokens import MAX_TOKEN, find_token
from .token_outcome import TokenRefused, Verified

OWN: Final = "fleet"
_MAX_SETS: Final = 64


class Verifier:
    """Checks tokens for all agents of one fleet. Belongs to its event loop.

    What is taken is asked of the configuration at each call, so nothing has to be told of a change. ``own``
    is a token of the fleet itself, made anew for each: with it the fleet lists what its agents serve.
    """

    def __init__(self, clock: Callable[[], float] = time) -> None:
        self._clock = clock
        self.own = secrets.token_urlsafe(32)
        self._sets: OrderedDict[str, KeySet] = OrderedDict()

    def __repr__(self) -> str:
        return f"Verifier({len(self._sets)} key sets)"

    async def verify(self, auth: AuthConfig, token: str) -> Verified:
        """Who holds ``token``. Raises Refused, Unavailable."""
        if len(token) > MAX_TOKEN:
            raise TokenRefused(f"it has more than {MAX_TOKEN} characters")
        if hmac.compare_digest(self.own.encode(), token.encode("utf-8", "replace")):
            return Verified(Principal(OWN, fingerprint(token)), own=True)
        known = find_token(auth.tokens.values(), token, self._clock())
        if known is not None:
            scopes = frozenset(known.scopes)
            return Verified(Principal(f"token:{known.name}", fingerprint(token), scopes), scopes)
        if not auth.issuers or not looks_like_jwt(token):
            raise TokenRefused("nobody has such a token")
        issuer, claims = await claims_of(token, auth.issuers.values(), self._key)
        who = subject_id(issuer.name, issuer.issuer, claims["sub"])
        scopes = scopes_of(claims)
        return Verified(Principal(who, fingerprint(token), scopes), scopes)

    def close(self) -> None:
        """Give up what is being fetched."""
        for keys in self._sets.values():
            keys.close()

    async def _key(self, issuer: IssuerConfig, kid: str | None, algorithm: str) -> Any:
        if issuer.secret:
            return issuer.secret.encode()
        if issuer.pem:
            return issuer.pem
        keys = self._sets.get(issuer.jwks_url)
        if keys is None:
            keys = self._sets[issuer.jwks_url] = KeySet(issuer.jwks_url)
            if len(self._sets) > _MAX_SETS:
                self._sets.popitem(last=False)[1].close()
        return await keys.find(kid, algorithm)
