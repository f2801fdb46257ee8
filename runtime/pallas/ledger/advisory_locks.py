"""Locks of lives in PostgreSQL: advisory locks, which a session holds until it ends."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from sqlalchemy import Connection, text

from pallas.model import Fault, FaultType
from pallas.safe_text import one_line

from .database import Work
from .postgres import PostgresDatabase

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
"""Seconds between two checks that the session that holds the lock still exists."""
_ANSWER_SECONDS: Final = 5.0
# The server notices within about a minute that a machine is gone.
_KEEPALIVE: Final = {
    "tcp_keepalives_idle": "20",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "4",
}
_IF_FREE: Final = text("SELECT pg_try_advisory_xact_lock(:number)")


class AdvisoryLocks:
    """The lock of one life on a connection of its own. It is taken again when that connection breaks."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._connection: Any = None
        self._keeper: asyncio.Task[None] | None = None

    async def take(self, life: str, enrol: Work[None]) -> None:
        try:
            await self._take(life, enrol)
        except Fault:
            raise
        except Exception as error:
            why = one_line(str(error)) or type(error).__name__
            raise Fault(
                FaultType.TRANSPORT, f"the lock in the database {self._database.shown} cannot be had: {why}"
            ) from None
        self._keeper = asyncio.create_task(self._hold_lock(life, enrol), name="ledger lock")

    async def if_dead(self, life: str, work: Callable[[Connection], list[str]]) -> list[str]:
        def if_free(connection: Connection) -> list[str]:
            return (
                work(connection) if connection.execute(_IF_FREE, {"number": _number(life)}).scalar() else []
            )

        return await self._database.write(if_free)

    async def strays(self) -> list[str]:
        return []

    async def release(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper
        await self._drop()

    async def _take(self, life: str, enrol: Work[None]) -> None:
        self._connection = await self._database.connect(**_KEEPALIVE)
        # A fleet that checks right now whether we live holds the lock for an instant.
        await self._connection.execute("SELECT pg_advisory_lock($1)", _number(life), timeout=_ANSWER_SECONDS)
        await self._database.write(enrol)

    async def _hold_lock(self, life: str, enrol: Work[None]) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                if self._connection is None:
                    await self._take(life, enrol)
                    log.warning("the lock in %s is held again", self._database.shown)
                else:
                    await self._connection.execute("SELECT 1", timeout=_ANSWER_SECONDS)
            except Exception as error:
                reason = error.message if isinstance(error, Fault) else type(error).__name__
                log.warning("the lock in %s was lost: %s", self._database.shown, reason)
                await self._drop()

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # The session ends in any case, which frees its locks.
            try:
                with suppress(Exception):
                    await connection.close(timeout=2)
            finally:  # also if this was cancelled
                connection.terminate()


def _number(life: str) -> int:
    """The lock of a life: PostgreSQL counts in signed 64 bits."""
    return int.from_bytes(bytes.fromhex(life), signed=True)
