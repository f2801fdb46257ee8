"""Who makes a request: whom the gate let in, else whoever holds the bearer that came along."""

from typing import Final

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from pallas.conversations import principal_of
from pallas.model import Principal

PRINCIPAL: Final = "pallas.principal"
"""The key of the scope under which the gate puts who it let in."""
_NOTHING: Final[list[str]] = []


def principal_in(scope: Scope) -> Principal:
    """Whom the gate verified; without one who a bearer says to be, unchecked; anonymous without either."""
    verified = scope.get(PRINCIPAL)
    if isinstance(verified, Principal):
        return verified
    return principal_of(bearer_in(Headers(scope=scope).get("authorization")))


def bearer_in(authorization: str | None) -> str | None:
    """The token of an ``Authorization`` header; None without one, and for another scheme."""
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


class CallerOfRequest:
    """ASGI middleware that tells the MCP SDK who makes a request, by the id of the principal.

    The SDK then serves a session to whoever opened it and says "Session not found" (404) to all others. It is
    the caller that counts, not the token: one that was refreshed goes on with its sessions.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with its caller where it has one."""
        if scope["type"] == "http" and (principal := principal_in(scope)) != Principal():
            known = AccessToken(token="", client_id=principal.id, scopes=_NOTHING)
            scope = {**scope, "user": AuthenticatedUser(known)}
        await self._app(scope, receive, send)
