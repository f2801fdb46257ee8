"""Sessions of the handshake era: who opened each, and who may use it.

The SDK compares the credential of a request with that which opened the session, and answers "Session not
found". Here it is the caller that counts, and a caller who claims the same unverified identity, or shows a
token in a session that was opened without one, may go on with it (``pallas.identity``). The SDK is then shown
the session's own caller, and stays the second check: a session that is not known here is its to refuse.
"""

import json
from collections import OrderedDict
from typing import Final

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp_types import INVALID_REQUEST
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pallas.identity import OTHER_IDENTITY, may_continue
from pallas.model import Principal

from .caller import principal_in

MAX_SESSIONS: Final = 10_000
_REFUSED: Final = f"Session not found: it was {OTHER_IDENTITY}; or open a session of your own"
_NO_SCOPES: Final[list[str]] = []


class McpSessions:
    """ASGI middleware in front of the MCP SDK, for the sessions of one endpoint."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._owners: OrderedDict[str, Principal] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on in the name of its session's caller, or refuse it (404)."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        caller = principal_in(scope)
        session = Headers(scope=scope).get(MCP_SESSION_ID_HEADER)
        owner = self._owners.get(session) if session is not None else None
        if owner is not None and not may_continue(owner.id, caller, secret=True):
            await _refuse(scope, send)
            return

        async def note(message: Message) -> None:
            if message["type"] == "http.response.start" and session is None:
                self._opened(Headers(raw=message.get("headers", [])).get(MCP_SESSION_ID_HEADER), caller)
            await send(message)

        await self._app(_in_the_name_of(owner or caller, scope), receive, note)

    def _opened(self, session: str | None, caller: Principal) -> None:
        if session is None:
            return
        self._owners[session] = caller
        if len(self._owners) > MAX_SESSIONS:
            self._owners.popitem(last=False)


def _in_the_name_of(caller: Principal, scope: Scope) -> Scope:
    """The request as the SDK compares it: by the caller's id and not by its token."""
    if caller == Principal():
        return scope
    known = AccessToken(token="", client_id=caller.id, scopes=_NO_SCOPES)
    return {**scope, "user": AuthenticatedUser(known)}


async def _refuse(scope: Scope, send: Send) -> None:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": INVALID_REQUEST, "message": _REFUSED}}
    raw = b"" if scope["method"] == "HEAD" else json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(raw)).encode())]
    await send({"type": "http.response.start", "status": 404, "headers": headers})
    await send({"type": "http.response.body", "body": raw})
