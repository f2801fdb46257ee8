"""Records the JSON-RPC traffic of runs: bodies and headers, masked before they are stored, and bounded.

Bytes that pass a socket are not encoded a second time for this. One event loop only; readers from other
threads go through that loop.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from time import perf_counter, time
from typing import Final

from pallas.model import Exchange, Side
from pallas.model.fingerprint import fingerprint
from pallas.model.redaction import (
    MASK,
    Spellings,
    beyond_cut,
    forget,
    is_sensitive,
    redact,
    redact_head,
    redact_text,
)
from pallas.safe_text import one_line, without_controls
from pallas.telemetry.ring_store import RingStore

MAX_BODY: Final = 64 * 1024
"""Most characters of one request or response that are stored."""
MAX_BYTES: Final = 16 * 1024 * 1024
MAX_RUNS: Final = 200
MAX_EXCHANGES: Final = 500
"""Most exchanges of one run that are stored; the oldest are dropped."""
MAX_HEADERS: Final = 60
MAX_HEADER: Final = 500

_CREDENTIALS: Final = re.compile(
    r"auth|cookie|secret|token|passw|credential|api-?key|signature", re.IGNORECASE
)
_HARMLESS: Final = frozenset({"www-authenticate", "proxy-authenticate"})
# Headers without credentials. They are most, and masking is slow.
# fmt: off
_PLAIN: Final = frozenset({
    "accept", "accept-encoding", "accept-language", "cache-control", "connection", "content-length",
    "content-type", "date", "host", "mcp-method", "mcp-protocol-version", "server", "traceparent",
    "transfer-encoding", "user-agent", "vary", "x-accel-buffering",
})
# fmt: on
_PRINTABLE: Final = re.compile(r"[\x20-\x7e]{0,200}")
# A whole handle gives access to the conversation.
_HANDLE: Final = re.compile(
    r"(?P<head>\\*\"(?:[\w.-]{1,40}/)?conversation_?id\\*\"\s*:\s*\\*\"[^\"\\]{8})[^\"\\]+", re.IGNORECASE
)
# Named like a secret but none, and in nearly every request.
_PROGRESS: Final = '"progressToken"'
_PROGRESS_MARK: Final = '"progress\0"'
# A masked number or word without quotes gets quotes, so that the stored text stays JSON.
_BARE: Final = re.compile(r'(?<!\\)("\s*:\s*)\[redacted\](?=\s*[,}\]])')
# As `\x9b` they would make the text invalid JSON.
_LATIN_CONTROLS: Final = re.compile("[\x80-\x9f\u00ad]")
_METHOD: Final = re.compile(rb'"method"\s*:\s*"([^"\\]{1,60})"')
# The method is at the beginning of a message, before parameters that may be large.
_HEAD: Final = 4096

Headers = Iterable[tuple[str, str]]


def method_in(body: bytes) -> str:
    """The JSON-RPC method of a request's body; empty if there is none at its beginning."""
    found = _METHOD.search(body[:_HEAD])
    return found[1].decode("ascii", "replace") if found else ""


def clean_headers(headers: Headers) -> tuple[tuple[str, str], ...]:
    """Headers for the record: each credential replaced by a fingerprint, all else masked and on one line."""
    cleaned: list[tuple[str, str]] = []
    for name, value in headers:
        if len(cleaned) == MAX_HEADERS:
            break
        if name.lower() in _PLAIN and _PRINTABLE.fullmatch(value):
            cleaned.append((name, value))
        else:
            cleaned.append((one_line(name, 80), _header(name.lower(), value)))
    return tuple(cleaned)


def _header(name: str, value: str) -> str:
    if name == "mcp-session-id":
        return one_line(value[:8], 8) + "…"
    if name not in _HARMLESS and (_CREDENTIALS.search(name) or is_sensitive(name)):
        scheme, _, credential = value.strip().partition(" ")
        if "authorization" in name and credential:
            return f"{one_line(scheme, 20)} [key {fingerprint(credential.strip())}]"
        return f"[key {fingerprint(value)}]" if value else ""
    return one_line(redact_text(value), MAX_HEADER)


