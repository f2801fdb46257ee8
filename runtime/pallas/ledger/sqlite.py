"""SQLite in threads of its own: one that writes, a few that read.

SQLite has one writer at a time, and so has this. Waiting writes share one transaction: sixty conversations
neither fight for the lock nor wait for the disk sixty times.
"""

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final

from sqlalchemy import Connection, Engine, QueuePool, StaticPool, create_engine, event
from sqlalchemy.exc import SQLAlchemyError

from pallas.model import Fault, FaultType

from .database import (
    DEADLINE,
    MAX_WAITING,
    OPEN_SECONDS,
    Work,
    closed_fault,
    failed,
    to_text,
    too_late,
    too_many,
)
from .hot_statement import driver_of, translated

READERS: Final = 4
# Most writes in one transaction.
_TOGETHER: Final = 64
# Milliseconds that SQLite waits for another process before it returns. A close is noticed between waits.
_BUSY: Final = 2_000
_BUSY_WORDS: Final = ("database is locked", "database table is locked", "database schema is locked")


@dataclass(slots=True)
class _Job:
    work: Work[Any]
    done: Future[Any] = field(default_factory=Future)
    until: float = 0.0


class _EndedForAll(Exception):
    """SQLite rolled a transaction back because one of its statements failed, as it does on a full disk."""


class SqliteDatabase:
    """One SQLite file, or a database in memory for ``path`` None. Belongs to the loop that opened it."""

    def __init__(self, path: Path | None, shown: str, *, full: bool = False) -> None:
        self.shown = shown
        self._path = path
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._waiting = 0
        self._closed = False
        self._writer_engine = _engine(path, full=full)
        self._reader_engine = _engine(path, full=full) if path is not None else None
        self._readers = ThreadPoolExecutor(READERS, "ledger-reader") if path is not None else None
        self._writer = threading.Thread(target=self._write_on, name="ledger-writer", daemon=True)
        self._writer.start()

    @classmethod
    async def open(cls, path: Path | None, shown: str, *, full: bool = False) -> "SqliteDatabase":
        """Open the database in that file, created for this user alone if it is missing.

        Raises Fault (CONFIG).
        """
        if path is not None:
            await asyncio.to_thread(_make_file, path, shown)
        opened = cls(path, shown, full=full)
        try:
            await opened.write(lambda connection: None, seconds=OPEN_SECONDS)
        except BaseException:
            await opened.close()
            raise
        return opened

    async def read[T](self, work: Work[T]) -> T:
        if self._readers is None or self._reader_engine is None:
            return await self.write(work)
        engine = self._reader_engine

        def reading() -> T:
            with engine.connect() as connection:
                connection.exec_driver_sql("BEGIN")
                return work(connection)

        if self._closed:
            raise closed_fault(self.shown)
        return await self._outcome(self._readers.submit(reading), DEADLINE)

    async def write[T](self, work: Work[T], *, seconds: float | None = None) -> T:
        if self._closed:
            raise closed_fault(self.shown)
        if self._waiting >= MAX_WAITING:
            raise too_many(self.shown)
        seconds = seconds or DEADLINE
        job = _Job(work, until=monotonic() + seconds)
        self._waiting += 1
        self._jobs.put(job)
        try:
            result: T = await self._outcome(job.done, seconds)
        finally:
            self._waiting -= 1
        return result

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._jobs.put(None)
        # Not a thread of the loop's executor, which would be joined: a file system may never answer.
        ended: Future[None] = Future()
        threading.Thread(target=self._end, args=(ended,), name="ledger-end", daemon=True).start()
        await asyncio.wrap_future(ended)

    def _end(self, ended: Future[None]) -> None:
        if self._writer.is_alive():
            self._writer.join(DEADLINE)
        if self._readers is not None:
            self._readers.shutdown(cancel_futures=True)
        if self._reader_engine is not None:
            self._reader_engine.dispose()
        self._writer_engine.dispose()
        if not ended.cancelled():
            ended.set_result(None)

    async def _outcome[T](self, future: Future[T], seconds: float) -> T:
        try:
            # The writer observes the deadline itself; this one covers a file system that does not answer.
            async with asyncio.timeout(seconds * 2):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise too_late(self.shown, seconds * 2) from None
        except SQLAlchemyError as error:
            raise failed(self.shown, error) from None

    def _write_on(self) -> None:
        """Run the writing thread until None is queued."""
        connection: Connection | None = None
        while (job := self._jobs.get()) is not None:
            jobs = [job, *self._next_ones()]
            mine = [each for each in jobs if each is not None and each.done.set_running_or_notify_cancel()]
            try:
                connection = connection or self._connect()
                try:
                    self._together(connection, mine)
                except _EndedForAll:
                    for each in mine:
                        self._alone(connection, each)
            except BaseException as error:  # the waiting callers must get it
                for each in mine:
                    _settle(each, _raising(error))
            if None in jobs:
                break
        if connection is not None:
            connection.close()

    def _connect(self) -> Connection:
        """A connection on which transactions are begun and ended by the driver, below SQLAlchemy: for it,
        all that is written is one transaction.
        """
        connection = self._writer_engine.connect()
        connection.begin()
        return connection

    def _next_ones(self) -> Iterator[_Job | None]:
        for _ in range(_TOGETHER - 1):
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return
            yield job
            if job is None:
                return

    def _alone(self, connection: Connection, job: _Job) -> None:
        try:
            self._together(connection, [job])
        except BaseException as error:
            _settle(job, _raising(error))

    def _together(self, connection: Connection, jobs: list[_Job]) -> None:
        """Run jobs in one transaction; each fails alone, and gets its result after the commit.

        Raises _EndedForAll, with nothing written and no result, if one of several ends the transaction.
        """
        if not jobs:
            return
        outcomes: list[Callable[[Future[Any]], None]] = []
        raw = driver_of(connection)
        assert raw is not None
        with translated(), self._transaction(raw, min(job.until for job in jobs)):
            for job in jobs:
                try:
                    if len(jobs) == 1:
                        result = job.work(connection)
                    else:
                        with translated(), _savepoint(raw):
                            result = job.work(connection)
                except Exception as error:
                    if len(jobs) == 1:
                        raise
                    if not raw.in_transaction:
                        raise _EndedForAll from error
                    outcomes.append(_raising(error))
                else:
                    outcomes.append(_returning(result))
        for job, outcome in zip(jobs, outcomes, strict=True):
            _settle(job, outcome)

    @contextmanager
    def _transaction(self, raw: sqlite3.Connection, until: float) -> Iterator[None]:
        """A write transaction, begun as soon as no other process has one.

        Raises SQLite's error at the deadline, or as soon as the database is closed.
        """
        while True:
            try:
                raw.execute("BEGIN IMMEDIATE")
                break
            except sqlite3.OperationalError as error:
                if not str(error).startswith(_BUSY_WORDS) or self._closed or monotonic() >= until:
                    raise
        try:
            yield
            raw.execute("COMMIT")
        except BaseException:
            if raw.in_transaction:
                raw.execute("ROLLBACK")
            raise


