"""Connections to our ports: how many there may be, and how long one may keep us waiting.

A client that opens connections and leaves them, sends a byte a second or never reads what it asked for costs
a descriptor and some memory each time. All of them are let go after a bound; when there are many, those that
wait longest without a request make room for new ones.
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

# Descriptors that stay free of callers: for agents' servers, their connections, files and pipes.
RESERVE: Final = 512
MOST_DESCRIPTORS: Final = 65_536
MOST_CONNECTIONS: Final = 8_192
_LEAST: Final = 64
# So many are let go at once to make room.
_BATCH: Final = 256
_TELL_EVERY: Final = 60.0
_TOO_SLOW: Final = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 37\r\nconnection: close\r\n\r\nThe request did not arrive in time.\r\n"
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long a connection may take, in seconds, looked at every ``look``.

    ``head`` from connecting, or a later request's first byte, until all of the request's head is there, and
    for the TLS handshake; ``body`` from then until all of its body is there; ``write`` without taking what
    waits for it; ``linger`` after it was closed with something left to send. Between two requests it may
    rest for ``idle``.
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
        """Call ``tell`` once it is made; to be said before that."""
        self._when_made = tell

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It is there; over TLS when hands were shaken."""
        super().connection_made(transport)
        if self._when_made is not None:
            self._when_made()

    @property
    def waits(self) -> bool:
        """Whether no request is under way."""
        cycle: Any = self.cycle
        return cycle is None or bool(cycle.response_complete)

    def pause_writing(self) -> None:
        """The client does not take what is sent."""
        super().pause_writing()
        self.stuck_since = monotonic()

    def resume_writing(self) -> None:
        """It does."""
        super().resume_writing()
        self.stuck_since = None

    def look(self, now: float, bounds: Bounds) -> str:
        """Let go of the connection if it took too long; says what it was too slow at, empty if nothing."""
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
        if not begun:  # it said nothing at all, or is in the middle of its answer
            self.transport.abort()
            return
        self.transport.write(_TOO_SLOW)
        self.transport.close()


class ConnectionLimits:
    """All connections of some listeners together, and those that are just being made.

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
        """Connections there are now."""
        return sum(map(len, self._made)) + len(self._making)

    def watch(self, connections: set[Any]) -> None:
        """Count these as well, from now on."""
        self._made.append(connections)

    def unwatch(self, connections: set[Any]) -> None:
        """Count these no more."""
        self._made = [each for each in self._made if each is not connections]

    def making(self, task: asyncio.Task[None]) -> None:
        """A connection that may still be shaking hands."""
        self._making[task] = monotonic()
        task.add_done_callback(self.made)

    def made(self, task: asyncio.Task[None]) -> None:
        """It is made, or will not be."""
        self._making.pop(task, None)

    def admit(self) -> bool:
        """Whether there is room for one more, after others made room; False when all of them are at work."""
        return self.count < self.limit or self.make_room() > 0

    def make_room(self) -> int:
        """Let go of some that wait without a request, those first that never had one; says how many."""
        waiting = [(each, made) for made in self._made for each in made if each.waits and _is_open(each)]
        waiting.sort(key=lambda pair: (pair[0].cycle is not None, pair[0].since))
        batch = max(1, min(_BATCH, self.limit // 8))
        for each, made in waiting[:batch]:
            each.transport.abort()
            made.discard(each)  # it counts no more, also before its end has come through the loop
        handshakes = sorted(self._making, key=self._making.__getitem__)[: batch - len(waiting[:batch])]
        for task in handshakes:
            task.cancel()
            self.made(task)
        gone = len(waiting[:batch]) + len(handshakes)
        self.tell("making room", gone)
        return gone

    def tell(self, reason: str, count: int = 1) -> None:
        """Count what was let go; the log hears of it once a minute at most."""
        if not count:
            return
        self._let_go[reason] += count
        if monotonic() - self._told >= _TELL_EVERY:
            said = ", ".join(f"{many} for {why}" for why, many in self._let_go.items())
            log.warning("connections let go: %s; %d of at most %d are left", said, self.count, self.limit)
            self._told = monotonic()
            self._let_go.clear()


def _is_open(connection: ClientConnection) -> bool:
    return not connection.transport.is_closing()


def room_for_connections() -> int:
    """How many connections the process's limit of open files has room for, beside all else it opens."""
    most = _raised_limit()
    return max(_LEAST, min(MOST_CONNECTIONS, most - max(RESERVE, most // 4)))


def _raised_limit() -> int:
    """The limit of open files, raised as far as the system lets us; children find it so too."""
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
