"""Who gets to the page: a key that works once, then a cookie; no other site, no made-up name."""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from pallas.surfaces.host_guard import LOCAL_NAMES, host_of, host_of_origin

PARAMETER: Final = "key"
MAX_COOKIES: Final = 32
"""Browsers that are known at once; the oldest is forgotten first."""
_NO_KEY: Final = (
    "This page belongs to the user who started it. Open the address that `pallas dev --web` has printed in "
    "its terminal; each address works once.\n"
)
_HEADERS: Final = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Door:
    """Checks every request of the web server bound to ``host``; ``used`` hears that a new key is valid.

    ``Host`` must be a loopback name, ``host``, or where that is a wildcard any address in digits: a page of
    someone else reaches us only by a name it made up. A WebSocket must come from our own page.
    """

    def __init__(self, host: str, used: Callable[[], None] = lambda: None) -> None:
        self._host = host_of(host) or host.lower()
        self._anywhere = self._host in ("0.0.0.0", "::", "")
        self._used = used
        self._cookie = f"pallas_{secrets.token_hex(4)}"
        self._known: list[bytes] = []
        self._key = secrets.token_urlsafe(32)

    @property
    def key(self) -> str:
        """What the next address has to carry. A secret: shown in the terminal of who started us, no more."""
        return self._key

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let a request through, or answer it."""
        answer = await self._answer(request, handler)
        if not answer.prepared:
            answer.headers.update(_HEADERS)
        return answer

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        hosts = request.headers.getall("host", [])
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return web.Response(status=421, text="Misdirected Request: this server has another name.\n")
        origins = request.headers.getall("origin", [])
        websocket = request.headers.get("upgrade", "").lower() == "websocket"
        if (websocket and len(origins) != 1) or any(not _same(origin, hosts[0]) for origin in origins):
            return web.Response(status=403, text="Forbidden: another site may not use this page.\n")
        if self._is_known(request.cookies.get(self._cookie, "")):
            if PARAMETER in request.query and request.path == "/":
                return _moved()
            return await handler(request)
        if request.method == "GET" and request.path == "/" and self._opens(request.query.get(PARAMETER, "")):
            return self._let_in()
        return web.Response(status=401, text=_NO_KEY)

    def _is_ours(self, authority: str) -> bool:
        host = host_of(authority)
        if host is None:
            return False
        return host in LOCAL_NAMES or host == self._host or (self._anywhere and _is_address(host))

    def _opens(self, key: str) -> bool:
        if not hmac.compare_digest(_digest(key), _digest(self._key)):
            return False
        self._key = secrets.token_urlsafe(32)
        return True

    def _let_in(self) -> web.Response:
        """Exchange the key, which stays in the browser's history, for a cookie, which no script can read."""
        ticket = secrets.token_urlsafe(32)
        self._known = [*self._known, _digest(ticket)][-MAX_COOKIES:]
        answer = _moved()
        answer.set_cookie(self._cookie, ticket, httponly=True, samesite="Strict", path="/")
        self._used()
        return answer

    def _is_known(self, ticket: str) -> bool:
        digest = _digest(ticket)
        return any(hmac.compare_digest(digest, known) for known in self._known)


def _moved() -> web.Response:
    return web.Response(status=303, headers={"location": "/"})


def _same(origin: str, authority: str) -> bool:
    """Whether an ``Origin`` is the very page that is asked for, host and port."""
    scheme, _, rest = origin.partition("://")
    return scheme in ("http", "https") and rest.lower() == authority.lower() and bool(host_of_origin(origin))


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()
