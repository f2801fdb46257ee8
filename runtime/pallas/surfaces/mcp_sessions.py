"""Sessions of the handshake era: the caller that opened each, who may use it, and how many a caller may
hold.

The SDK compares the credential of a request with that which opened the session, and answers "Session not
found" if they differ. This middleware compares callers instead: a caller that claims the same unverified
identity, or shows a token in a session that was opened without one, may use the session
(``pallas.access.identity``). The request is then passed to the SDK as the session's own caller; the SDK
stays the second check and refuses unknown sessions.

With worker processes a client may reach another process than the one that opened its session. Then ids are
signed (``session_seal``): a process that does not hold a session opens it again, in the name of its caller,
within the same limits. Each process ends its copy when it is idle; DELETE ends the session in all of them.

An `initialize` costs its sender nothing. So sessions that were opened and never used end when there are
many of them, those of the caller with the most first, and each caller holds a limited number.
"""

import asyncio
import ipaddress
import json
import logging
from collections import Counter, OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
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
from pallas.model.ids import mint
from pallas.surfaces.whole_answer import answer, answer_json

from .message_check import REQUEST_ID
from .request_caller import PRINCIPAL, principal_in
from .send_message_call import SEALED_SESSION
from .session_messages import OWN_SCOPE, SESSION_HEADER, ClientNote, HeldAnswer, own_request, reading, with_id
from .session_seal import NOTE, SessionClaims, SessionSeal

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
_UNKNOWN: Final = "Session not found"
_IN_PROGRESS: Final = "a request with this id is in progress in this session; each needs an id of its own"
_MAX_HANDSHAKE: Final = 65_536
_MAX_PASSING: Final = 100
_PASS_S: Final = 10.0
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
    requests: dict[str, Scope] = field(default_factory=dict)
    """Its requests in progress by their ids, as the SDK compares them."""
    claims: SessionClaims | None = None

    def answered(self, request_id: str, scope: Scope) -> None:
        """Let a client use the id of this request again; another one may have it already."""
        if self.requests.get(request_id) is scope:
            del self.requests[request_id]


