"""Locks of lives in PostgreSQL: advisory locks, which a session holds until it ends, and heartbeats.

A lock alone is not enough: a process that is stopped keeps it, and a server that was restarted has none. So
each fleet beats once a second, by the server's clock, and says what it does. It is dead if its lock is gone
and it missed beats, or if it missed more of them. A server that has just started gives it time, and so does
a fleet that has just started, if the last beat went to another server than the one that answers now.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from sqlalchemy import Connection, text

from pallas.model import Fault, FaultType
from pallas.safe_text import one_line

from .database import Work
from .fleet_notes import FleetNotes
from .lives import Drain, Liveness, Report, no_fleet
from .postgres import PostgresDatabase

log = logging.getLogger(__name__)

BEAT_SECONDS: Final = 1.0
MISSED_SECONDS: Final = 2.0
"""Seconds without a heartbeat after which a fleet whose lock is free is dead."""
STALE_SECONDS: Final = 6.0
"""Seconds without a heartbeat after which a fleet is dead that holds its lock."""
SETTLED_SECONDS: Final = 5.0
"""Seconds after the start of a server, or after an outage, in which fleets take locks and beat again."""
FRESH_SHARE: Final = 0.9
"""The share of ``MISSED_SECONDS`` in which a fleet knows without asking that it lives."""
JUDGE_SECONDS: Final = 2.0
"""Seconds after its last heartbeat in which a fleet takes others for dead: one that was stopped, or whose
beat was held up, for longer does not know what happened to the server meanwhile.
"""
_ANSWER_SECONDS: Final = 5.0
# The server notices within about a minute that a machine is gone.
_KEEPALIVE: Final = {
    "tcp_keepalives_idle": "20",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "4",
}
_BEAT: Final = (
    "UPDATE lives SET seen = extract(epoch FROM clock_timestamp()), backend = pg_backend_pid(), "
    "state = $2, runs = $3, taken_over = $4, timeline = $5 WHERE id = $1 RETURNING drain_asked_by"
)
# A number that rises when a standby becomes the primary.
_TIMELINE: Final = "SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int"
_IS_DEAD: Final = text("""
    SELECT backend, timeline,
           pg_try_advisory_xact_lock(:number) AND age > :missed AND up > :settled AS lost,
           least(age, up) > :stale AS stale
    FROM (
        SELECT backend, timeline,
               extract(epoch FROM clock_timestamp()) - coalesce(seen, started_at) AS age,
               extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) AS up
        FROM lives WHERE id = :life FOR UPDATE SKIP LOCKED
    ) AS life
""")
_HOLDS: Final = text("""
    SELECT pid FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND (classid::bigint << 32) | objid::bigint = :number
""")
# As ``_IS_DEAD``, but looks at the locks without taking them, and locks no row.
_LOOK: Final = text("""
    SELECT id, age, age > :missed AND up > :settled AND NOT held OR least(age, up) > :stale AS is_dead
    FROM (
        SELECT id,
               ('x' || id)::bit(64)::bigint IN (
                   SELECT (classid::bigint << 32) | objid::bigint
                   FROM pg_locks
                   WHERE locktype = 'advisory' AND objsubid = 1 AND granted
                     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
               ) AS held,
               extract(epoch FROM clock_timestamp()) - coalesce(seen, started_at) AS age,
               extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) AS up
        FROM lives WHERE id = ANY(:lives)
    ) AS life
""")
_MENTIONED: Final = text("""
    INSERT INTO lives (id, host, pid, started_at, seen)
    VALUES (:life, '', 0, extract(epoch FROM clock_timestamp()), extract(epoch FROM clock_timestamp()))
    ON CONFLICT DO NOTHING
