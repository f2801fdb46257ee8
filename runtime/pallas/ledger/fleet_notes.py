"""Short notes between the fleets of a PostgreSQL database, which each hears at once: NOTIFY and LISTEN.

A fleet listens on the connection that holds its lock. What is said while that is broken is not heard: what
must not be lost is in a table.
"""

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Callable
from secrets import token_hex
from typing import Any, Final

from sqlalchemy import Connection, text

from pallas.model import Fault

from .postgres import PostgresDatabase

log = logging.getLogger(__name__)

CHANNEL: Final = "pallas_notes"
_PART: Final = 7_000
"""Characters, all ASCII, in one message: PostgreSQL takes fewer than 8,000 bytes."""
_MAX_PARTS: Final = 16
_MAX_SENDING: Final = 200
_MAX_PARTIAL: Final = 100
_NOTIFY: Final = text("SELECT pg_notify(:channel, :payload)")


class FleetNotes:
    """As ``OtherWorkers``, to all other fleets of the database. One event loop only."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._own = token_hex(8)
        self._handlers: dict[str, Callable[[Any], object]] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._partial: OrderedDict[str, list[str]] = OrderedDict()

    def tell(self, topic: str, body: Any) -> None:
        """Have all other fleets hear ``body``, a JSON value, under that topic; returns at once.

        A note that is too long, or one of too many, is dropped and logged.
        """
        said = json.dumps([topic, body])
        parts = [said[at : at + _PART] for at in range(0, len(said), _PART)]
        if len(parts) > _MAX_PARTS or len(self._sending) >= _MAX_SENDING:
            log.warning("a note to the other fleets was dropped: %s, %d characters", topic, len(said))
            return
        task = asyncio.create_task(self._send(topic, parts), name="note to other fleets")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    def hear(self, topic: str, handler: Callable[[Any], object]) -> None:
        """Call ``handler`` in the event loop with what other fleets say under that topic."""
        self._handlers[topic] = handler

    async def listen(self, connection: Any) -> None:
        """Listen on this connection of the driver, until it ends."""
        await connection.add_listener(CHANNEL, self._heard)

    def close(self) -> None:
        """Stop sending. Safe to call twice."""
        for task in self._sending:
            task.cancel()

    async def _send(self, topic: str, parts: list[str]) -> None:
        note = token_hex(8)
        payloads = [f"{self._own} {note} {len(parts)} {part}" for part in parts]

        def work(connection: Connection) -> None:
            for payload in payloads:
                connection.execute(_NOTIFY, {"channel": CHANNEL, "payload": payload})

        try:
            await self._database.write(work)
        except Fault as fault:
            log.warning("a note did not reach the other fleets (%s): %s", topic, fault.message)

    def _heard(self, connection: Any, pid: int, channel: str, payload: str) -> None:
        try:
            said = self._joined(payload)
            topic, body = ("", None) if said is None else json.loads(said)
        except (TypeError, ValueError):  # another program that uses the channel
            log.warning("a note in the database cannot be read, and is ignored: %d characters", len(payload))
            return
        if (handler := self._handlers.get(topic)) is not None:
            handler(body)

    def _joined(self, payload: str) -> str | None:
        """The whole note that ends with this part; None for our own, and for one of which more comes.

        Raises ValueError.
        """
        sender, note, number, part = payload.split(" ", 3)
        if sender == self._own:
            return None
        if not 0 < int(number) <= _MAX_PARTS:
            raise ValueError(number)
        parts = self._partial.setdefault(note, [])
        parts.append(part)
        if len(parts) < int(number):
            if len(self._partial) > _MAX_PARTIAL:
                self._partial.popitem(last=False)
            return None
        del self._partial[note]
        return "".join(parts)
