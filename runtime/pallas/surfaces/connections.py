"""Limits on connections to our ports: how many there may be, and how long one may keep us waiting.

A client that opens connections and leaves them, sends a byte a second or never reads its answer costs a
descriptor and some memory each time. All of them are closed after a bound; when there are many, those that
have waited longest without a request are closed to make room for new ones.
"""

import asyncio
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from pallas.model import Fault, FaultType

log = logging.getLogger(__name__)

# Descriptors reserved for agents' servers, their connections, files and pipes.
RESERVE: Final = 512
MOST_DESCRIPTORS: Final = 65_536
MOST_CONNECTIONS: Final = 8_192
_LEAST: Final = 64
# Bytes of a request's head, and of what may stand between two parts of its body.
MAX_HEAD: Final = 64 * 1024
# Requests of one connection that wait for the answers of those before.
PIPELINED: Final = 64
_ABSOLUTE_FORM: Final = re.compile(rb"https?://(?P<authority>[^/?#]*)", re.IGNORECASE)
# This many are closed at once to make room.
_BATCH: Final = 256
_TELL_EVERY: Final = 60.0


def _closing(status: str, content_type: str, text: str) -> bytes:
    """Return an answer after which the connection is closed."""
    body = text.encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"connection: close\r\n\r\n" + body


