"""Limits on connections to our ports: how many there may be, and how long one may keep us waiting.

A client that opens connections and leaves them, sends a byte a second or never reads its answer costs a
descriptor and some memory each time. All of them are closed after a bound; when there are many, those that
have waited longest without a request are closed to make room for new ones.
"""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

log = logging.getLogger(__name__)

# Descriptors reserved for agents' servers, their connections, files and pipes.
RESERVE: Final = 512
MOST_DESCRIPTORS: Final = 65_536
MOST_CONNECTIONS: Final = 8_192
_LEAST: Final = 64
# This many are closed at once to make room.
_BATCH: Final = 256
_TELL_EVERY: Final = 60.0
_TOO_SLOW: Final = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 37\r\nconnection: close\r\n\r\nThe request did not arrive in time.\r\n"
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


class ClientConnection(H11Protocol):
    """A connection that knows since when it waits for us or for its client."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.since = monotonic()
        self.phase = "head"
        self.stuck_since: float | None = None
        self._when_made: Callable[[], None] | None = None
        self._of: object = None

    def when_made(self, tell: Callable[[], None]) -> None:
        """Set the callback for when the connection is made; call this before."""
        self._when_made = tell

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock; with TLS this follows the handshake."""
        super().connection_made(transport)
        if self._when_made is not None:
            self._when_made()

    @property
    def waits(self) -> bool:
        """Return whether no request is in progress."""
        cycle: Any = self.cycle
        return cycle is None or bool(cycle.response_complete)

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
        if phase in ("head", "body") and spent > (bounds.head if phase == "head" else bounds.body):
            self._too_slow()
            return "sending"
        return ""

    def _doing(self) -> tuple[str, object]:
        if self.transport.is_closing():
            return "closing", None
        if not self.waits:
            return ("body" if self.cycle.more_body else "answer"), self.cycle
        return ("idle" if self.timeout_keep_alive_task is not None else "head"), self.cycle

    def _too_slow(self) -> None:
        begun = self.conn.trailing_data[0] if self.waits else not self.cycle.response_started
        if not begun:  # it sent nothing at all, or is in the middle of its answer
            self.transport.abort()
            return
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
            log.warning("connections let go: %s; %d of at most %d are left", reasons, self.count, self.limit)
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
