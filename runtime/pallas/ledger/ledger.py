"""The ledger of one fleet: one database, opened."""

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import chain, repeat
from typing import Final

from sqlalchemy import Connection, delete, insert, select, tuple_, update

from pallas.model import Fault, FaultType

from . import lives
from .database import UPGRADE_SECONDS, Database, DatabaseFault, in_detail, insert_new
from .ledger_address import Address, address_of
from .resource_store import ResourceStore
from .run_store import KEY_SECONDS, RunStore
from .schema import bring_up_to_date
from .sqlite import SqliteDatabase
from .step_store import StepStore, forget_unused
from .tables import idempotency, meta, run_events, runs
from .task_store import TaskStore, forget_old
from .thread_table import ThreadRows

KEEP_SECONDS: Final = 14 * 24 * 3600.0
"""Seconds that events of runs, and runs without a thread, are kept after the run began."""
AT_ONCE: Final = 1_000
"""Most runs that one transaction handles, so that other writers do not wait long."""
_MARK: Final = "pruned_until"

log = logging.getLogger(__name__)

_PRUNINGS: Final = 20
"""Most steps of pruning in a row."""
TEND_SECONDS: Final = 60.0
"""Seconds between two searches for runs that dead fleets left."""
_LIFE: Final = re.compile("[0-9a-f]{16}")
# The first searches come sooner: the server may notice late that the previous fleet is gone.
_FIRST_LOOKS: Final = (2.0, 10.0)


