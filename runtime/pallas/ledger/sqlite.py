"""SQLite in threads of its own: one that writes, a few that read.

SQLite has one writer at a time, and so has this. Waiting writes share one transaction: sixty conversations
neither fight for the lock nor wait for the disk sixty times. A savepoint for each would take as long as its
statements, so where one fails, all run again, each in a transaction of its own.
"""

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
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
    Reading,
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
    done: asyncio.Future[Any]  # of the loop: the writing thread only asks whether it is done
    until: float


class _OneFailed(Exception):
    """One of several jobs of a transaction failed: it is rolled back, and each runs again alone."""


class SqliteDatabase:
    """One SQLite file, or a database in memory for ``path`` None. Belongs to the loop that opened it."""

    def __init__(self, path: Path | None, shown: str, *, full: bool = False) -> None:
        self.shown = shown
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._waiting = 0
        self._closed = False
        self._writer_engine = _engine(path, full=full)
        self._reader_engine = _engine(path, full=full) if path is not None else None
        self._readers = ThreadPoolExecutor(READERS, "ledger-reader") if path is not None else None
        self._versions = _Versions(path) if path is not None else None
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
        if self._readers is None:
            return await self.write(work)
        return await self._in_reader(self._readers, lambda: self._read(work))

    async def read_again[T](self, work: Work[T], before: Reading[T] | None) -> Reading[T]:
        if self._readers is None or self._versions is None:
            return Reading(await self.write(work))
        versions = self._versions

        def reading() -> Reading[T]:
            version = versions.newest()  # before the reading: a commit between the two is seen next time
            if before is not None and version is not None and version == before.version:
                return before
            return Reading(self._read(work), version)

        return await self._in_reader(self._readers, reading)

    def _read[T](self, work: Work[T]) -> T:
        assert self._reader_engine is not None
        with self._reader_engine.connect() as connection:
            connection.exec_driver_sql("BEGIN")
            return work(connection)

    async def _in_reader[T](self, readers: ThreadPoolExecutor, reading: Callable[[], T]) -> T:
        if self._closed:
            raise closed_fault(self.shown)
        try:
            async with asyncio.timeout(DEADLINE * 2):
                return await asyncio.wrap_future(readers.submit(reading))
        except TimeoutError:
            raise too_late(self.shown, DEADLINE * 2) from None
        except SQLAlchemyError as error:
            raise failed(self.shown, error) from None

    async def write[T](self, work: Work[T], *, seconds: float | None = None) -> T:
        if self._closed:
            raise closed_fault(self.shown)
        if self._waiting >= MAX_WAITING:
            raise too_many(self.shown)
        seconds = seconds or DEADLINE
        done: asyncio.Future[T] = self._loop.create_future()
        # The writer observes the deadline itself; this one covers a file system that does not answer.
        late = self._loop.call_later(seconds * 2, self._is_late, done, seconds * 2)
        self._waiting += 1
        self._jobs.put(_Job(work, done, monotonic() + seconds))
        try:
            return await done
        except SQLAlchemyError as error:
            raise failed(self.shown, error) from None
        finally:
            self._waiting -= 1
            late.cancel()

    def _is_late(self, done: asyncio.Future[Any], seconds: float) -> None:
        if not done.done():
            done.set_exception(too_late(self.shown, seconds))

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
        if self._versions is not None:
            self._versions.close()
        self._writer_engine.dispose()
        if not ended.cancelled():
            ended.set_result(None)

    def _write_on(self) -> None:
        """Run the writing thread until None is queued."""
        connection: Connection | None = None
        while (job := self._jobs.get()) is not None:
            jobs = [job, *self._next_ones()]
            mine = [each for each in jobs if each is not None and not each.done.done()]
            try:
                connection = connection or self._connect()
                try:
                    self._together(connection, mine)
                except _OneFailed:
                    for each in mine:
                        self._alone(connection, each)
            except BaseException as error:  # the waiting callers must get it
                self._tell(_fail, mine, error)
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
            self._tell(_fail, [job], error)

    def _together(self, connection: Connection, jobs: list[_Job]) -> None:
        """Run jobs in one transaction; each gets its result after the commit.

        Raises _OneFailed, with nothing written and no result, if one of several fails.
        """
        if not jobs:
            return
        raw = driver_of(connection)
        assert raw is not None
        with translated:
            self._begin(raw, min(job.until for job in jobs))
            try:
                results = _results(connection, jobs)
                raw.execute("COMMIT")
            except BaseException:
                if raw.in_transaction:
                    raw.execute("ROLLBACK")
                raise
        self._tell(_succeed, jobs, results)

    def _tell[T](self, end: Callable[[Sequence[_Job], T], None], jobs: Sequence[_Job], outcome: T) -> None:
        """Wake the loop, once for all of these jobs. Nobody waits any more for one that is closed."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(end, jobs, outcome)

    def _begin(self, raw: sqlite3.Connection, until: float) -> None:
        """Begin a write transaction as soon as no other process has one.

        Raises SQLite's error at the deadline, or as soon as the database is closed.
        """
        while True:
            try:
                raw.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not str(error).startswith(_BUSY_WORDS) or self._closed or monotonic() >= until:
                    raise


class _Versions:
    """Tells whether a file was committed to, in a twentieth of the time of the smallest reading."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()  # each reader may ask
        self._connection: sqlite3.Connection | None = None

    def newest(self) -> int | None:
        """Return a number that changes with each commit; None if it is not known."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = sqlite3.connect(self._path, check_same_thread=False, timeout=0)
                rows: list[tuple[int]] = self._connection.execute("PRAGMA data_version").fetchall()
            except sqlite3.Error:
                return None
            return rows[0][0]

    def close(self) -> None:
        """Close its connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()


def _results(connection: Connection, jobs: Sequence[_Job]) -> list[Any]:
    try:
        return [job.work(connection) for job in jobs]
    except Exception as error:
        if len(jobs) == 1:
            raise
        raise _OneFailed from error


def _succeed(jobs: Sequence[_Job], results: Sequence[Any]) -> None:
    for job, result in zip(jobs, results, strict=True):
        if not job.done.done():
            job.done.set_result(result)


def _fail(jobs: Sequence[_Job], error: BaseException) -> None:
    for job in jobs:
        if not job.done.done():
            job.done.set_exception(error)


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
