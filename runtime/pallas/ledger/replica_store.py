"""The replicas: the fleets on this ledger, as each reports itself and as its lock and heartbeats say."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, cast

from sqlalchemy import ColumnElement, Connection, func, select, tuple_, update

from pallas.model import Fault, Page, ReplicaRecord, ReplicaState, refusals
from pallas.safe_text import one_line

from .database import Database
from .lives import Locks, Report
from .page_cursor import check_limit, cursor_of, place_of
from .tables import RUNNING, lives, runs

SHORT_ID: Final = 8
"""Characters of a life's id that name its replica."""
_ID: Final = re.compile("[0-9a-f]{8,16}")
_STATES: Final = ("starting", "serving", "draining")


def short_id(life: str) -> str:
    """The name of the replica that has this life."""
    return life[:SHORT_ID]


class ReplicaStore:
    """The replicas on one ledger; ``life`` and ``report`` are those of the one that asks.

    Raises Fault (TRANSPORT, TIMEOUT) if the database fails.
    """

    def __init__(self, database: Database, locks: Locks, life: str, report: Report) -> None:
        self._database = database
        self._locks = locks
        self._life = life
        self._report = report

    async def list(self, *, limit: int = 50, cursor: str = "") -> Page[ReplicaRecord]:
        """Replicas, the oldest first; ``limit`` 1 to 200. Raises Fault (PROTOCOL) on a bad cursor."""
        check_limit(limit)
        place = place_of(cursor, "replicas", float)
        after = () if place is None else (tuple_(lives.c.started_at, lives.c.id) > tuple_(*place),)
        rows = await self._rows(limit + 1, *after)
        more = len(rows) > limit
        last = rows[limit - 1] if more else None
        found = await self._records(rows[:limit])
        return Page(found, cursor_of("replicas", last.started_at, last.id) if last is not None else "")

    async def get(self, replica: str) -> ReplicaRecord:
        """The replica of that id. Raises Fault (not found)."""
        rows = await self._rows(1, lives.c.id.startswith(replica)) if _ID.fullmatch(replica) else ()
        if not rows:
            raise _not_found()
        return (await self._records(rows))[0]

    async def request_drain(self, replica: str) -> None:
        """Ask another replica to drain and end, which it sees within about a second.

        Raises Fault: not found; conflict if it is dead, drains already, or cannot be asked.
        """
        record = await self.get(replica)
        if record.state == "dead":
            raise refusals.conflict(
                f"replica {record.id} is dead: another one takes its runs over, and there is nothing to drain"
            )
        if record.state == "draining":
            raise refusals.drains_already(record.id)
        here = lives.c.id.startswith(record.id)

        def work(connection: Connection) -> None:
            row = connection.execute(select(lives.c.can_drain, lives.c.drain_asked_by).where(here)).first()
            if row is None:
                raise _not_found()
            if row.drain_asked_by:
                raise refusals.drains_already(record.id)
            if not row.can_drain:
                raise refusals.conflict(
                    f"replica {record.id} cannot be asked: it runs in a workbench, or has an older release "
                    f"({record.release}); quit that workbench, or send SIGTERM to process {record.pid} on "
                    f"{record.host}"
                )
            connection.execute(update(lives).where(here).values(drain_asked_by=short_id(self._life)))

        await self._database.write(work)

    async def _rows(self, limit: int, *conditions: ColumnElement[bool]) -> Sequence[Any]:
        """Rows of fleets. A program that only reads the ledger is none."""
        taken_over = (
            select(func.count())
            .where(runs.c.life == lives.c.id, RUNNING, runs.c.attempt > 1)
            .scalar_subquery()
            .label("continued")
        )
        wanted = (
            select(lives, taken_over)
            .where(lives.c.state.in_(_STATES), *conditions)
            .order_by(lives.c.started_at, lives.c.id)
            .limit(limit)
        )
        return await self._database.read(lambda connection: connection.execute(wanted).all())

    async def _records(self, rows: Sequence[Any]) -> tuple[ReplicaRecord, ...]:
        if not rows:
            return ()
        seen = await self._locks.look([row.id for row in rows])
        found = []
        for row in rows:
            record = _record(row)
            if row.id == self._life:
                own = self._report()
                state = cast(ReplicaState, own.state or record.state)
                record = replace(record, state=state, runs=own.runs, taken_over=own.taken_over, is_here=True)
            if (liveness := seen.get(row.id)) is not None:
                is_dead = liveness.is_dead and row.id != self._life
                state = "dead" if is_dead else record.state
                record = replace(record, state=state, beat_age=liveness.beat_age)
            found.append(record)
        return tuple(found)


def _not_found() -> Fault:
    return refusals.not_found(
        "replica not found: it has ended, or its runs were taken over; `pallas get replicas` lists all"
    )


def _record(row: Any) -> ReplicaRecord:
    """A row as a record. Hosts and releases are text of other machines."""
    return ReplicaRecord(
        id=short_id(row.id),
        host=one_line(row.host, 100),
        pid=row.pid,
        release=one_line(row.release, 40),
        state=row.state,
        started_at=row.started_at,
        runs=row.runs,
        continued=row.continued,
        taken_over=row.taken_over,
    )
