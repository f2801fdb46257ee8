"""Sessions of the handshake era: the caller that opened each, who may use it, and how many a caller may
hold.

The SDK compares the credential of a request with that which opened the session, and answers "Session not
found" if they differ. This middleware compares callers instead: a caller that claims the same unverified
identity, or shows a token in a session that was opened without one, may use the session
(``pallas.access.identity``). The request is then passed to the SDK as the session's own caller; the SDK
stays the second check and refuses unknown sessions.

An `initialize` costs its sender nothing. So sessions that were opened and never used end when there are
many of them, those of the caller with the most first, and each caller holds a limited number.
"""

import ipaddress
import json
import logging
from collections import Counter, OrderedDict
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, NamedTuple

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pallas.access.identity import OTHER_IDENTITY, may_continue
from pallas.model import Principal

from .request_caller import PRINCIPAL, principal_in

log = logging.getLogger(__name__)

MAX_SESSIONS: Final = 10_000
"""Sessions of one endpoint."""
UNVERIFIED: Final = 8_000
"""Those of all callers that no one verified: the rest is kept for verified ones."""
PER_CALLER: Final = 2_000
"""Those of one verified caller, or of one address."""
UNUSED: Final = 500
"""Those that were opened and not used yet."""
IDLE: Final = 1800.0
"""Seconds after its last request at which a session ends."""
_RETRY: Final = 5
_TELL_EVERY: Final = 10.0
_REFUSED: Final = f"Session not found: it was {OTHER_IDENTITY}; or open a session of your own"
_NO_SCOPES: Final[list[str]] = []
_NONE: Final[OrderedDict[str, None]] = OrderedDict()


class _Caller(NamedTuple):
    """The key under which a session is counted: the id of a verified principal, or an address."""

    verified: bool
    name: str

    @property
    def whose(self) -> str:
        return "of this caller" if self.verified else "from this address"


@dataclass(slots=True)
class _Session:
    owner: Principal
    caller: _Caller
    last: float
    under_way: int = 0


