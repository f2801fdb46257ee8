"""Whose a handshake-era session is: that of the credential that opened it, and nobody else's."""

from typing import Final

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from pallas.conversations import principal_of

from .calls import bearer_in

_NOTHING: Final[list[str]] = []


class CallerOfRequest:
    """ASGI middleware that tells the MCP SDK who makes a request, by a fingerprint of the bearer.

    The SDK then serves a session to whoever opened it and says "Session not found" (404) to all others.
    Nothing is checked: a token that nobody knows is a caller like any other. The token itself stays out.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with its caller where it has one."""
        if scope["type"] == "http" and (bearer := bearer_in(Headers(scope=scope).get("authorization"))):
            known = AccessToken(token="", client_id=principal_of(bearer).id, scopes=_NOTHING)
            scope = {**scope, "user": AuthenticatedUser(known)}
        await self._app(scope, receive, send)
