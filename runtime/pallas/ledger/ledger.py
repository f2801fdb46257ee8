"""The ledger of one fleet: one database, opened."""

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Final

from sqlalchemy import Connection, delete, insert, select, tuple_, update

from pallas.config.database import MEMORY
from pallas.model import Fault, FaultType
from pallas.model.run_values import OF_AGENTS

from . import claims, lives
from .blob_store import HOUR, TextRoom, forget_unused
from .claims import Estate
from .cost_store import CostStore
from .database import UPGRADE_SECONDS, Database, DatabaseFault, Reading, in_detail, insert_new
from .ledger_address import Address, address_of
from .question_store import QuestionStore, forget_questions
from .replica_store import ReplicaStore, short_id
from .resource_store import ResourceStore
from .run_store import KEY_SECONDS, RunStore
from .schema import bring_up_to_date
from .session_store import SessionStore
from .spending_store import SpendingStore, forget_spending
from .sqlite import SqliteDatabase
from .step_store import StepStore
from .storage_store import StorageStore
from .tables import idempotency, meta, run_events, runs, threads
from .task_store import TaskStore, forget_old
from .thread_table import ThreadRows

KEEP_SECONDS: Final = 14 * 24 * 3600.0
"""Seconds that events of runs, and runs without a thread or nested ones, are kept after the run began."""
AT_ONCE: Final = 1_000
"""Most runs that one transaction handles, so that other writers do not wait long."""
_MARK: Final = "pruned_until"

log = logging.getLogger(__name__)

_PRUNINGS: Final = 20
"""Most steps of pruning in a row."""
TEND_SECONDS: Final = 60.0
"""Seconds between two rounds of pruning."""
_LIFE: Final = re.compile("[0-9a-f]{16}")


def prune(connection: Connection, now: float, keep_s: float = KEEP_SECONDS, limit: int = AT_ONCE) -> bool:
    """Delete events and runs older than ``keep_s`` seconds, of at most ``limit`` runs; returns whether there
    may be more.

    The position is stored, so that runs which stay are looked at only once.
    """
    mark = connection.execute(select(meta.c.value).where(meta.c.key == _MARK)).scalar_one_or_none()
    at, _, last = (mark or "0:").partition(":")
    old = (
        select(runs.c.id, runs.c.started_at, runs.c.thread_id, runs.c.surface)
        .where(
            tuple_(runs.c.started_at, runs.c.id) > tuple_(float(at), last),
            runs.c.started_at < now - keep_s,
            runs.c.status != "running",
        )
        .order_by(runs.c.started_at, runs.c.id)
        .limit(limit)
    )
    found = connection.execute(old).all()
    if not found:
        return False
    connection.execute(delete(run_events).where(run_events.c.run_id.in_([row.id for row in found])))
    loose = [row.id for row in found if row.thread_id is None]
    connection.execute(delete(runs).where(runs.c.id.in_(loose)))
    nested = [row.thread_id for row in found if row.surface in OF_AGENTS and row.thread_id is not None]
    unused = threads.c.updated_at < now - keep_s
    connection.execute(delete(threads).where(threads.c.id.in_(nested), unused))
    value = f"{found[-1].started_at!r}:{found[-1].id}"
    if mark is None:
        connection.execute(insert(meta), [{"key": _MARK, "value": value}])
    else:
        connection.execute(update(meta).where(meta.c.key == _MARK).values(value=value))
    return len(found) == limit