def clean_body(raw: bytes, more: bool = False) -> tuple[str, bool]:
    """A body for the record, and whether it was cut; ``more`` says that ``raw`` is incomplete."""
    text = raw.decode("utf-8", "replace")
    cut = more or len(text) > MAX_BODY
    if not cut:
        return masked(text), False
    return redact_head(text, MAX_BODY, partial(masked, cut=more)), True


def masked(text: str, known: Spellings | None = None, *, cut: bool = False) -> str:
    """A JSON text as data, with its secrets masked; ``known`` and ``cut`` as in ``redact_text``."""
    text = redact_text(text.replace(_PROGRESS, _PROGRESS_MARK), known, cut=cut)
    if MASK in text:
        text = _BARE.sub(r'\1"[redacted]"', text)
    text = text.replace(_PROGRESS_MARK, _PROGRESS)
    if "onversation" in text:
        text = _HANDLE.sub(r"\g<head>…", text)
    if not text.isascii():
        text = _LATIN_CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    return without_controls(text)


def clean_again(exchange: Exchange) -> Exchange:
    """An exchange that another process masked, without the secrets that only this one knows."""
    return replace(
        exchange,
        peer=one_line(redact_text(exchange.peer), 80),
        method=one_line(redact_text(exchange.method), 60),
        request=masked(exchange.request, cut=exchange.cut),
        response=masked(exchange.response, cut=exchange.cut),
        request_headers=headers_again(exchange.request_headers),
        response_headers=headers_again(exchange.response_headers),
    )


