"""Tells living fleets from dead ones: each open ledger has a life, with a lock that the system frees when it
dies.

What a dead fleet left running is put into error (SPEC AG-6); what belongs to a living one is never touched.
"""

import asyncio
import fcntl
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from sqlalchemy import Connection, delete, select, update

from pallas.model import Fault, FaultType

from .database import DEADLINE, Database, Work, insert_new
from .tables import PENDING, RUNNING, UNDER_WAY, lives, messages, runs, tasks
from .task_store import bury_tasks

_RETRY_SECONDS: Final = 0.01


class Locks(Protocol):
    """The locks of lives, next to a database or in it."""

    async def take(self, life: str, enrol: Work[None]) -> None:
        """Hold the lock of that life until ``release`` or the end of this process, then ``enrol`` it.

        Raises Fault.
        """
        ...

    async def if_dead(self, life: str, work: Callable[[Connection], list[str]]) -> list[str]:
        """Run ``work`` while holding that life's lock; does nothing and returns an empty list if its fleet
        holds it.
        """
        ...

    async def strays(self) -> list[str]:
        """The lives that have a lock here, known to the database or not."""
        ...

    async def release(self) -> None:
        """Free the lock."""
        ...


class NoLocks:
    """For a database in memory, which no other fleet can open."""

    async def take(self, life: str, enrol: Work[None]) -> None:
        """Nothing to hold."""

    async def if_dead(self, life: str, work: Callable[[Connection], list[str]]) -> list[str]:
        return []

    async def strays(self) -> list[str]:
        return []

    async def release(self) -> None:
        """Nothing was held."""


class FileLocks:
    """Locked files next to an SQLite file: ``ledger.sqlite3-life-ID``."""

    def __init__(self, database: Database, path: Path) -> None:
        self._database = database
        self._path = path
        self._held: tuple[Path, int] | None = None

    async def take(self, life: str, enrol: Work[None]) -> None:
        path = self._file(life)
        try:
            async with asyncio.timeout(DEADLINE):
                while self._held is None:
                    if (descriptor := _locked(path)) is not None:
                        self._held = (path, descriptor)
                    else:  # another fleet is just removing it
                        await asyncio.sleep(_RETRY_SECONDS)
        except OSError as error:
            raise Fault(
                FaultType.CONFIG,
                f"the file {path.name} next to the database {self._database.shown} cannot be locked: "
                f"{error.strerror or 'another process holds it'}; keep the database on a local disk "
                "that this user may write to",
            ) from None
        await self._database.write(enrol)

    async def if_dead(self, life: str, work: Callable[[Connection], list[str]]) -> list[str]:
        path = self._file(life)
        try:
            descriptor = _locked(path)
        except OSError:  # not ours to look at
            return []
        if descriptor is None:
            return []
        try:
            done = await self._database.write(work)
            path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)
        return done

    async def strays(self) -> list[str]:
        prefix = self._file("").name
        names = await asyncio.to_thread(os.listdir, self._path.parent)
        return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]

    async def release(self) -> None:
        if self._held is not None:
            path, descriptor = self._held
            self._held = None
            with suppress(OSError):
                path.unlink()
            os.close(descriptor)

    def _file(self, life: str) -> Path:
        return self._path.with_name(f"{self._path.name}-life-{life}")


def _locked(path: Path) -> int | None:
    """A descriptor that holds the lock of that file; None if another process holds it. Raises OSError.

    The holder may remove the file: a lock on a removed file does not count.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink:
            return descriptor
    except BlockingIOError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def enrolling(life: str, now: float) -> Work[None]:
    """Work that writes a life whose lock is held; may be repeated."""
    values = {"id": life, "host": socket.gethostname(), "pid": os.getpid(), "started_at": now}

    def work(connection: Connection) -> None:
        connection.execute(insert_new(connection, lives).values(values).on_conflict_do_nothing())

    return work


def others(connection: Connection, life: str) -> list[str]:
    """The ids of all other lives, including those that only runs and tasks mention."""
    known = select(lives.c.id).where(lives.c.id != life)
    lives_of_runs = select(runs.c.life).where(RUNNING, runs.c.life != life)
    worked = select(tasks.c.life).where(UNDER_WAY, tasks.c.life != life)
    return list(connection.execute(known.union(lives_of_runs, worked)).scalars())


def bury(connection: Connection, life: str, now: float) -> list[str]:
    """Put the runs and tasks that a life left into error, with the reason; returns the ids of those runs."""
    when = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    reason = f"the fleet was stopped in the middle of this turn (found {when})"
    bury_tasks(connection, life, now, f"found {when}")
    left = select(runs.c.id).where(runs.c.life == life, RUNNING)
    connection.execute(
        update(messages).where(PENDING, messages.c.run_id.in_(left)).values(status="error", reason=reason)
    )
    found = connection.execute(
        update(runs)
        .where(runs.c.life == life, RUNNING)
        .values(status="error", fault=reason, finished_at=now)
        .returning(runs.c.id)
    )
    ids = list(found.scalars())
    connection.execute(delete(lives).where(lives.c.id == life))
    return ids