_PLAIN: Final = "text/plain; charset=utf-8"
_TOO_SLOW: Final = _closing("408 Request Timeout", _PLAIN, "The request did not arrive in time.\r\n")
_BAD_REQUEST: Final = _closing("400 Bad Request", _PLAIN, "Invalid HTTP request received.")
# A proxy may use the one length and we the other: the bytes after it would be a request to us and text to the
# proxy.
_TWO_LENGTHS: Final = _closing(
    "400 Bad Request",
    "application/json",
    json.dumps(
        Fault(
            FaultType.PROTOCOL, "the request has both Content-Length and Transfer-Encoding; send one of them"
        ).to_body()
    ),
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Time limits of a connection in seconds, checked every ``look``.

    ``head`` is from connecting, or a later request's first byte, until the request's head is complete, and
    also limits the TLS handshake; ``body`` is from then until the body is complete; ``write`` is how long
    the client may leave written data unread; ``linger`` is from closing with unsent data until it is
    dropped. ``idle`` is the time between two requests.
    """

    head: float = 10.0
    body: float = 60.0
    write: float = 60.0
    linger: float = 10.0
    idle: int = 75
    look: float = 1.0


BOUNDS: Final = Bounds()


class _MalformedError(Exception):
    """The bytes are no HTTP/1.0 or HTTP/1.1 request that we take."""


class _LastCycle(RequestResponseCycle):
    """A request after whose answer the connection ends, as each of HTTP/1.0.

    That version has no chunks: an answer without a length ends with the connection.
    """

    _has_length = True

    async def send(self, message: Any) -> None:
        """Send the head of the answer or a part of its body."""
        if message["type"] == "http.response.start":
            headers = [each for each in message.get("headers", ()) if each[0].lower() != b"connection"]
            message = {**message, "headers": headers}
            if self.scope["http_version"] == "1.0":
                self._has_length = any(name.lower() == b"content-length" for name, _ in headers)
            if not self._has_length:
                self.chunked_encoding = False
        elif not self._has_length:  # uvicorn compares what is sent with the length that was announced
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)


class ClientConnection(HttpToolsProtocol):
    """A connection that knows since when it waits for us or for its client.

    The parser refuses most of what two readers could understand in two ways: bare LF, folded headers, two
    lengths. This class checks what it lets pass: sizes, versions, ``Host``, encodings, trailers, upgrades.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.access_log = False  # whatever handlers its logger inherits
        self.since = monotonic()
        self.phase = "head"
        self.stuck_since: float | None = None
        self._when_made: Callable[[], None] | None = None
        self._of: object = None
        # The request that is being answered; ``cycle`` is the last one that arrived.
        self._active: RequestResponseCycle | None = None
        # It was answered, and nothing arrived since.
        self._is_idle = False
        self._in_head = False
        self._head_size = 0
        # Bytes that arrived since a head began or ended, or a body grew.
        self._pending = 0
        # Headers that say where the body ends, of a request that asks for another protocol.
        self._framing = b""
        self._repeats_head = False
        self._is_deaf = False

    def when_made(self, tell: Callable[[], None]) -> None:
        """Set the callback for when the connection is made; call this before."""
        self._when_made = tell

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock; with TLS this follows the handshake."""
        super().connection_made(transport)
        if self._when_made is not None:
            self._when_made()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request that is being answered, even if others arrived after it."""
        self._disconnect(self._active)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what arrived; answer 400 if it is no request."""
        if self._is_deaf:
            return
        self._is_idle = False
        self._pending += len(data)
        try:
            self._feed(data)
            if self._pending > MAX_HEAD:
                raise _MalformedError
        except (_MalformedError, httptools.HttpParserError) as error:
            self.logger.warning("Invalid HTTP request received.")
            self._refuse(_TWO_LENGTHS if "can't be present with" in str(error) else _BAD_REQUEST)

    def _feed(self, data: bytes) -> None:
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                # The parser takes all that follows for another protocol, which we do not speak. So another
                # parser reads on, behind a head with the same framing.
                data = data[upgrade.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
                self._repeats_head = True
                self.parser.feed_data(b"POST / HTTP/1.1\r\n" + self._framing + b"\r\n")
            else:
                return

    def _refuse(self, answer: bytes) -> None:
        """Take no further request; end the connection, at once or after the answer in progress."""
        self._is_deaf = True
        self.pipeline.clear()
        active = self._active
        if active is None or active.response_complete or (active.more_body and not active.response_started):
            self._disconnect(active)
            self.transport.write(answer)
            self.transport.close()
        elif active.more_body:
            self.transport.abort()
        else:
            self.cycle = active
            active.keep_alive = False

    @staticmethod
    def _disconnect(cycle: RequestResponseCycle | None) -> None:
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()

    def on_message_begin(self) -> None:
        """Begin a request."""
        if not self._repeats_head:
            super().on_message_begin()
            self._in_head, self._head_size, self._pending = True, 0, 0

    def on_url(self, url: bytes) -> None:
        """Take a part of the request's target."""
        if not self._repeats_head:
            self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers are only counted: they must not change what the head says."""
        if self._repeats_head:
            return
        self._head_size += len(name) + len(value) + 4
        if self._head_size > MAX_HEAD:
            raise _MalformedError
        if self._in_head:
            super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        """Answer the request, after those that arrived before it. Its path is the target as it was sent."""
        self._pending = 0
        if self._repeats_head:
            self._repeats_head = False
            return
        self._in_head = False
        version = self.parser.get_http_version()
        self._check(version)
        self._take_origin_form()
        scope: Any = self.scope
        path, _, query = self.url.partition(b"?")
        scope.update(
            method=self.parser.get_method().decode("ascii"),
            http_version=version,
            path=unquote(path.decode("ascii")),
            raw_path=path,
            query_string=query,
        )
        keep_alive = version != "1.0" and self.parser.should_keep_alive()
        cycle = (RequestResponseCycle if keep_alive else _LastCycle)(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=keep_alive,
            on_response=self.on_response_complete,
        )
        self.cycle = cycle
        if self.waits and not self.pipeline:
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def _take_origin_form(self) -> None:
        """Split a target that is a whole URL: its host counts, not ``Host`` (RFC 9112, 3.2.2)."""
        found = _ABSOLUTE_FORM.match(self.url)
        if found is not None:
            rest = self.url[found.end() :]
            self.url = rest if rest.startswith(b"/") else b"/" + rest
            others = [each for each in self.headers if each[0] != b"host"]
            self.headers[:] = [(b"host", found["authority"]), *others]

    def _check(self, version: str) -> None:
        """Refuse what the parser takes and two readers may understand in two ways."""
        hosts = encodings = 0
        framing = b""
        for name, value in self.headers:
            if name == b"host":
                hosts += 1
            elif name == b"transfer-encoding":
                encodings += 1
                framing = b"transfer-encoding: chunked\r\n"
                if value.lower() != b"chunked":
                    raise _MalformedError
            elif name == b"content-length":
                framing = b"content-length: " + value + b"\r\n"
        self._framing = framing or b"content-length: 0\r\n"
        is_fine = version in ("1.0", "1.1") and self.parser.get_method() != b"CONNECT"
        is_fine = is_fine and hosts <= 1 and (hosts == 1 or version == "1.0")
        # HTTP/1.0 has no encodings: a proxy of that version would not know where the body ends.
        if not is_fine or (encodings and version == "1.0") or len(self.pipeline) >= PIPELINED:
            raise _MalformedError

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._pending = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the body."""
        if not self.parser.should_upgrade():  # else the parser has passed over the body
            super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._active = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Answer the next request that has arrived; ``look`` ends the connection if none comes."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        else:
            self._is_idle = True

    @property
    def waits(self) -> bool:
        """Return whether no request is in progress."""
        return self._active is None or self._active.response_complete

    def pause_writing(self) -> None:
        """Note that the client has stopped reading."""
        super().pause_writing()
        self.stuck_since = monotonic()

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        super().resume_writing()
        self.stuck_since = None

    def look(self, now: float, bounds: Bounds) -> str:
        """Close the connection if it took too long; return the reason, or an empty string."""
        phase, of = self._doing()
        if (phase, of) != (self.phase, self._of):
            self.phase, self._of, self.since = phase, of, now
        spent = now - self.since
        if self.stuck_since is not None and now - self.stuck_since > bounds.write:
            self.transport.abort()
            return "reading"
        if phase == "closing" and spent > bounds.linger:
            self.transport.abort()
            return "closing"
        if phase == "idle" and spent > bounds.idle:
            self.transport.close()
        if phase in ("head", "body") and spent > (bounds.head if phase == "head" else bounds.body):
            self._too_slow()
            return "sending"
        return ""

    def _doing(self) -> tuple[str, object]:
        active = self._active
        if self.transport.is_closing():
            return "closing", None
        if active is not None and not active.response_complete:
            return ("body" if active.more_body else "answer"), active
        return ("idle" if self._is_idle else "head"), active

    def _too_slow(self) -> None:
        active = self._active
        begun = self._in_head if active is None or self.waits else not active.response_started
        if not begun:  # it sent nothing at all, or is in the middle of its answer
            self.transport.abort()
            return
        self._is_deaf = True
        self._disconnect(active)
        self.transport.write(_TOO_SLOW)
        self.transport.close()


class ConnectionLimits:
    """All connections of some listeners together, including those that are being made.

    ``limit`` is how many there may be. Belongs to one event loop.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = room_for_connections() if limit is None else limit
        self._made: list[set[Any]] = []
        self._making: dict[asyncio.Task[None], float] = {}
        self._let_go: Counter[str] = Counter()
        self._told = -_TELL_EVERY

    @property
    def count(self) -> int:
        """The number of connections now."""
        return sum(map(len, self._made)) + len(self._making)

    def watch(self, connections: set[Any]) -> None:
        """Count these connections as well."""
        self._made.append(connections)

    def unwatch(self, connections: set[Any]) -> None:
        """Stop counting these connections."""
        self._made = [each for each in self._made if each is not connections]

    def making(self, task: asyncio.Task[None]) -> None:
        """Count a connection whose handshake may still be in progress."""
        self._making[task] = monotonic()
        task.add_done_callback(self.made)

    def made(self, task: asyncio.Task[None]) -> None:
        """Stop counting a handshake that ended."""
        self._making.pop(task, None)

    def admit(self) -> bool:
        """Return whether there is room for one more, closing others if needed; False if all of them are
        busy."""
        return self.count < self.limit or self.make_room() > 0

    def make_room(self) -> int:
        """Close some connections that have no request in progress, first those that never had one; return
        how many."""
        waiting = [(each, made) for made in self._made for each in made if each.waits and _is_open(each)]
        waiting.sort(key=lambda pair: (pair[0].cycle is not None, pair[0].since))
        batch = max(1, min(_BATCH, self.limit // 8))
        for each, made in waiting[:batch]:
            each.transport.abort()
            made.discard(each)  # stop counting it now, before the loop has processed its end
        handshakes = sorted(self._making, key=self._making.__getitem__)[: batch - len(waiting[:batch])]
        for task in handshakes:
            task.cancel()
            self.made(task)
        gone = len(waiting[:batch]) + len(handshakes)
        self.tell("making room", gone)
        return gone

    def tell(self, reason: str, count: int = 1) -> None:
        """Count closed connections; log them at most once a minute."""
        if not count:
            return
        self._let_go[reason] += count
        if monotonic() - self._told >= _TELL_EVERY:
            reasons = ", ".join(f"{many} for {why}" for why, many in self._let_go.items())
            log.warning("connections closed: %s; %d of at most %d are left", reasons, self.count, self.limit)
            self._told = monotonic()
            self._let_go.clear()


def _is_open(connection: ClientConnection) -> bool:
    return not connection.transport.is_closing()


def room_for_connections() -> int:
    """Return how many connections the process's limit of open files leaves room for."""
    most = _raised_limit()
    return max(_LEAST, min(MOST_CONNECTIONS, most - max(RESERVE, most // 4)))


def _raised_limit() -> int:
    """Return the limit of open files after raising it as far as the system allows; children inherit it."""
    if os.name != "posix":
        return 2 * RESERVE
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # not ours to decide
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
