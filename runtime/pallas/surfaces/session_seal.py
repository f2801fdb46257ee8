"""Signed ids of handshake-era sessions: any process that shares the key can continue such a session.

An id carries what a process needs to open the session again: the endpoint, the caller that it is bound to,
the name of its conversation, and what the client said in its handshake. Nothing in it is secret from its own
client. It is signed, so a client can neither make one nor change it.
"""

import base64
import binascii
import hashlib
import hmac
import json
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from time import time
from typing import Any, Final, Protocol, Self
from weakref import WeakSet

from pallas.model.other_workers import OtherWorkers
from pallas.safe_text import one_line

VALID_S: Final = 24 * 3600.0
"""Seconds after its opening in which a process accepts a session that it does not hold."""
MAX_ENDED: Final = 2_000
"""Ended sessions that are remembered."""
NOTE: Final = "session note"
"""What worker processes tell each other: an endpoint, a conversation, and what a client sent there."""
_ENDED: Final = "session ended"
_MAX_ID: Final = 4_096
_MAX_CAPABILITIES: Final = 512
_MAX_NAME: Final = 60


@dataclass(frozen=True, slots=True)
class SessionClaims:
    """What the id of a session says."""

    endpoint: str
    conversation: str
    """The name of its conversation, the same in every process."""
    owner: str
    """The id of the principal that opened it."""
    opened_at: float
    version: str
    """The protocol version that the client asked for."""
    client: tuple[str, str]
    """The client's name and version of itself."""
    capabilities: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_handshake(cls, params: Mapping[str, Any], endpoint: str, conversation: str, owner: str) -> Self:
        """Those of a session that these parameters of ``initialize`` opened."""
        info, offers = params.get("clientInfo"), params.get("capabilities")
        info = info if isinstance(info, dict) else {}
        offers = offers if isinstance(offers, dict) else {}
        if len(json.dumps(offers)) > _MAX_CAPABILITIES:  # which there are matters more than their details
            offers = {one_line(name, _MAX_NAME): {} for name in list(offers)[:8]}
        shown = (one_line(str(info.get(key, "")), _MAX_NAME) or "unknown" for key in ("name", "version"))
        name, version = shown
        asked = one_line(str(params.get("protocolVersion", "")), _MAX_NAME)
        return cls(endpoint, conversation, owner, time(), asked, (name, version), offers)

    @property
    def handshake(self) -> dict[str, Any]:
        """The ``initialize`` request that opens this session again."""
        name, version = self.client
        params = {
            "protocolVersion": self.version,
            "capabilities": self.capabilities,
            "clientInfo": {"name": name, "version": version},
        }
        return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


class SealedEndpoint(Protocol):
    """The sessions of one endpoint."""

    name: str

    def hear(self, conversation: str, body: str) -> None:
        """Take what a client of that session sent to another process."""
        ...


class SessionSeal:
    """Signs and checks the ids of sessions, and knows which have ended. Belongs to one event loop.

    ``key`` is what all processes share, ``others`` reaches them. ``ended`` tells them, and those that start
    later, the conversation of a session that ended here.
    """

    def __init__(
        self,
        key: bytes,
        others: OtherWorkers,
        *,
        ended: Callable[[str], None],
        clock: Callable[[], float] = time,
    ) -> None:
        self.adopt_key(key)
        self._tell_end = ended
        self.others = others
        self.endpoints: WeakSet[SealedEndpoint] = WeakSet()
        self._clock = clock
        self._ended: OrderedDict[str, None] = OrderedDict()

    def __repr__(self) -> str:
        return "SessionSeal()"

    def adopt_key(self, key: bytes) -> None:
        """Sign with this key from now on: call it before the first session."""
        self._key = hmac.digest(key, b"mcp session ids", hashlib.sha256)

    def join(self, others: OtherWorkers) -> None:
        """Reach these others from now on: call it before the first session."""
        self.others = others
        others.hear(NOTE, self.hear)
        others.hear(_ENDED, self.note_end)

    def seal(self, claims: SessionClaims) -> str:
        """The session's id."""
        body = json.dumps(asdict(claims), separators=(",", ":")).encode()
        return f"{_encoded(body)}.{_encoded(self._signature(body))}"

    def read(self, session: str) -> SessionClaims | None:
        """What an id says; None for one that is not ours, has been changed, is too old or has ended."""
        body, dot, signature = session.partition(".")
        if not dot or len(session) > _MAX_ID or not session.isascii():
            return None
        try:
            raw = _decoded(body)
            if not hmac.compare_digest(self._signature(raw), _decoded(signature)):
                return None
        except binascii.Error:
            return None
        given = json.loads(raw)
        claims = SessionClaims(**{**given, "client": tuple(given["client"])})
        return None if claims.conversation in self._ended else claims

    def is_fresh(self, claims: SessionClaims) -> bool:
        """Whether a process that does not hold the session may open it again."""
        return self._clock() - claims.opened_at < VALID_S

    def end(self, claims: SessionClaims) -> None:
        """Accept the session nowhere any more."""
        self.note_end(claims.conversation)
        self._tell_end(claims.conversation)
        self.others.tell(_ENDED, claims.conversation)

    def hear(self, told: tuple[str, str, str]) -> None:
        """Pass what a client sent to another process on to the endpoint that it was sent to."""
        name, conversation, body = told
        for endpoint in tuple(self.endpoints):
            if endpoint.name == name:
                endpoint.hear(conversation, body)

    def note_end(self, conversation: str) -> None:
        """Another process has ended the session of that conversation. Any thread may call it."""
        self._ended[conversation] = None
        if len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)

    def _signature(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, hashlib.sha256)


class NoOthers:
    """For fleets that share a key and nothing else: what a client sends to one of them stays there."""

    def tell(self, topic: str, body: Any) -> None:
        """Tell nobody."""

    def hear(self, topic: str, handler: Callable[[Any], object]) -> None:
        """Hear nothing."""


def seal_of_database(database: str | None) -> SessionSeal | None:
    """Of a fleet whose database other machines may share; its key is the database's, once that is open."""
    if database is None or not database.startswith("postgres"):
        return None
    return SessionSeal(os.urandom(32), NoOthers(), ended=lambda conversation: None)


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
