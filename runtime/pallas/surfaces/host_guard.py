"""Host and Origin protection: a web page must not reach an agent by DNS rebinding."""

import logging
import re
from collections.abc import Collection
from ipaddress import ip_address
from time import monotonic
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from pallas.config.models import Project
from pallas.safe_text import one_line
from pallas.surfaces.whole_answer import answer

log = logging.getLogger(__name__)

LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_WILDCARDS: Final = frozenset({"", "0.0.0.0", "::", "*"})
_AUTHORITY: Final = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9._-]{1,253}))(?::[0-9]{1,5})?"
)
_WILD: Final = re.compile(r"[*?]")
# The port may be a wildcard too: ports are not compared.
_WILD_ENTRY: Final = re.compile(r"(?P<name>[A-Za-z0-9._*?-]{1,253})(?::(?:[0-9]{1,5}|\*))?")
_ORIGIN: Final = re.compile(r"https?://(?P<authority>[^/?#@]+)", re.IGNORECASE)
# A client that floods us with bad requests must not fill the log as well.
_TELL_EVERY: Final = 60.0


def allowed_hosts_of(project: Project, bind: str) -> frozenset[str]:
    """Return the hosts that a listener of ``project`` bound to ``bind`` answers to.

    These are ``host`` from agents.yaml, that of ``public_url``, the localhost names, the bind address
    unless it is a wildcard, and ``allowed_hosts``. This machine's own name is not guessed: add it to
    ``allowed_hosts`` to use it.
    """
    public = host_of_origin("/".join(project.public_url.split("/", 3)[:3])) or ""
    named = [project.host, public, *project.allowed_hosts, *([] if bind in _WILDCARDS else [bind])]
    return LOCAL_NAMES | {host for entry in named if (host := _entry(entry))}


class HostOriginGuard:
    """ASGI middleware: 421 unless ``Host`` is allowed, 403 if there is an ``Origin`` that is not (PR-8).

    Hosts are compared without port, without a trailing dot and regardless of case; localhost names always
    pass. In an entry ``*`` matches one part of a name or a piece of it, never a dot, and ``?`` matches one
    character. A missing, repeated or malformed ``Host`` is 421, an ``Origin`` that is no http(s) origin
    403.
    """

    def __init__(self, app: ASGIApp, allowed_hosts: Collection[str]) -> None:
        self._app = app
        self._told = -_TELL_EVERY
        self._refused = 0
        self.allow(allowed_hosts)

    def allow(self, allowed_hosts: Collection[str]) -> None:
        """Replace the allowed hosts from the next request on; localhost names still pass."""
        allowed = {host for entry in allowed_hosts if (host := _entry(entry))}
        self._allowed = LOCAL_NAMES | {host for host in allowed if not _WILD.search(host)}
        self._patterns = tuple(_pattern(host) for host in allowed if _WILD.search(host))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        hosts = _values(scope, b"host")
        origins = _values(scope, b"origin")
        if len(hosts) != 1 or not self._is_allowed(host_of(hosts[0])):
            self._tell("Host", hosts)
            await _refuse(scope, send, 421, _MISDIRECTED)
        elif origins and (len(origins) != 1 or not self._is_allowed(host_of_origin(origins[0]))):
            self._tell("Origin", origins)
            await _refuse(scope, send, 403, _FORBIDDEN)
        else:
            await self._app(scope, receive, send)

    def _is_allowed(self, host: str | None) -> bool:
        if host is None:
            return False
        return host in self._allowed or any(pattern.fullmatch(host) for pattern in self._patterns)

    def _tell(self, header: str, values: list[str]) -> None:
        self._refused += 1
        if monotonic() - self._told >= _TELL_EVERY:
            shown_hosts = one_line(", ".join(values), 100) or "none"
            log.warning(
                "refused %d request(s), the last for its %s header (%s);"
                " allowed_hosts: in agents.yaml adds names",
                self._refused,
                header,
                shown_hosts,
            )
            self._told, self._refused = monotonic(), 0


# What the caller sent is not repeated in the answer.
_MISDIRECTED: Final = (
    b"Misdirected Request: this server does not answer to the host name in the Host header. "
    b"Add the name to allowed_hosts: in agents.yaml if it is one of yours.\n"
)
_FORBIDDEN: Final = (
    b"Forbidden: requests from the web origin in the Origin header are not allowed. "
    b"Add its host to allowed_hosts: in agents.yaml if it is one of yours.\n"
)


async def _refuse(scope: Scope, send: Send, status: int, body: bytes) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    text = "text/plain; charset=utf-8"
    await answer(scope, send, status, body, {"connection": "close"}, media_type=text)


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]


def host_of_origin(origin: str) -> str | None:
    """Return the normalized host of an http(s) origin, or None if it is none."""
    match = _ORIGIN.fullmatch(origin)
    return host_of(match["authority"]) if match else None


def host_of(authority: str) -> str | None:
    """Return the normalized host of ``host[:port]``, or None if it is malformed."""
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        return None
    if match["v6"] is None:
        return str(match["name"]).removesuffix(".").lower() or None
    try:
        return ip_address(match["v6"]).compressed
    except ValueError:
        return None


def _entry(written: str) -> str | None:
    """Return the host of an entry in agents.yaml: an IPv6 address may be without brackets."""
    text = written.strip()
    try:
        return ip_address(text).compressed
    except ValueError:
        pass
    if match := _WILD_ENTRY.fullmatch(text):
        return str(match["name"]).removesuffix(".").lower()
    return host_of(text)


def _pattern(entry: str) -> re.Pattern[str]:
    written = re.escape(entry).replace(r"\*", "[a-z0-9_-]*").replace(r"\?", "[a-z0-9_-]")
    return re.compile(written)