""")
_END_SESSION: Final = text("SELECT pg_terminate_backend(:backend)")


class AdvisoryLocks:
    """The lock of one life on a connection of its own. It is taken again when that connection breaks."""

    def __init__(
        self, database: PostgresDatabase, report: Report = no_fleet, drain: Drain | None = None
    ) -> None:
        self._database = database
        self._report = report
        self._drain = drain
        self._connection: Any = None
        self._life = ""
        self.notes = FleetNotes(database)
        self.times_lost = 0
        self._beat_at = _now()
        # When the lock was held for the first time.
        self._began_at = math.inf
        # That of the server on which the lock is held, and the lock is lost with it; None if it has none.
        self._timeline: int | None = None
        # When the lock was held again after an outage, or the heart began to beat again: never while the lock
        # is not held, also if the server answers.
        self._back_at = -math.inf
        self._keeper: asyncio.Task[None] | None = None

    async def take(self, life: str, enrol: Work[None]) -> None:
        self._life, self._beat_at = life, _now()
        try:
            await self._take(life, enrol)
        except Fault:
            raise
        except Exception as error:
            why = one_line(str(error)) or type(error).__name__
            raise Fault(
                FaultType.TRANSPORT,
                f"the lock in the database {self._database.shown} cannot be acquired: {why}",
            ) from None
        self._began_at = _now()
        self._keeper = asyncio.create_task(self._hold_lock(life, enrol), name="ledger lock")

    @property
    def is_fresh(self) -> bool:
        return _now() - self._beat_at < FRESH_SHARE * MISSED_SECONDS

    @property
    def may_judge(self) -> bool:
        # Others may have been without the server as well, and need time to beat again.
        now = _now()
        is_settled = now - self._back_at > SETTLED_SECONDS and now - self._beat_at < JUDGE_SECONDS
        return self._connection is not None and is_settled

    async def if_dead[T](self, life: str, work: Work[T]) -> T | None:
        def if_dead(connection: Connection) -> T | None:
            # The connection may have been waited for, through an outage. On a standby that was promoted
            # nobody has a lock, and its start is no help: we may be the first.
            if (
                not self.may_judge
                or connection.execute(_HOLDS, {"number": _number(self._life)}).first() is None
            ):
                return None
            return work(connection) if _is_dead(connection, life, self._counts) else None

        # We may have been stopped since we looked.
        return None if not self.may_judge else await self._database.write(if_dead)

    def _counts(self, timeline: int | None) -> bool:
        """Whether the age of a heartbeat says something, by the timeline that it was written to.

        A standby may have been promoted just before this fleet started. Fleets that beat on its predecessor
        need time then to beat here.
        """
        is_here = timeline is not None and timeline == self._timeline
        return is_here or _now() - self._began_at > SETTLED_SECONDS

    async def strays(self) -> list[str]:
        return []

    async def look(self, lives: Collection[str]) -> Mapping[str, Liveness]:
        return await self._database.read(lambda connection: _look(connection, lives))

    async def release(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper
        self.notes.close()
        await self._drop()

    async def _take(self, life: str, enrol: Work[None]) -> None:
        self._connection = await self._database.connect(**_KEEPALIVE)
        # A fleet that checks right now whether we live holds the lock for an instant.
        await self._connection.execute("SELECT pg_advisory_lock($1)", _number(life), timeout=_ANSWER_SECONDS)
        self._timeline = await _timeline(self._connection)
        await self.notes.listen(self._connection)
        await self._database.write(enrol)
        await self._beat(life, enrol)

    async def _hold_lock(self, life: str, enrol: Work[None]) -> None:
        is_away = False
        while True:
            if self._connection is not None or is_away:  # a lost connection is replaced at once
                await asyncio.sleep(BEAT_SECONDS)
            try:
                if self._connection is None:
                    is_away, self._back_at = True, math.inf
                    await self._take(life, enrol)
                    self._back_at = _now()
                    is_away = False
                    log.warning("the lock in %s is held again", self._database.shown)
                else:
                    await self._beat(life, enrol)
            except Exception as error:
                reason = error.message if isinstance(error, Fault) else type(error).__name__
                log.warning("the lock in %s was lost: %s", self._database.shown, reason)
                await self._drop()

    async def _beat(self, life: str, enrol: Work[None]) -> None:
        at = _now()
        values = (life, *self._report(), self._timeline)
        asked_by = await self._connection.fetchval(_BEAT, *values, timeout=_ANSWER_SECONDS)
        if asked_by is None:  # there is no such row
            log.warning("other fleets took this fleet for dead, and continue its runs")
            self._was_away()
            await self._database.write(enrol)
        elif at - self._beat_at > FRESH_SHARE * MISSED_SECONDS:
            self._was_away()
        self._beat_at = at
        if asked_by and self._drain is not None:
            self._drain(asked_by)

    def _was_away(self) -> None:
        self.times_lost += 1
        self._back_at = _now()

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # The session ends in any case, which frees its locks.
            try:
                with suppress(Exception):
                    await connection.close(timeout=2)
            finally:  # also if this was cancelled
                connection.terminate()


async def _timeline(connection: Any) -> int | None:
    """The timeline of a server; None if it does not tell, as some that only speak PostgreSQL's protocol."""
    import asyncpg  # type: ignore[import-untyped]

    try:
        found = await connection.fetchval(_TIMELINE, timeout=_ANSWER_SECONDS)
    except asyncpg.PostgresError as error:
        log.debug("the server did not report its timeline: %s", one_line(str(error)))
        return None
    return int(found)


def _is_dead(connection: Connection, life: str, counts: Callable[[int | None], bool]) -> bool:
    """Whether a fleet is dead, which this transaction decides: another one finds its row locked.

    ``counts`` says whether a heartbeat on that timeline counts.
    The session that a stopped process holds is ended, so that it holds up nothing.
    """
    limits = {"missed": MISSED_SECONDS, "stale": STALE_SECONDS, "settled": SETTLED_SECONDS}
    found = connection.execute(_IS_DEAD, {"life": life, "number": _number(life), **limits}).first()
    if found is None:  # another fleet looks at it, or only runs mention it: then it has some time from now on
        connection.execute(_MENTIONED, {"life": life})
        return False
    if not counts(found.timeline):
        return False
    if found.stale and not found.lost and found.backend is not None:
        connection.execute(_END_SESSION, {"backend": found.backend})
    return bool(found.lost or found.stale)


def _look(connection: Connection, lives: Collection[str]) -> dict[str, Liveness]:
    """Which of these lives are dead, and the seconds since their last heartbeats."""
    limits = {"missed": MISSED_SECONDS, "stale": STALE_SECONDS, "settled": SETTLED_SECONDS}
    found = connection.execute(_LOOK, {"lives": list(lives), **limits})
    return {row.id: Liveness(row.is_dead, max(0.0, float(row.age))) for row in found}


def _now() -> float:
    """Seconds that go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _number(life: str) -> int:
    """The lock of a life: PostgreSQL counts in signed 64 bits."""
    return int.from_bytes(bytes.fromhex(life), signed=True)