def headers_again(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Headers that another process masked; credentials in them are fingerprints already."""
    return tuple((redact_text(name), redact_text(value, cut=True)) for name, value in headers)


class Body:
    """Collects the bytes of a body; of a server-sent event stream the last message.

    It holds a bounded number of bytes, a little more than is stored.
    """

    def __init__(self, *, events: bool = False) -> None:
        self._limit = 4 * MAX_BODY + beyond_cut()
        self._events = events
        self._kept = bytearray()
        self._last: tuple[bytes, bool] = (b"", False)
        self._more = False
        self._line = bytearray()

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        if not self._events:
            self._store(data)
            return
        lines = data.split(b"\n")
        for line in lines[:-1]:
            self._end_line(line)
        self._grow_line(lines[-1])

    def end(self) -> tuple[bytes, bool]:
        """The collected bytes of the body or the last message, and whether there were more."""
        if self._events:
            self._end_line(b"")
            self._end_event()
            return self._last
        return bytes(self._kept), self._more

    def _store(self, data: bytes) -> None:
        room = self._limit - len(self._kept)
        self._kept += data[:room]
        self._more = self._more or len(data) > room

    def _grow_line(self, data: bytes) -> None:
        room = self._limit - len(self._line)
        self._line += data[:room]
        self._more = self._more or len(data) > room

    def _end_line(self, data: bytes) -> None:
        self._grow_line(data)
        line = self._line.rstrip(b"\r")
        self._line = bytearray()
        if not line:
            self._end_event()
        elif line.startswith(b"data:"):
            self._store(bytes(line[5:].strip()))

    def _end_event(self) -> None:
        if self._kept:
            self._last = bytes(self._kept), self._more
        self._kept, self._more = bytearray(), False


class OpenExchange:
    """One exchange from its request on. ``value`` is its current state."""

    __slots__ = ("_began", "_run", "is_recorded", "number", "value")

    def __init__(self, run: "RunWire", value: Exchange, number: int = 0) -> None:
        self._run = run
        self.number = number
        self._began = perf_counter()
        self.is_recorded = True
        self.value = value

    def head(self, status: int | None, headers: Headers = ()) -> None:
        """Record status and headers of the response."""
        self.put(replace(self.value, status=status, response_headers=clean_headers(headers)))

    def end(self, raw: bytes, more: bool = False, *, secret: str | None = None) -> None:
        """Record the response's body. ``secret`` is masked in it, in addition to what the log masks.

        After the run its caller's token can no longer be masked: a body that arrives then without ``secret``
        is not stored.
        """
        text, cut = "", False
        if secret is not None or self._run.live:
            if secret:
                redact(secret)
            try:
                text, cut = clean_body(raw, more)
            finally:
                if secret:
                    forget(secret)
        self.close(replace(self.value, response=text, cut=self.value.cut or cut))

    def close(self, value: Exchange | None = None) -> None:
        """End the exchange, with or without a response."""
        value = value or self.value
        self.put(replace(value, seconds=perf_counter() - self._began))

    def put(self, value: Exchange) -> None:
        """Replace its state."""
        if self.is_recorded:
            by = _size(value) - _size(self.value)
            self.value = value
            self._run.grow(by)
            self._run.tell(self)


class RunWire:
    """The exchanges of one run, oldest first. ``live`` is False once the run is over.

    ``tell`` is called with each exchange that is new or changed.
    """

    __slots__ = ("_made", "_record", "exchanges", "live", "run_id", "tell")

    def __init__(self, record: "WireRecord", run_id: str) -> None:
        self._record = record
        self._made = 0
        self.run_id = run_id
        self.exchanges: deque[OpenExchange] = deque()
        self.live = True
        self.tell: Callable[[OpenExchange], None] = _ignore

    def begin(
        self,
        side: Side,
        peer: str,
        method: str,
        raw: bytes,
        *,
        more: bool = False,
        headers: Headers = (),
        span_id: str = "",
    ) -> OpenExchange:
        """Record a request that was sent or received."""
        text, cut = clean_body(raw, more)
        value = Exchange(
            run_id=self.run_id,
            at=time(),
            side=side,
            peer=one_line(peer, 80),
            method=one_line(method, 60),
            request=text,
            request_headers=clean_headers(headers),
            span_id=span_id,
            cut=cut,
        )
        return self.add(value)

    def add(self, value: Exchange) -> OpenExchange:
        """Add an exchange that is clean already, for example one of a child process."""
        self._made += 1
        opened = OpenExchange(self, value, self._made)
        if self._record.of(self.run_id) is not self:
            opened.is_recorded = False  # newer runs have pushed this one out
            return opened
        self.exchanges.append(opened)
        if len(self.exchanges) > MAX_EXCHANGES:
            self.drop_oldest()
        self.grow(_size(value))
        self.tell(opened)
        return opened

    def grow(self, by: int) -> None:
        """Add bytes to the size of the record."""
        self._record.grow(by)

    @property
    def count(self) -> int:
        """The number of exchanges."""
        return len(self.exchanges)

    def drop_oldest(self) -> None:
        """Forget its oldest exchange."""
        oldest = self.exchanges.popleft()
        oldest.is_recorded = False
        self._record.grow(-_size(oldest.value))


class WireRecord(RingStore[RunWire]):
    """The exchanges of the last runs: at most ``MAX_RUNS`` runs and ``MAX_BYTES`` together."""

    def __init__(self, max_bytes: int = MAX_BYTES, max_runs: int = MAX_RUNS) -> None:
        super().__init__(max_bytes, max_runs)

    def open(self, run_id: str) -> RunWire:
        """Begin the record of a run."""
        return self.put(run_id, RunWire(self, run_id))

    def exchanges(self, run_id: str) -> tuple[Exchange, ...]:
        """The exchanges of a run, oldest first; empty if it is not recorded."""
        run = self.of(run_id)
        return tuple(each.value for each in run.exchanges) if run is not None else ()


def _ignore(exchange: OpenExchange) -> None:
    pass


def _size(value: Exchange) -> int:
    """About how much memory it takes, in bytes."""
    texts = [value.request, value.response]
    for headers in (value.request_headers, value.response_headers):
        texts += [part for pair in headers for part in pair]
    return 400 + sum(len(text) if text.isascii() else 4 * len(text) for text in texts)
