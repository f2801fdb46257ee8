"""Idle connections that wait for the next run of their owner."""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final

from pallas.deadlines import cancel_and_wait

from .remote_connection import ConnectionKey, RemoteConnection

KEEP: Final = 16
"""The limit of idle connections; the longest unused are closed."""
IDLE: Final = 600.0
"""Seconds after which an idle connection is closed."""


class ConnectionPool:
    """Lends each connection to one run at a time; belongs to one event loop.

    ``make`` returns a connection that is not open yet.
    """

    def __init__(self, make: Callable[[ConnectionKey], RemoteConnection], max_idle: int = KEEP) -> None:
        self._make = make
        self._max_idle = max_idle
        self._idle: list[tuple[RemoteConnection, float]] = []
        self._lent: set[RemoteConnection] = set()
        self._ending: set[asyncio.Task[None]] = set()

    def take(self, key: ConnectionKey, sent_messages: int | None = None) -> RemoteConnection:
        """Return a connection for that key, idle or new. Give it back.

        With ``sent_messages``, only an idle one that knows this number of messages is used.
        """
        for each in reversed(self._idle):
            connection = each[0]
            if connection.key != key or key.once:
                continue
            self._idle.remove(each)
            if connection.is_lost or (
                sent_messages is not None and connection.sent_messages != sent_messages
            ):
                self._end(connection)
                continue
            self._lent.add(connection)
            return connection
        connection = self._make(key)
        self._lent.add(connection)
        return connection

    def give(self, connection: RemoteConnection, *, reusable: bool) -> None:
        """Take a connection back; with ``reusable`` it may be used again."""
        if connection not in self._lent:
            return  # the pool was emptied in the meantime
        self._lent.discard(connection)
        if not reusable or connection.is_lost or not connection.was_opened or connection.key.once:
            self._end(connection)
            return
        self._idle.append((connection, monotonic()))
        while len(self._idle) > self._max_idle:
            self._end(self._idle.pop(0)[0])

    def forget(self, lease: str) -> None:
        """Close the connection of a conversation that is over."""
        for each in [each for each in self._idle if each[0].key.lease == lease]:
            self._idle.remove(each)
            self._end(each[0])

    def empty(self) -> None:
        """Close all idle connections: the other side does not know them any more."""
        for connection, _ in self._idle:
            self._end(connection)
        self._idle.clear()

    def sweep(self, now: float | None = None) -> None:
        """Close connections that were idle for too long."""
        since = (monotonic() if now is None else now) - IDLE
        while self._idle and self._idle[0][1] < since:
            self._end(self._idle.pop(0)[0])

    async def close(self, timeout_s: float) -> None:
        """Close all connections, in about ``timeout_s`` seconds."""
        self.empty()
        for connection in self._lent:
            self._end(connection)
        self._lent.clear()
        if not self._ending:
            return
        _, late = await asyncio.wait(self._ending, timeout=timeout_s)
        await cancel_and_wait(*late, seconds=1.0)

    def _end(self, connection: RemoteConnection) -> None:
        if not connection.was_opened:
            return
        task = asyncio.create_task(connection.close())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
