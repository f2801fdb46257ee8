"""Tells living fleets from dead ones: each open ledger has a life, with a lock that the system frees when it
dies.

What a dead fleet left is given to ``claims``; what belongs to a living one is never touched. Each fleet also
reports what it does, for the list of replicas.
"""

import asyncio
import fcntl
import logging
import os
import socket
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from sqlalchemy import Connection, case, literal, literal_column, select, update

from pallas import __version__
from pallas.model import Fault, FaultType, LifeReport

from .database import DEADLINE, Database, Reading, Work, insert_new
from .tables import RUNNING, UNDER_WAY, lives, runs, tasks, waiting

if TYPE_CHECKING:  # it imports the driver of PostgreSQL
    from .fleet_notes import FleetNotes

REPORT_SECONDS: Final = 10.0
"""Seconds between two reports of a fleet on SQLite; a new state is written sooner."""
LATE_SECONDS: Final = 1.3
"""Seconds since a heartbeat, of which there is one a second, after which the next one is late."""
_LOOK_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 0.01

log = logging.getLogger(__name__)


type Report = Callable[[], LifeReport]
type Drain = Callable[[str], None]
"""Has a fleet drain and end; called once or more, with the replica through which it was asked."""


class Liveness(NamedTuple):
    """Whether a fleet lives, and the seconds since its last heartbeat where there are heartbeats."""

    is_dead: bool
    beat_age: float | None = None


def no_fleet() -> LifeReport:
    """The report of a program that is no fleet."""
    return LifeReport()


class Locks(Protocol):
    """The locks of lives, next to a database or in it."""

    async def take(self, life: str, enrol: Work[None]) -> None:
        """Hold the lock of that life until ``release`` or the end of this process, then ``enrol`` it.

        Raises Fault.
        """
        ...

    async def if_dead[T](self, life: str, work: Work[T]) -> T | None:
        """Run ``work`` while that life cannot come back; does nothing and returns None if its fleet lives."""
        ...

    @property
    def is_fresh(self) -> bool:
        """Whether no other fleet can have taken this life for dead."""
        ...

    @property
    def times_lost(self) -> int:
        """How often the lock was lost so far: others may have taken over what was begun before."""
        ...

    async def strays(self) -> list[str]:
        """The lives that have a lock here, known to the database or not."""
        ...

    async def look(self, lives: Collection[str]) -> Mapping[str, Liveness]:
        """Which of these live, without touching any.

        A life that is not in the result is not known here: nothing says that it is dead.
        """
        ...

    async def release(self) -> None:
        """Free the lock."""
        ...

    @property
    def may_judge(self) -> bool:
        """Whether this fleet can tell dead fleets from living ones now."""
        ...

    @property
    def notes(self) -> "FleetNotes | None":
        """Notes to and from the other fleets, if the database passes them on."""
        ...


class NoLocks:
    """For a database in memory, which no other fleet can open."""

    notes = None

    async def take(self, life: str, enrol: Work[None]) -> None:
        """Nothing to hold."""

    async def if_dead[T](self, life: str, work: Work[T]) -> T | None:
        return None

    @property
    def is_fresh(self) -> bool:
        return True

    @property
    def times_lost(self) -> int:
        return 0

    @property
    def may_judge(self) -> bool:
        return False

    async def strays(self) -> list[str]:
        return []

    async def look(self, lives: Collection[str]) -> Mapping[str, Liveness]:
        return {}

    async def release(self) -> None:
        """Nothing was held."""


class FileLocks:
    """Locked files next to an SQLite file: ``ledger.sqlite3-life-ID``."""

    notes = None

    def __init__(
        self, database: Database, path: Path, report: Report = no_fleet, drain: Drain | None = None
    ) -> None:
        self._database = database
        self._path = path
        self._report = report
        self._drain = drain
        self._held: tuple[Path, int] | None = None
        self._reporting: asyncio.Task[None] | None = None

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
        self._reporting = asyncio.create_task(self._report_changes(life), name="ledger report")

    async def _report_changes(self, life: str) -> None:
        """Write what the fleet reports where it changed, and look who asks it to drain."""
        asked_by = select(lives.c.drain_asked_by).where(lives.c.id == life)
        written, at = LifeReport(), -REPORT_SECONDS
        asked: Reading[str | None] | None = None
        while True:
            report, now = self._report(), monotonic()
            is_due = now - at >= REPORT_SECONDS or report.state != written.state
            if report != written and is_due:
                change = update(lives).where(lives.c.id == life).values(report._asdict())
                try:
                    await self._database.write(partial(Connection.execute, statement=change))
                    written = report
                except Fault as fault:
                    log.debug("the report of this fleet was not written: %s", fault.message)
                at = now
            if self._drain is not None:
                try:
                    asked = await self._database.read_again(
                        lambda connection: connection.scalar(asked_by), asked
                    )
                    if asked.value:
                        self._drain(asked.value)
                except Fault as fault:
                    log.debug("it is unknown whether this fleet was asked to drain: %s", fault.message)
            await asyncio.sleep(_LOOK_SECONDS)

    @property
    def is_fresh(self) -> bool:
        return True  # a stopped process keeps its lock

    @property
    def times_lost(self) -> int:
        return 0

    @property
    def may_judge(self) -> bool:
        return True

    async def if_dead[T](self, life: str, work: Work[T]) -> T | None:
        path = self._file(life)
        try:
            descriptor = _locked(path)
        except OSError:  # not ours to look at
            return None
        if descriptor is None:
            return None
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

    async def look(self, lives: Collection[str]) -> Mapping[str, Liveness]:
        return await asyncio.to_thread(lambda: {life: Liveness(_is_free(self._file(life))) for life in lives})

    async def release(self) -> None:
        if self._reporting is not None:
            self._reporting.cancel()
            with suppress(asyncio.CancelledError):
                await self._reporting
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


def _is_free(path: Path) -> bool:
    """Whether no process holds the lock of that file. False for a file that this user may not open."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def enrolling(life: str, now: float, report: Report = no_fleet, *, can_drain: bool = False) -> Work[None]:
    """Work that writes a life whose lock is held; may be repeated.

    ``can_drain`` says whether its fleet drains when it is asked through the ledger.
    """
    values = {
        "id": life,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started_at": now,
        "release": __version__,
        "can_drain": can_drain,
    }

    def work(connection: Connection) -> None:
        row: dict[str, Any] = {**values, **report()._asdict()}
        if connection.dialect.name == "postgresql":  # its first heartbeat
            row["seen"] = literal_column("extract(epoch FROM clock_timestamp())")
        insert = insert_new(connection, lives).values(row)
        # Another fleet may have written a row without its facts meanwhile.
        changed = {name: insert.excluded[name] for name in row if name != "id"}
        connection.execute(insert.on_conflict_do_update(index_elements=[lives.c.id], set_=changed))

    return work


def others(connection: Connection, life: str) -> dict[str, str]:
    """All other lives, including those that only runs and tasks mention, each with the release of its fleet.

    The release is empty for a program that is no fleet.
    """
    release = case((lives.c.state != "", lives.c.release), else_="")
    known = select(lives.c.id, release).where(lives.c.id != life)
    lives_of_runs = select(runs.c.life, literal("")).where(RUNNING, runs.c.life != life)
    worked = select(tasks.c.life, literal("")).where(UNDER_WAY, tasks.c.life != life)
    queued = select(waiting.c.life, literal("")).where(waiting.c.life != life)
    # In the order of releases, so that an empty one does not replace another.
    found = sorted(connection.execute(known.union(lives_of_runs, worked, queued)), key=lambda row: row[1])
    return {row[0]: row[1] for row in found}