class McpSessions:
    """ASGI middleware in front of the MCP SDK, for the sessions of one endpoint. One event loop only.

    With ``seal`` other processes accept the ids of these sessions at the endpoint of the same ``name``.
    """

    def __init__(self, app: ASGIApp, seal: SessionSeal | None = None, name: str = "") -> None:
        self._app = app
        self._seal = seal
        self.name = name
        self._held_here: dict[str, str] = {}  # the SDK's id by the conversation of a sealed one
        self._opening: dict[str, asyncio.Lock] = {}
        self._passing: set[asyncio.Task[None]] = set()
        if seal is not None:
            seal.endpoints.add(self)
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
        if session is not None and self._seal is not None:
            await self._continue(session, self._seal, caller, scope, receive, send)
            return
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

    async def _continue(
        self,
        sealed: str,
        seal: SessionSeal,
        caller: Principal,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Use the session that a signed id names, which this process opens again if it does not hold it."""
        claims = seal.read(sealed)
        if claims is None or claims.endpoint != self.name:
            await _refuse(scope, send, 404, INVALID_REQUEST, _UNKNOWN)
            return
        if not may_continue(claims.owner, caller, secret=True):
            await _refuse(scope, send, 404, INVALID_REQUEST, _REFUSED)
            return
        session = self._held_by(claims)
        if session is None and not seal.is_fresh(claims):
            await _refuse(scope, send, 404, INVALID_REQUEST, _UNKNOWN)
            return
        if scope["method"] == "DELETE":
            seal.end(claims)
            if session is None:
                await answer(scope, send, 200, b"")
                return
        if session is None:
            session = await self._open_again(claims, scope, send)
        if session is None:
            return
        found = self._all[session]
        headers = [(name, value) for name, value in scope["headers"] if name.lower() != SESSION_HEADER]
        headers.append((SESSION_HEADER, session.encode()))
        inner = {**scope, "headers": headers, SEALED_SESSION: claims.conversation}
        note = ClientNote()
        await self._use(session, found, inner, note.reading(receive), note.showing(sealed, send))
        if scope["method"] == "POST" and note.body:
            seal.others.tell(NOTE, [self.name, claims.conversation, note.body])

    def hear(self, conversation: str, body: str) -> None:
        """Pass on what a client sent to another process, where this one holds its session too.

        It may cancel a call, or answer a question, of this process.
        """
        session = self._held_here.get(conversation)
        if session is None or session not in self._all or len(self._passing) >= _MAX_PASSING:
            return
        raw = body.encode()
        scope = _in_the_name_of(self._all[session].owner, own_request(OWN_SCOPE, session, raw))
        task = asyncio.create_task(self._pass_on(scope, raw), name="note of an MCP session")
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)

    async def _pass_on(self, scope: Scope, raw: bytes) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_PASS_S):
                await self._app(scope, reading(raw), _nowhere)

    def _held_by(self, claims: SessionClaims) -> str | None:
        session = self._held_here.get(claims.conversation)
        return session if session in self._all else None

    async def _open_again(self, claims: SessionClaims, scope: Scope, send: Send) -> str | None:
        """Open a session of another process here as well; None if there is no room, which is answered."""
        lock = self._opening.setdefault(claims.conversation, asyncio.Lock())
        try:
            async with lock:  # two requests of one client may come at once
                if (session := self._held_by(claims)) is not None:
                    return session
                owner = Principal(claims.owner)
                answer = HeldAnswer()
                body = json.dumps(claims.handshake).encode()
                await self._open(owner, own_request(scope, None, body), reading(body), answer.send, claims)
                if (session := self._held_by(claims)) is None:
                    await answer.replay(send)
                    return None
                note = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode()
                inner = _in_the_name_of(owner, own_request(scope, session, note))
                await self._app(inner, reading(note), _nowhere)
                return session
        finally:
            if not lock.locked():
                self._opening.pop(claims.conversation, None)

    async def _use(self, session: str, found: _Session, scope: Scope, receive: Receive, send: Send) -> None:
        request = scope.get(REQUEST_ID)
        request_id = str(request)

        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                if message["status"] == 200:  # a message that is no request is 202
                    self._is_used(session, found)
                over = scope["method"] == "DELETE" and message["status"] < 300
                if message["status"] == 404 or over:
                    self._forget(session)
            elif request is not None and not message.get("more_body"):
                found.answered(request_id, scope)  # before the client has the whole answer
            await send(message)

        if request is not None and request_id in found.requests:
            await _refuse(scope, send, 400, INVALID_REQUEST, _IN_PROGRESS, request)
            return
        if request is not None:
            found.requests[request_id] = scope
        found.under_way += 1
        self._touch(session, found)
        try:
            await self._app(_in_the_name_of(found.owner, scope), receive, note)
        finally:
            found.under_way -= 1
            if request is not None:
                found.answered(request_id, scope)
            self._touch(session, found)

    async def _open(
        self,
        principal: Principal,
        scope: Scope,
        receive: Receive,
        send: Send,
        claims: SessionClaims | None = None,
    ) -> None:
        """Open a session if there is room; ``claims`` are those of one that another process has opened."""
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
        said = bytearray()

        async def note(message: Message) -> None:
            nonlocal session
            if message["type"] == "http.response.start" and message["status"] < 400:
                session = Headers(raw=message.get("headers", [])).get(MCP_SESSION_ID_HEADER)
                if session is not None:
                    self._all[session] = opened = _Session(principal, caller, monotonic())
                    self._unused.setdefault(caller, OrderedDict())[session] = None
                    if self._seal is not None:
                        opened.claims = claims or self._claims_of(said, principal)
                        self._held_here[opened.claims.conversation] = session
                        message = with_id(self._seal.seal(opened.claims), message)
            await send(message)

        async def listened() -> Message:
            message = await receive()
            if len(said) <= _MAX_HANDSHAKE:
                said.extend(message.get("body", b""))
            return message

        try:
            for each, owner in ended:
                await self._end(each, owner, scope)
            reads = receive if self._seal is None else listened
            await self._app(_in_the_name_of(principal, scope), reads, note)
        finally:
            if session is None:
                self._count(caller, -1)

    def _claims_of(self, said: bytes | bytearray, principal: Principal) -> SessionClaims:
        """The claims of a session that this ``initialize`` opened; the SDK has accepted it."""
        params: dict[str, Any] = {}
        with suppress(ValueError):  # too long for us to read
            params = json.loads(said).get("params") or {}
        return SessionClaims.of_handshake(params, self.name, mint(), principal.id)

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
            if found.claims is not None:
                self._held_here.pop(found.claims.conversation, None)

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
    return f"Too many open sessions: {what}; end those that are done with DELETE, or try again later"


async def _nothing_more() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _nowhere(_: Message) -> None:
    return None


async def _refuse(
    scope: Scope, send: Send, status: int, code: int, message: str, request_id: int | str | None = None
) -> None:
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}
    headers = {"retry-after": str(_RETRY)} if status == 503 else {}
    await answer_json(scope, send, status, body, headers)
