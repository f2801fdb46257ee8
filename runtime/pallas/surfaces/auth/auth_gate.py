"""The middleware in front of an agent's MCP server: who calls, and whether that is enough."""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from time import monotonic
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from pallas.config.auth import AuthConfig
from pallas.model.fingerprint import fingerprint
from pallas.surfaces.request_caller import PRINCIPAL
from pallas.surfaces.whole_answer import answer_json

from . import auth_challenge
from .inbound_auth import Inbound
from .public_calls import HEALTH, LISTING, Incoming, read_public
from .resource_metadata import METADATA_PATH, document, metadata_url
from .token_outcome import TokenRefused, Unavailable, Verified

log = logging.getLogger(__name__)

# A caller that floods us with wrong tokens must not fill the log as well.
_TELL_EVERY: Final = 10.0
_LOOKS: Final = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class GateScope:
    """The agent that a gate protects, ``FLEET`` for all of it, and its address by the port of the request.

    ``pages`` are paths that need no token.
    """

    agent: str
    inbound: Inbound
    resource: Callable[[int | None], str]
    pages: Collection[str] = ()


class AuthGate:
    """ASGI middleware: 401 without a valid token, 403 if it lacks a scope, 429 after too many wrong ones.

    The scope's ``PRINCIPAL`` is the caller that was let in. If no token is required, every request passes.
    Rules are looked up at each request, so that changes apply at once. A wrong token is refused even for
    public pages.
    """

    def __init__(self, app: ASGIApp, asking: GateScope) -> None:
        self._app = app
        self._asking = asking
        self._told = -_TELL_EVERY
        self._untold = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        asking = self._asking
        auth = asking.inbound.auth_of(asking.agent) if scope["type"] in ("http", "websocket") else None
        if auth is None:
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        # Use the routed path: a URL built from headers may differ.
        path = scope["path"]
        if path == METADATA_PATH:
            await self._metadata(auth, scope, send)
        elif path in asking.pages and scope["method"] in _LOOKS:
            await self._app(scope, receive, send)
        else:
            await self._admit(auth, scope, receive, send)

    async def _admit(self, auth: AuthConfig, scope: Scope, receive: Receive, send: Send) -> None:
        incoming = Incoming(receive)
        given = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
        if not given:
            passed = await read_public(scope, receive, incoming) if auth.public_health else None
            if passed is None:
                await incoming.drain()
                parameters = {"scope": " ".join(auth.scopes), "resource_metadata": self._where(auth, scope)}
                await self._refuse(scope, send, 401, "", auth_challenge.MISSING, parameters)
            else:
                await self._app(*passed, send)
            return
        address = str((scope.get("client") or ("unknown", 0))[0])
        token = one_bearer(given)
        try:
            if token is None:
                raise TokenRefused("it is not a single bearer token")
            verified = await self._asking.inbound.verifier.verify(auth, token)
        except TokenRefused as why:
            await incoming.drain()
            await self._wrong(auth, scope, send, address, token, why)
            return
        except Unavailable as why:
            self._tell(f"a token could not be checked: {why}", address, token)
            await incoming.drain()
            await auth_challenge.refuse(
                scope, send, 503, "temporarily_unavailable", auth_challenge.UNSURE, {"retry-after": "5"}
            )
            return
        if (seconds := self._asking.inbound.wait(address, verified.principal.id)) > 0:
            await incoming.drain()
            await _wait(scope, send, seconds)
            return
        await self._enter(auth, verified, address, scope, receive, send, incoming)

    async def _enter(
        self,
        auth: AuthConfig,
        verified: Verified,
        address: str,
        scope: Scope,
        receive: Receive,
        send: Send,
        incoming: Incoming,
    ) -> None:
        """Check whether the verified caller may do this."""
        if not verified.own:
            self._asking.inbound.came(address, verified.principal.id)
        scope = {**scope, PRINCIPAL: verified.principal}
        missing = [each for each in auth.scopes if each not in verified.scopes]
        if not missing and not verified.own:
            await self._app(scope, receive, send)
            return
        # The fleet itself and callers that lack a scope may only do this.
        passed: tuple[Scope, Receive] | None = None
        if verified.own or auth.public_health:
            methods = LISTING if verified.own else HEALTH
            passed = await read_public(scope, receive, incoming, methods)
        if passed is not None:
            await self._app(*passed, send)
            return
        await incoming.drain()
        self._tell(f"a token of {verified.principal.name} lacks {' '.join(missing)}", address, None)
        parameters = {"scope": " ".join(auth.scopes), "resource_metadata": self._where(auth, scope)}
        await self._refuse(scope, send, 403, "insufficient_scope", auth_challenge.SCOPE, parameters)

    async def _wrong(
        self, auth: AuthConfig, scope: Scope, send: Send, address: str, token: str | None, why: TokenRefused
    ) -> None:
        if (seconds := self._asking.inbound.wait(address)) > 0:
            await _wait(scope, send, seconds)
            return
        if why.guess:
            self._asking.inbound.failed(address)
        self._tell(f"a token was refused: {why}", address, token)
        parameters = {"resource_metadata": self._where(auth, scope)}
        await self._refuse(scope, send, 401, "invalid_token", auth_challenge.WRONG, parameters)

    async def _refuse(
        self, scope: Scope, send: Send, status: int, error: str, message: str, parameters: dict[str, str]
    ) -> None:
        header = auth_challenge.bearer(error=error, **parameters)
        await auth_challenge.refuse(
            scope, send, status, error or "token_needed", message, {"www-authenticate": header}
        )

    async def _metadata(self, auth: AuthConfig, scope: Scope, send: Send) -> None:
        if scope["method"] not in _LOOKS:
            await answer_json(scope, send, 405, {"error": "Method not allowed"}, {"allow": "GET, HEAD"})
            return
        found = document(auth, self._resource(scope))
        if found is None:
            await answer_json(scope, send, 404, {"error": "Not found"})
            return
        # Public by design: browser clients look it up as well.
        headers = {"access-control-allow-origin": "*", "cache-control": "public, max-age=60"}
        await answer_json(scope, send, 200, found, headers)

    def _resource(self, scope: Scope) -> str:
        server = scope.get("server") or ("", None)
        return self._asking.resource(server[1])

    def _where(self, auth: AuthConfig, scope: Scope) -> str:
        """Return the URL of the metadata, or an empty string if there is none."""
        resource = self._resource(scope)
        return metadata_url(resource) if document(auth, resource) is not None else ""

    def _tell(self, what: str, address: str, token: str | None) -> None:
        if monotonic() - self._told < _TELL_EVERY:
            self._untold += 1
            return
        more = f" ({self._untold} more since the last line)" if self._untold else ""
        shown = f", fingerprint {fingerprint(token)}" if token else ""
        agent = self._asking.agent or "the fleet"
        log.warning(
            "%s: %s, from %s%s%s",
            agent,
            what,
            address,
            shown,
            more,
            extra={"agent": agent, "audit": "refused"},
        )
        self._told, self._untold = monotonic(), 0


async def _wait(scope: Scope, send: Send, seconds: float) -> None:
    headers = {"retry-after": str(int(seconds) + 1)}
    await auth_challenge.refuse(scope, send, 429, "too_many_attempts", auth_challenge.TOO_MANY, headers)


def one_bearer(given: list[bytes]) -> str | None:
    """Return the bearer token; None for another scheme, several values, or characters no header may have."""
    if len(given) != 1:
        return None
    scheme, _, token = given[0].decode("latin-1").partition(" ")
    token = token.strip(" ")
    whole = token.isascii() and token.isprintable() and " " not in token
    return token if scheme.lower() == "bearer" and token and whole else None
