"""Finds the caller of a REST request: by the project's ``auth:``, or by a token of the control API."""

import logging
from collections.abc import Callable
from typing import Final

from starlette.types import Scope

from pallas.config.auth import AuthConfig
from pallas.model import Fault, FaultType, Principal, TokenScope, refusals
from pallas.model.fingerprint import fingerprint
from pallas.model.grant_rules import CONTROL_FULL, CONTROL_READ
from pallas.surfaces.auth import auth_challenge
from pallas.surfaces.auth.auth_gate import one_bearer
from pallas.surfaces.auth.inbound_auth import FLEET, Inbound
from pallas.surfaces.auth.token_outcome import TokenRefused, Unavailable, Verified
from pallas.surfaces.control.control_tokens import ControlTokens, is_loopback
from pallas.surfaces.request_caller import principal_in

log = logging.getLogger(__name__)

_NEEDED: Final = (
    # Not `token: ...`: the text after it would be masked as a token.
    "the API of this fleet needs a token, one of auth: in agents.yaml or that of PALLAS_CONTROL_TOKEN; "
    "send it as a bearer in the Authorization header"
)
_CLOSED: Final = (
    "the API of this fleet is closed to all but the user who started it, on the same machine: the fleet "
    "listens beyond this machine and was given no token. For others put PALLAS_CONTROL_TOKEN=... (16 "
    "characters or more) into .env beside agents.yaml, or write bind: 127.0.0.1, and restart the fleet"
)
_RETRY: Final = 5.0


class Authenticator:
    """Authenticates callers. ``tokens`` are those of the control API, None if it has none.

    If any token is accepted, a wrong one is always refused, and an address that sends several has to wait,
    as at the agents' own ports. A caller without a token is anonymous if grant rules limit what it may do,
    or if no token is required.
    """

    def __init__(self, inbound: Inbound, tokens: Callable[[], ControlTokens | None]) -> None:
        self._inbound = inbound
        self._tokens = tokens

    async def __call__(self, scope: Scope) -> Principal:
        """Return the principal. Raises Fault: AUTH (unauthenticated, forbidden, too_many), TRANSPORT."""
        given = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
        auth, grants, tokens = self._inbound.auth_of(FLEET), self._inbound.grants, self._tokens()
        address = str((scope.get("client") or ("unknown", 0))[0])
        unruled = auth is None and not grants.ruled
        if unruled and grants.enforced and _is_closed(tokens, address, given):
            raise refusals.unauthenticated(_CLOSED, closed=True)
        if not given:
            if grants.ruled or (auth is None and not grants.enforced):
                return Principal()
            raise refusals.unauthenticated(_NEEDED)
        token = one_bearer(given)
        if (controls := _control(tokens, token, address)) is not None:
            self._let_in(address, controls)
            # If no authentication is configured, the caller is the same as over MCP: it has the same threads.
            anonymous = unruled and grants.enforced and controls.is_local
            return Principal(credential=controls.credential, is_local=True) if anonymous else controls
        if auth is None and not grants.enforced:
            return principal_in(scope)
        verified = await self._verified(auth, token, address)
        self._let_in(address, verified.principal)
        missing = [each for each in auth.scopes if each not in verified.scopes] if auth is not None else []
        if missing:
            raise refusals.forbidden(auth_challenge.SCOPE, scope=" ".join(missing))
        return verified.principal

    async def _verified(self, auth: AuthConfig | None, token: str | None, address: str) -> Verified:
        try:
            if token is None:
                raise TokenRefused("it is not a single bearer token")
            if auth is None:
                raise TokenRefused("it is not a token of the control API, and no other is accepted")
            verified = await self._inbound.verifier.verify(auth, token)
            if verified.own:
                raise TokenRefused("it is that of the fleet itself", guess=False)
        except TokenRefused as why:
            if (seconds := self._inbound.wait(address)) > 0:
                raise refusals.too_many(auth_challenge.TOO_MANY, seconds) from None
            if why.guess:
                self._inbound.failed(address)
            shown = f", fingerprint {fingerprint(token)}" if token else ""
            log.info("api: a token was refused: %s, from %s%s", why, address, shown)
            raise refusals.unauthenticated(auth_challenge.WRONG, error="invalid_token") from None
        except Unavailable as why:
            log.warning("api: a token could not be checked: %s", why)
            raise Fault(FaultType.TRANSPORT, auth_challenge.UNSURE, data={"retry_after": _RETRY}) from None
        return verified

    def _let_in(self, address: str, principal: Principal) -> None:
        if (seconds := self._inbound.wait(address, principal.id)) > 0:
            raise refusals.too_many(auth_challenge.TOO_MANY, seconds)
        self._inbound.came(address, principal.id)


def _control(tokens: ControlTokens | None, token: str | None, address: str) -> Principal | None:
    """Return the principal of a token of the control API, None for any other token."""
    caller = tokens.caller_of(token, address) if tokens is not None and token is not None else None
    if tokens is None or caller is None:
        return None
    is_full = caller.scope is TokenScope.FULL
    return Principal(
        CONTROL_FULL if is_full else CONTROL_READ, caller.fingerprint, is_local=is_full and tokens.local
    )


def _is_closed(tokens: ControlTokens | None, address: str, given: list[bytes]) -> bool:
    """Return whether no credential from that address could be accepted."""
    if tokens is None:
        return True
    return tokens.local and (not given or (not tokens.read and not is_loopback(address)))
