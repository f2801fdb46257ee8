"""What runs say over the wire: raw JSON-RPC with headers, masked before it is kept, and bounded.

Nothing is encoded anew for it where bytes go over a socket. One event loop only; who reads from another
thread goes through that loop.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from time import perf_counter, time
from typing import Final

from pallas.model import Exchange, Side
from pallas.model.fingerprint import fingerprint
from pallas.model.redaction import forget, is_sensitive, longest_secret, redact, redact_text
from pallas.model.safe_text import one_line, sanitize
from pallas.telemetry.ring_store import RingStore

MAX_BODY: Final = 64 * 1024
"""Characters of one request or answer that are kept."""
MAX_BYTES: Final = 16 * 1024 * 1024
MAX_RUNS: Final = 200
MAX_EXCHANGES: Final = 500
"""Exchanges that are kept of one run; the oldest go."""
MAX_HEADERS: Final = 60
MAX_HEADER: Final = 500

# A cut may fall inside a secret and leave a stump that nothing knows: taken so much later, then dropped.
_OVERLAP: Final = 4 * 1024
_CREDENTIALS: Final = re.compile(
    r"auth|cookie|secret|token|passw|credential|api-?key|signature", re.IGNORECASE
)
_HARMLESS: Final = frozenset({"www-authenticate", "proxy-authenticate"})
# Headers that hold no credential: most of them, and masking takes its time.
# fmt: off
_PLAIN: Final = frozenset({
    "accept", "accept-encoding", "accept-language", "cache-control", "connection", "content-length",
    "content-type", "date", "host", "mcp-method", "mcp-protocol-version", "server", "traceparent",
    "transfer-encoding", "user-agent", "vary", "x-accel-buffering",
})
# fmt: on
_PRINTABLE: Final = re.compile(r"[\x20-\x7e]{0,200}")
# Who knows all of a handle may speak in that conversation.
_HANDLE: Final = re.compile(
    r"(?P<head>\\*\"(?:[\w.-]{1,40}/)?conversation_?id\\*\"\s*:\s*\\*\"[^\"\\]{8})[^\"\\]+", re.IGNORECASE
)
# The one field named like a secret that stands in nearly every request, and is none.
_PROGRESS: Final = '"progressToken"'
_PROGRESS_MARK: Final = '"progress\0"'
# A masked number or word that stood in JSON without quotes gets some: what is kept stays JSON.
_BARE: Final = re.compile(r'(?<!\\)("\s*:\s*)\[redacted\](?=\s*[,}\]])')
_METHOD: Final = re.compile(rb'"method"\s*:\s*"([^"\\]{1,60})"')
# The method stands at the beginning of a message, before parameters that may be large.
_HEAD: Final = 4096

Headers = Iterable[tuple[str, str]]


def method_in(body: bytes) -> str:
    """The JSON-RPC method of a request's body; empty when it has none at its beginning."""
    found = _METHOD.search(body[:_HEAD])
    return found[1].decode("ascii", "replace") if found else ""


def clean_headers(headers: Headers) -> tuple[tuple[str, str], ...]:
    """Headers to keep: a fingerprint in place of each credential, all else masked and on one line."""
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
    """A body to keep, and whether it was cut; ``more`` says that ``raw`` is not all of it."""
    text = raw.decode("utf-8", "replace")
    cut = more or len(text) > MAX_BODY
    text = text.replace(_PROGRESS, _PROGRESS_MARK)
    if cut:
        overlap = max(_OVERLAP, longest_secret())
        text = redact_text(text[: MAX_BODY + overlap])[:-overlap]
    else:
        text = redact_text(text)
    text = _BARE.sub(r'\1"[redacted]"', text).replace(_PROGRESS_MARK, _PROGRESS)
    if "onversation" in text:
        text = _HANDLE.sub(r"\g<head>…", text)
    return sanitize(text), cut