def prune(connection: Connection, now: float, keep_s: float = KEEP_SECONDS, limit: int = AT_ONCE) -> bool:
    """Delete events and runs older than ``keep_s`` seconds, of at most ``limit`` runs; returns whether there
    may be more.

    The position is stored, so that runs which stay are looked at only once.
    """
    mark = connection.execute(select(meta.c.value).where(meta.c.key == _MARK)).scalar_one_or_none()
    at, _, last = (mark or "0:").partition(":")
    old = (
        select(runs.c.id, runs.c.started_at, runs.c.thread_id)
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
    forget_unused(connection)
    value = f"{found[-1].started_at!r}:{found[-1].id}"
    if mark is None:
        connection.execute(insert(meta), [{"key": _MARK, "value": value}])
    else:
        connection.execute(update(meta).where(meta.c.key == _MARK).values(value=value))
    return len(found) == limit


class Ledger:
    """The durable storage of one fleet. Belongs to the event loop that opened it; ``close`` it there.

    ``life`` is the id of this opening, ``salt`` 32 bytes that stay with the database, ``recovered`` the ids
    of the runs that dead fleets had left when it was opened.
    """

    def __init__(
        self,
        database: Database,
        locks: lives.Locks,
        life: str,
        salt: bytes,
        clock: Callable[[], float],
    ) -> None:
        self.database = database
        self.life = life
        self.salt = salt
        self.recovered: tuple[str, ...] = ()
        self.threads = ThreadRows(database, life, clock)
        self.runs = RunStore(database, life, clock)
        self.steps = StepStore(database)
        self.tasks = TaskStore(database, life, clock)
        self.resources = ResourceStore(database, clock)
        self._locks = locks
        self._clock = clock
        self._tending: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def shown(self) -> str:
        """The URL without user and password."""
        return self.database.shown

    async def recover(self) -> tuple[str, ...]:
        """Put the runs that dead fleets left into error; returns their ids. Raises Fault."""
        now = self._clock()
        found: list[str] = []
        known = await self.database.read(lambda connection: lives.others(connection, self.life))
        strays = await self._locks.strays()
        for life in filter(_LIFE.fullmatch, {*known, *strays} - {self.life}):
            found += await self._locks.if_dead(life, partial(lives.bury, life=life, now=now))
        return tuple(found)

    async def close(self) -> None:
        """Put the runs that are still running here into error, and close the database."""
        if self._closed:
            return
        self._closed = True
        if self._tending is not None:
            self._tending.cancel()
            with suppress(asyncio.CancelledError):
                await self._tending
        try:
            now = self._clock()
            await self.database.write(lambda connection: lives.bury(connection, self.life, now))
        except Fault as fault:
            log.warning("what ran was not put down as stopped; the next start does it: %s", in_detail(fault))
        finally:
            await self._locks.release()
            await self.database.close()

    def start_tending(self) -> None:
        """Recover, prune and forget from now on, every minute until the ledger is closed."""
        self._tending = asyncio.create_task(self._tend(), name="ledger")

    async def _tend(self) -> None:
        for seconds in chain(_FIRST_LOOKS, repeat(TEND_SECONDS)):
            await asyncio.sleep(seconds)
            try:
                found = await self.recover()
                await self.database.write(self._forget_keys)
                await self._prune()
            except Fault as fault:
                log.warning("the ledger could not be tended: %s", in_detail(fault))
            else:
                if found:
                    log.warning("%s of a fleet that died: put into error", _runs(len(found)))

    async def _prune(self) -> None:
        """Delete what is too old, in short steps between which others can write."""
        for _ in range(_PRUNINGS):
            if not await self.database.write(lambda connection: prune(connection, self._clock())):
                break
        for _ in range(_PRUNINGS):
            if not await self.database.write(lambda connection: forget_old(connection, self._clock())):
                break

    def _forget_keys(self, connection: Connection) -> None:
        old = self._clock() - KEY_SECONDS
        connection.execute(delete(idempotency).where(idempotency.c.created_at <= old))


async def open_ledger(url: str, *, clock: Callable[[], float] = time.time) -> Ledger:
    """Open the ledger in the database of that URL; creates its tables or brings them up to date.

    A relative SQLite file starts at the current folder. Runs that dead fleets left are put
    into error (``recovered``), now and every minute. Raises Fault (CONFIG) that names the URL without its
    password and says how to fix it.
    """
    address = address_of(url)
    database, locks = await _open(address)
    try:
        life = secrets.token_hex(8)
        await database.write(
            lambda connection: bring_up_to_date(connection, address.shown), seconds=UPGRADE_SECONDS
        )
        await locks.take(life, lives.enrolling(life, clock()))
        ledger = Ledger(database, locks, life, await database.write(_salt), clock)
        ledger.recovered = await ledger.recover()
        ledger.start_tending()
    except BaseException as error:
        await locks.release()
        await database.close()
        if isinstance(error, DatabaseFault):  # there is no caller yet: the operator gets the detail
            raise Fault(error.type, error.detail) from None
        raise
    if ledger.recovered:
        log.warning(
            "%s of an earlier start was in the middle of a turn: put into error", _runs(len(ledger.recovered))
        )
    return ledger


async def _open(address: Address) -> tuple[Database, lives.Locks]:
    try:
        if address.kind == "memory":
            return await SqliteDatabase.open(None, address.shown), lives.NoLocks()
        if address.path is not None:
            database = await SqliteDatabase.open(address.path, address.shown, full=address.full)
            return database, lives.FileLocks(database, address.path)
        from .advisory_locks import AdvisoryLocks
        from .postgres import PostgresDatabase

        server = await PostgresDatabase.open(address.dsn, address.shown)
    except Fault as fault:
        if fault.type is FaultType.CONFIG:
            raise
        hint = "look at database_url: in agents.yaml, or PALLAS_DATABASE_URL"
        raise Fault(FaultType.CONFIG, f"{in_detail(fault)}; {hint}") from None
    return server, AdvisoryLocks(server)


def _salt(connection: Connection) -> bytes:
    values = {"key": "salt", "value": secrets.token_hex(32)}
    connection.execute(insert_new(connection, meta).values(values).on_conflict_do_nothing())
    return bytes.fromhex(connection.execute(select(meta.c.value).where(meta.c.key == "salt")).scalar_one())


def _runs(number: int) -> str:
    return f"{number} run" if number == 1 else f"{number} runs"