class McpSessions:
    """ASGI middleware in front of the MCP SDK, for the sessions of one endpoint. One event loop only."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._all: OrderedDict[str, _Session] = OrderedDict()  # the longest unused one is the first
        self._unused: dict[_Caller, OrderedDict[str, None]] = {}
        self._held: Counter[_Caller] = Counter()
        self._unverified = 0
        self._told = -_TELL_EVERY

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on as its session's caller, or refuse it (404, 503)."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        caller, headers = principal_in(scope), Headers(scope=scope)
        session = headers.get(MCP_SESSION_ID_HEADER)
        found = self._all.get(session) if session is not None else None
        if session is None or found is None:
            if session is None and _opens(scope, headers):
                await self._open(caller, scope, receive, send)
            else:
                await self._app(_in_the_name_of(caller, scope), receive, send)
        elif may_continue(found.owner.id, caller, secret=True):
            await self._use(session, found, scope, receive, send)
        else:
            await _refuse(scope, send, 404, INVALID_REQUEST, _REFUSED)

    async def _use(self, session: str, found: _Session, scope: Scope, receive: Receive, send: Send) -> None:
        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                if message["status"] == 200:  # a message that is no request is 202
                    self._is_used(session, found)
                over = scope["method"] == "DELETE" and message["status"] < 300
                if message["status"] == 404 or over:
                    self._forget(session)
            await send(message)

        found.under_way += 1
        self._touch(session, found)
        try:
            await self._app(_in_the_name_of(found.owner, scope), receive, note)
        finally:
            found.under_way -= 1
            self._touch(session, found)

    async def _open(self, principal: Principal, scope: Scope, receive: Receive, send: Send) -> None:
        verified = isinstance(scope.get(PRINCIPAL), Principal)
        address = place_of(str((scope.get("client") or ("unknown", 0))[0]))
        caller = _Caller(verified, principal.id if verified else address)
        ended: list[tuple[str, Principal]] = []
        if problem := self._no_room(caller, ended):
            for each, owner in ended:
                await self._end(each, owner, scope)
            self._tell(problem, address)
            await _refuse(scope, send, 503, INTERNAL_ERROR, problem)
            return
        # Counted from now on, so that concurrent requests cannot pass the limits.
        self._count(caller, 1)
        session: str | None = None

        async def note(message: Message) -> None:
            nonlocal session
            if message["type"] == "http.response.start" and message["status"] < 400:
                session = Headers(raw=message.get("headers", [])).get(MCP_SESSION_ID_HEADER)
                if session is not None:
                    self._all[session] = _Session(principal, caller, monotonic())
                    self._unused.setdefault(caller, OrderedDict())[session] = None
            await send(message)

        try:
            for each, owner in ended:
                await self._end(each, owner, scope)
            await self._app(_in_the_name_of(principal, scope), receive, note)
        finally:
            if session is None:
                self._count(caller, -1)

    def _no_room(self, caller: _Caller, ended: list[tuple[str, Principal]]) -> str:
        """Return why this caller gets no session; empty if it gets one.

        Appends the sessions that were dropped to make room to ``ended``.
        """
        self._drop_idle()
        every = list(self._unused)
        unverified = [each for each in every if not each.verified]
        held = self._unverified if not caller.verified else 0
        limits = (
            (PER_CALLER, self._held[caller], [caller], f"sessions {caller.whose} are open"),
            (UNVERIFIED, held, unverified, "sessions of callers without a verified token are open"),
            (MAX_SESSIONS, len(self._all), every, "sessions are open"),
        )
        for limit, open_now, others, what in limits:
            if open_now >= limit and not self._take_unused(others, ended):
                return _full(f"{limit} {what}")
        if sum(map(len, self._unused.values())) >= UNUSED:
            self._take_unused(every, ended)
        return ""

    def _take_unused(self, callers: list[_Caller], ended: list[tuple[str, Principal]]) -> bool:
        """Drop the oldest unused session of the caller that has the most; return False if there is none."""
        waiting = max((self._unused.get(each, _NONE) for each in callers), key=len, default=_NONE)
        oldest = next(iter(waiting), None)
        if oldest is None:
            return False
        ended.append((oldest, self._all[oldest].owner))
        self._forget(oldest)
        return True

    async def _end(self, session: str, owner: Principal, scope: Scope) -> None:
        """End a session as its owner would: the SDK has no other public way."""
        headers = [(MCP_SESSION_ID_HEADER.encode(), session.encode())]
        ending = {**scope, "method": "DELETE", "headers": headers}
        ending.pop("user", None)
        await self._app(_in_the_name_of(owner, ending), _nothing_more, _nowhere)

    def _is_used(self, session: str, found: _Session) -> None:
        if (waiting := self._unused.get(found.caller)) is not None:
            waiting.pop(session, None)
            if not waiting:
                del self._unused[found.caller]

    def _touch(self, session: str, found: _Session) -> None:
        found.last = monotonic()
        if session in self._all:
            self._all.move_to_end(session)

    def _forget(self, session: str) -> None:
        if (found := self._all.pop(session, None)) is not None:
            self._is_used(session, found)
            self._count(found.caller, -1)

    def _drop_idle(self) -> None:
        """Forget sessions that the SDK has ended after their idle timeout."""
        before = monotonic() - IDLE
        while self._all:
            session, oldest = next(iter(self._all.items()))
            if oldest.last > before:
                return
            if oldest.under_way:
                self._touch(session, oldest)
            else:
                self._forget(session)

    def _count(self, caller: _Caller, by: int) -> None:
        self._held[caller] += by
        if self._held[caller] <= 0:
            del self._held[caller]
        if not caller.verified:
            self._unverified += by

    def _tell(self, problem: str, address: str) -> None:
        if monotonic() - self._told >= _TELL_EVERY:
            self._told = monotonic()
            log.warning("an MCP session was refused, from %s: %s", address, problem)


def place_of(address: str) -> str:
    """Return the key under which an address is counted: for IPv6 its network, since one site has countless
    addresses."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))


def _opens(scope: Scope, headers: Headers) -> bool:
    """Return whether a request without a session may open one; tells protocol versions apart as the SDK
    does."""
    version = headers.get(MCP_PROTOCOL_VERSION_HEADER)
    return scope["method"] == "POST" and (version is None or version in HANDSHAKE_PROTOCOL_VERSIONS)


def _in_the_name_of(caller: Principal, scope: Scope) -> Scope:
    """Return the request's scope with the caller's id in place of its token, for the SDK to compare."""
    if caller == Principal():
        return scope
    known = AccessToken(token="", client_id=caller.id, scopes=_NO_SCOPES)
    return {**scope, "user": AuthenticatedUser(known)}


def _full(what: str) -> str:
    return f"Too many open sessions: {what}; end those that are done with DELETE, or come again later"


async def _nothing_more() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _nowhere(_: Message) -> None:
    return None


async def _refuse(scope: Scope, send: Send, status: int, code: int, message: str) -> None:
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    raw = b"" if scope["method"] == "HEAD" else json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(raw)).encode())]
    if status == 503:
        headers.append((b"retry-after", str(_RETRY).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": raw})