class Body:
    """The bytes of a body as they come; of a stream of server-sent events the last message.

    What it keeps is bounded, whatever comes: a little more than a body may have when it is kept.
    """

    def __init__(self, *, events: bool = False) -> None:
        self._limit = 4 * MAX_BODY + max(_OVERLAP, longest_secret())
        self._events = events
        self._kept = bytearray()
        self._last: tuple[bytes, bool] = (b"", False)
        self._more = False
        self._line = bytearray()

    def feed(self, data: bytes) -> None:
        """The next bytes."""
        if not self._events:
            self._keep(data)
            return
        lines = data.split(b"\n")
        for line in lines[:-1]:
            self._end_line(line)
        self._grow_line(lines[-1])

    def end(self) -> tuple[bytes, bool]:
        """What was kept of the body, or of the last message, and whether there was more of it."""
        if self._events:
            self._end_line(b"")
            self._end_event()
            return self._last
        return bytes(self._kept), self._more

    def _keep(self, data: bytes) -> None:
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
            self._keep(bytes(line[5:].strip()))

    def _end_event(self) -> None:
        if self._kept:
            self._last = bytes(self._kept), self._more
        self._kept, self._more = bytearray(), False


class OpenExchange:
    """One exchange from its request on; ``value`` is what is known of it so far."""

    __slots__ = ("_began", "_run", "kept", "number", "value")

    def __init__(self, run: "RunWire", value: Exchange, number: int = 0) -> None:
        self._run = run
        self.number = number
        self._began = perf_counter()
        self.kept = True
        self.value = value

    def head(self, status: int | None, headers: Headers = ()) -> None:
        """The answer begins."""
        self.put(replace(self.value, status=status, response_headers=clean_headers(headers)))

    def end(self, raw: bytes, more: bool = False, *, secret: str | None = None) -> None:
        """The answer is here; ``secret`` is masked in it besides what the log masks anyway.

        Once the run is over the log no longer knows its caller's token: what comes later without it is
        not kept.
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
        """It is over, with or without an answer."""
        value = value or self.value
        self.put(replace(value, seconds=perf_counter() - self._began))

    def put(self, value: Exchange) -> None:
        """It is this now."""
        if self.kept:
            by = _size(value) - _size(self.value)
            self.value = value
            self._run.grow(by)
            self._run.tell(self)


class RunWire:
    """The exchanges of one run, oldest first. ``live`` is false once the run is over.

    ``tell`` hears of each exchange that is new or changed.
    """

    __slots__ = ("_made", "_record", "exchanges", "live", "run_id", "tell")

    def __init__(self, record: "WireRecord", run_id: str) -> None:
        self._record = record
        self._made = 0
        self.run_id = run_id
        self.exchanges: deque[OpenExchange] = deque()
        self.live = True
        self.tell: Callable[[OpenExchange], None] = _nobody

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
        """A request goes out or came in."""
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
        """An exchange whose texts are clean, for example one that another process of ours kept."""
        self._made += 1
        opened = OpenExchange(self, value, self._made)
        if self._record.of(self.run_id) is not self:
            opened.kept = False  # so much came since that this run is kept no more
            return opened
        self.exchanges.append(opened)
        if len(self.exchanges) > MAX_EXCHANGES:
            self.drop_oldest()
        self.grow(_size(value))
        self.tell(opened)
        return opened

    def grow(self, by: int) -> None:
        """Count what was added to it."""
        self._record.grow(by)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.exchanges)

    def drop_oldest(self) -> None:
        """Forget its oldest exchange."""
        oldest = self.exchanges.popleft()
        oldest.kept = False
        self._record.grow(-_size(oldest.value))


class WireRecord(RingStore[RunWire]):
    """The exchanges of the last runs: at most ``MAX_RUNS`` of them and ``MAX_BYTES`` in all."""

    def __init__(self, max_bytes: int = MAX_BYTES, max_runs: int = MAX_RUNS) -> None:
        super().__init__(max_bytes, max_runs)

    def open(self, run_id: str) -> RunWire:
        """The place of a run that begins."""
        return self.put(run_id, RunWire(self, run_id))

    def exchanges(self, run_id: str) -> tuple[Exchange, ...]:
        """What the run said, oldest first; empty when nothing of it is kept."""
        run = self.of(run_id)
        return tuple(each.value for each in run.exchanges) if run is not None else ()


def _nobody(exchange: OpenExchange) -> None:
    pass


def _size(value: Exchange) -> int:
    """About how much memory it takes, in bytes."""
    texts = [value.request, value.response]
    for headers in (value.request_headers, value.response_headers):
        texts += [part for pair in headers for part in pair]
    return 400 + sum(len(text) if text.isascii() else 4 * len(text) for text in texts)