class Ledger:
    """The durable storage of one fleet. Belongs to the event loop that opened it; ``close`` it there.

    ``life`` is the id of this opening, ``salt`` 32 bytes that stay with the database. ``notes`` reach the
    other fleets, None on SQLite. ``has_others`` says whether other fleets used it when ``inherit`` looked
    last, ``is_beat_late`` whether a heartbeat of one was late then, and ``other_releases`` has the release of
    each that lived.
    """

    def __init__(
        self,
        database: Database,
        locks: lives.Locks,
        life: str,
        salt: bytes,
        clock: Callable[[], float],
        report: lives.Report = lives.no_fleet,
    ) -> None:
        self.database = database
        self.life = life
        self.salt = salt
        self.threads = ThreadRows(database, life, clock)
        self.room = TextRoom()
        self.runs = RunStore(database, life, clock, self.room)
        self.steps = StepStore(database)
        self.spending = SpendingStore(database, life)
        self.costs = CostStore(database)
        self.storage = StorageStore(database, self.room)
        self.tasks = TaskStore(database, life, clock)
        self.questions = QuestionStore(database, life, clock)
        self.sessions = SessionStore(database, life, clock)
        self.resources = ResourceStore(database, clock)
        self.replicas = ReplicaStore(database, locks, life, report)
        self.notes = locks.notes
        self.has_others = self.is_beat_late = False
        self.other_releases: tuple[str, ...] = ()
        self._locks = locks
        self._known: Reading[dict[str, str]] | None = None
        self._strays: list[str] = []
        self._clock = clock
        self._tending: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def shown(self) -> str:
        """The URL without user and password."""
        return self.database.shown

    @property
    def is_private(self) -> bool:
        """Whether no other program can open the database: it is in memory."""
        return self.shown == MEMORY

    @property
    def replica(self) -> str:
        """The id of this fleet among the replicas."""
        return short_id(self.life)

    @property
    def is_fresh(self) -> bool:
        """Whether no other fleet can have taken this one for dead by now."""
        return self._locks.is_fresh

    @property
    def times_lost(self) -> int:
        """How often other fleets may have taken this one for dead, though it lives."""
        return self._locks.times_lost

    async def inherit(self, serves: Callable[[str], bool] | None = None) -> Estate:
        """Take over what dead fleets left, as ``claims.inherit``. Raises Fault (TRANSPORT, TIMEOUT)."""
        self.is_beat_late = False
        if not self._locks.may_judge:
            return Estate()
        now = self._clock()
        found = Estate()
        before = self._known
        read = lives.others
        self._known = await self.database.read_again(lambda connection: read(connection, self.life), before)
        known = self._known.value
        self.has_others = bool(known)
        # A lock without a life in the database is of a fleet that ended as it began, and left nothing.
        if self._known is not before or known or self._strays:
            self._strays = [each for each in await self._locks.strays() if each != self.life]
        others = [*filter(_LIFE.fullmatch, {*known, *self._strays} - {self.life})]
        seen = await self._locks.look(others) if others else {}
        ages = (each.beat_age or 0.0 for each in seen.values() if not each.is_dead)
        self.is_beat_late = max(ages, default=0.0) > lives.LATE_SECONDS
        living = []
        for life in others:
            left = None
            # A life that the locks do not know is only mentioned by runs: it has some time from now on.
            if (liveness := seen.get(life)) is None or liveness.is_dead:
                work = partial(claims.inherit, dead=life, mine=self.life, now=now, serves=serves)
                try:
                    left = await self._locks.if_dead(life, work)
                except Fault as fault:  # what was claimed so far counts
                    log.warning("it is unknown whether fleet %s is dead: %s", life, in_detail(fault))
            if left is not None:
                found = claims.both(found, left)
            elif known.get(life):
                living.append(known[life])
        self.other_releases = tuple(living)
        if claims.NOBODY in known and serves is not None:
            work = partial(claims.inherit, dead=claims.NOBODY, mine=self.life, now=now, serves=serves)
            try:
                found = claims.both(found, await self.database.write(work))
            except Fault as fault:
                log.warning("runs that were handed over are not claimed yet: %s", in_detail(fault))
        return found

    async def reclaim(self, unknown: Collection[str]) -> Estate:
        """Claim those of this fleet's runs again that it does not know: an answer or a write was lost."""
        work = partial(claims.inherit, dead=self.life, mine=self.life, now=self._clock(), serves=_everyone)
        return await self.database.write(partial(work, only=unknown))

    async def close(self, *, hand_over: bool = False) -> None:
        """Close the database. The runs that are still running here are put into error.

        With ``hand_over`` they are left for the next fleet that inherits.
        """
        if self._closed:
            return
        self._closed = True
        if self._tending is not None:
            self._tending.cancel()
            with suppress(asyncio.CancelledError):
                await self._tending
        await self.spending.close()
        try:
            now = self._clock()
            if not hand_over:
                await self.database.write(lambda connection: claims.bury(connection, self.life, now))
        except Fault as fault:
            log.warning(
                "runs in flight were not marked as stopped; the next start does that: %s", in_detail(fault)
            )
        finally:
            await self._locks.release()
            await self.database.close()

    def start_tending(self) -> None:
        """Prune and forget from now on, every minute until the ledger is closed."""
        self._tending = asyncio.create_task(self._tend(), name="ledger")

    async def _tend(self) -> None:
        forgotten = 0.0
        while True:
            await asyncio.sleep(TEND_SECONDS)
            try:
                await self.database.write(self._forget_keys)
                await self.database.write(lambda connection: forget_spending(connection, self._clock()))
                await self._prune()
                if (now := self._clock()) - forgotten >= HOUR:
                    await self.database.write(partial(forget_unused, now=now))
                    forgotten = now
            except Fault as fault:
                log.warning("the ledger's regular work failed: %s", in_detail(fault))

    async def _prune(self) -> None:
        """Delete what is too old, in short steps between which others can write."""
        for _ in range(_PRUNINGS):
            if not await self.database.write(lambda connection: prune(connection, self._clock())):
                break
        for _ in range(_PRUNINGS):
            if not await self.database.write(lambda connection: forget_old(connection, self._clock())):
                break

        before = self._clock() - KEEP_SECONDS
        for _ in range(_PRUNINGS):
            if not await self.database.write(partial(forget_questions, before=before, limit=AT_ONCE)):
                break

    def _forget_keys(self, connection: Connection) -> None:
        old = self._clock() - KEY_SECONDS
        connection.execute(delete(idempotency).where(idempotency.c.created_at <= old))