@contextmanager
def _savepoint(raw: sqlite3.Connection) -> Iterator[None]:
    """Undo what the block wrote if it fails."""
    raw.execute("SAVEPOINT job")
    try:
        yield
    except BaseException:
        if raw.in_transaction:  # a full disk may end it
            raw.execute("ROLLBACK TO job")
            raw.execute("RELEASE job")
        raise
    raw.execute("RELEASE job")


def _settle(job: _Job, outcome: Callable[[Future[Any]], None]) -> None:
    if not job.done.done():
        outcome(job.done)


def _raising(error: BaseException) -> Callable[[Future[Any]], None]:
    return lambda future: future.set_exception(error)


def _returning(result: Any) -> Callable[[Future[Any]], None]:
    return lambda future: future.set_result(result)


def _engine(path: Path | None, *, full: bool) -> Engine:
    """An engine that sets up its connections for the ledger, and begins no transactions."""
    engine = create_engine(
        f"sqlite:///{path}" if path is not None else "sqlite://",
        poolclass=QueuePool if path is not None else StaticPool,
        connect_args={"check_same_thread": False, "timeout": _BUSY / 1000},
        json_serializer=to_text,
        **({"pool_size": READERS, "max_overflow": 0} if path is not None else {}),
    )

    @event.listens_for(engine, "connect")
    def set_up(raw: Any, record: Any) -> None:
        raw.isolation_level = None  # the driver must not begin transactions itself
        cursor = raw.cursor()
        if path is not None:
            cursor.execute("PRAGMA journal_mode=WAL")
            cursor.execute(f"PRAGMA synchronous={'FULL' if full else 'NORMAL'}")
            cursor.execute("PRAGMA journal_size_limit=67108864")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute("PRAGMA secure_delete=FAST")
        cursor.close()

    return engine


def _make_file(path: Path, shown: str) -> None:
    """Create the file and its folder if they are missing, readable by this user only."""
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(mode=0o700, parents=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise Fault(
            FaultType.CONFIG,
            f"the database {shown} cannot be opened: {error.strerror}; let this user write there, or choose "
            "another file with database_url: in agents.yaml or PALLAS_DATABASE_URL",
        ) from None
