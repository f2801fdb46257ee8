"""Tasks in the ledger."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from sqlalchemy import Connection, delete, func, insert, or_, select, tuple_, update

from pallas.model import Fault, FaultType, Page, TaskRecord, TaskStatus
from pallas.model.refusals import STOPPED

from .database import Database
from .page_cursor import check_limit, cursor_of, place_of
from .storable_text import storable
from .tables import UNDER_WAY, runs, tasks, threads

AT_ONCE: Final = 1_000
"""Most tasks that one transaction deletes, so that other writers do not wait long."""
_LARGE: Final = ("text", "result")


class TaskStore:
    """The tasks of one ledger. Raises Fault (TRANSPORT, TIMEOUT) if the database fails.

    An expired task is not found, even before it is deleted.
    """

    def __init__(self, database: Database, life: str, clock: Callable[[], float]) -> None:
        self._database = database
        self._life = life
        self._clock = clock

    async def begin(self, task: TaskRecord) -> None:
        """Record a task that is under way in this life of the ledger."""
        values = {
            "id": task.id,
            "agent": task.agent,
            "owner": task.owner,
            "kind": task.kind,
            "status": task.status,
            "life": self._life,
            "run_id": task.run_id,
            "preview": task.preview,
            "request": _plain(task.request),
            "ttl": task.ttl,
            "created_at": task.created_at,
            "updated_at": task.updated_at,
        }
        await self._database.write(lambda connection: connection.execute(insert(tasks), [values]))

    async def move(self, task: TaskRecord) -> None:
        """Record the progress of a task; does nothing for one that is over."""
        values = {
            "status": task.status,
            "run_id": task.run_id,
            "progress": task.progress,
            "request": _plain(task.request),
            "updated_at": task.updated_at,
        }
        change = update(tasks).where(tasks.c.id == task.id, UNDER_WAY).values(**values)
        await self._database.write(lambda connection: connection.execute(change))

    async def finish(self, task: TaskRecord) -> None:
        """Record the end of a task, which is kept ``ttl`` seconds; does nothing for one that is over.

        If the record does not name its thread, its run does.
        """
        named = select(threads.c.id).where(threads.c.id == task.thread).scalar_subquery()
        values = {
            "status": task.status,
            "run_id": task.run_id,
            "thread_id": named if task.thread else _thread_of(task.run_id),
            "progress": task.progress,
            "request": None,
            "text": task.text,
            "result": _plain(task.result),
            "fault": _plain(task.fault),
            "updated_at": task.updated_at,
            "finished_at": task.updated_at,
            "expires_at": None if task.ttl is None else task.updated_at + task.ttl,
        }
        change = update(tasks).where(tasks.c.id == task.id, UNDER_WAY).values(**values)
        await self._database.write(lambda connection: connection.execute(change))

    async def forget(self, id: str) -> None:  # noqa: A002 - the word of the record
        """Delete a task whose id no caller got."""
        gone = delete(tasks).where(tasks.c.id == id)
        await self._database.write(lambda connection: connection.execute(gone))

    async def get(self, id: str) -> TaskRecord | None:  # noqa: A002 - the word of the record
        """The task of that id."""
        wanted = _all().where(tasks.c.id == id, self._kept())
        row = await self._database.read(lambda connection: connection.execute(wanted).first())
        return _record(row) if row is not None else None

    async def of_run(self, run_id: str) -> TaskRecord | None:
        """The task under way in this life whose work is that run."""
        wanted = _all().where(tasks.c.run_id == run_id, tasks.c.life == self._life, UNDER_WAY)
        row = await self._database.read(lambda connection: connection.execute(wanted).first())
        return _record(row) if row is not None else None

    async def list(
        self,
        *,
        agent: str | None = None,
        owner: str | None = None,
        status: TaskStatus | None = None,
        limit: int = 50,
        cursor: str = "",
    ) -> Page[TaskRecord]:
        """Tasks, newest first; ``limit`` 1 to 200. Raises Fault (PROTOCOL) on a bad cursor.

        Their outcome (``text``, ``result``) is left out; ``get`` has it.
        """
        check_limit(limit)
        place = place_of(cursor, "tasks", float)
        wanted = (
            _all(with_expired=False)
            .where(self._kept())
            .order_by(tasks.c.created_at.desc(), tasks.c.id.desc())
        )
        for name, value in {"agent": agent, "owner": owner, "status": status}.items():
            if value is not None:
                wanted = wanted.where(tasks.c[name] == value)
        if place is not None:
            wanted = wanted.where(tuple_(tasks.c.created_at, tasks.c.id) < tuple_(*place))
        wanted = wanted.limit(limit + 1)
        rows = await self._database.read(lambda connection: connection.execute(wanted).all())
        found = tuple(map(_record, rows[:limit]))
        more = len(rows) > limit
        return Page(found, cursor_of("tasks", found[-1].created_at, found[-1].id) if more else "")

    def _kept(self) -> Any:
        return or_(tasks.c.expires_at.is_(None), tasks.c.expires_at > self._clock())


def forget_old(connection: Connection, now: float, limit: int = AT_ONCE) -> bool:
    """Delete expired tasks, at most ``limit``; returns whether there may be more."""
    old = select(tasks.c.id).where(tasks.c.expires_at <= now).limit(limit)
    found = connection.execute(old).scalars().all()
    if found:
        connection.execute(delete(tasks).where(tasks.c.id.in_(found)))
    return len(found) == limit


def bury_tasks(connection: Connection, life: str, now: float, when: str, *, but: Sequence[str] = ()) -> None:
    """Fail the tasks that a life left under way, except those of the runs ``but``."""
    fault = Fault(
        FaultType.UPSTREAM,
        f"{STOPPED} ({when}); what it did until then was done: look at its thread, and ask again",
        data={"stopped": True},
    )
    known = select(runs.c.thread_id).where(runs.c.id == tasks.c.run_id, tasks.c.run_id != "")
    connection.execute(
        update(tasks)
        .where(tasks.c.life == life, UNDER_WAY, tasks.c.run_id.not_in(but))
        .values(
            status="failed",
            fault=fault.to_body(),
            request=None,
            thread_id=known.scalar_subquery(),
            updated_at=now,
            finished_at=now,
            expires_at=now + tasks.c.ttl,
        )
    )


def _thread_of(run_id: str) -> Any:
    return select(runs.c.thread_id).where(runs.c.id == run_id).scalar_subquery() if run_id else None


def _all(*, with_expired: bool = True) -> Any:
    """Tasks, each with the thread of its run if it has none of its own."""
    known = select(runs.c.thread_id).where(runs.c.id == tasks.c.run_id, tasks.c.run_id != "")
    thread = func.coalesce(tasks.c.thread_id, known.scalar_subquery(), "").label("thread")
    return select(*(each for each in tasks.c if with_expired or each.name not in _LARGE), thread)


def _record(row: Any) -> TaskRecord:
    known = row._mapping
    return TaskRecord(**{each.name: known[each.name] for each in fields(TaskRecord) if each.name in known})


def _plain(value: Any) -> Any:
    """A JSON value without characters that databases refuse, unchanged if there are none."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Mapping):
        return {storable(str(name)): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