def _everyone(agent: str) -> bool:
    return True


async def open_ledger(
    url: str,
    *,
    clock: Callable[[], float] = time.time,
    report: lives.Report = lives.no_fleet,
    drain: lives.Drain | None = None,
    tell: Callable[[str], None] | None = None,
) -> Ledger:
    """Open the ledger in the database of that URL; creates its tables or brings them up to date.

    A fleet passes ``report``, which says what it does now, and ``drain`` if other replicas may ask it to
    drain. With ``tell``, which gets lines about that, a PostgreSQL server that is away is waited for. A
    relative SQLite file starts at the current folder. Raises Fault (CONFIG) that names the URL without its
    password and says how to fix it.
    """
    address = address_of(url)
    database, locks = await _open(address, report, drain, tell)
    try:
        life = secrets.token_hex(8)
        await database.write(
            lambda connection: bring_up_to_date(connection, address.shown), seconds=UPGRADE_SECONDS
        )
        await locks.take(life, lives.enrolling(life, clock(), report, can_drain=drain is not None))
        ledger = Ledger(database, locks, life, await database.write(_salt), clock, report)
        ledger.start_tending()
    except BaseException as error:
        await locks.release()
        await database.close()
        if isinstance(error, DatabaseFault):  # there is no caller yet: the operator gets the detail
            raise Fault(error.type, error.detail) from None
        raise
    return ledger


async def _open(
    address: Address,
    report: lives.Report,
    drain: lives.Drain | None,
    tell: Callable[[str], None] | None,
) -> tuple[Database, lives.Locks]:
    try:
        if address.kind == "memory":
            return await SqliteDatabase.open(None, address.shown), lives.NoLocks()
        if address.path is not None:
            database = await SqliteDatabase.open(address.path, address.shown, full=address.full)
            return database, lives.FileLocks(database, address.path, report, drain)
        from .advisory_locks import AdvisoryLocks
        from .postgres import PostgresDatabase

        server = await PostgresDatabase.open(address.dsn, address.shown, tell=tell)
    except Fault as fault:
        if fault.type is FaultType.CONFIG:
            raise
        hint = "look at database_url: in agents.yaml, or PALLAS_DATABASE_URL"
        raise Fault(FaultType.CONFIG, f"{in_detail(fault)}; {hint}") from None
    return server, AdvisoryLocks(server, report, drain)


def _salt(connection: Connection) -> bytes:
    values = {"key": "salt", "value": secrets.token_hex(32)}
    connection.execute(insert_new(connection, meta).values(values).on_conflict_do_nothing())
    return bytes.fromhex(connection.execute(select(meta.c.value).where(meta.c.key == "salt")).scalar_one())
