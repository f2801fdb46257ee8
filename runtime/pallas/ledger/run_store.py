"""Runs in the ledger, their events, and idempotency keys."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Final

from sqlalchemy import Connection, delete, select, tuple_

from pallas.model import EndedRun, Page, RunRecord, RunStatus, refusals
from pallas.model.codec import visible

from . import step_store, turn_statements
from .database import Database, insert_new
from .message_rows import run_record
from .page_cursor import check_limit, cursor_of, place_of
from .tables import idempotency, run_events, runs

KEY_SECONDS: Final = 24 * 3600.0
"""Seconds that an idempotency key is valid."""
MAX_EVENTS: Final = 10_000
"""Most events that are returned at once."""


class RunStore:
    """The runs of one ledger. Raises Fault (TRANSPORT, TIMEOUT) if the database fails."""

    def __init__(self, database: Database, life: str, clock: Callable[[], float]) -> None:
        self._database = database
        self._life = life
        self._clock = clock

    async def begin(self, run: RunRecord) -> None:
        """Record that a run without a thread begins."""
        await self._database.write(lambda connection: turn_statements.start(connection, run, self._life))

    async def finish(self, run: RunRecord) -> None:
        """Record the end of a run without a thread."""
        await self._database.write(
            lambda connection: turn_statements.stop(connection, run, self._life, at=run.turn_index)
        )

    async def get(self, run_id: str) -> RunRecord | None:
        """The run of that id."""
        row = await self._database.read(
            lambda connection: connection.execute(select(runs).where(runs.c.id == run_id)).first()
        )
        return run_record(row) if row is not None else None

    async def list(
        self,
        *,
        agent: str | None = None,
        thread: str | None = None,
        owner: str | None = None,
        status: RunStatus | None = None,
        limit: int = 50,
        cursor: str = "",
    ) -> Page[RunRecord]:
        """Runs, latest first; ``limit`` 1 to 200. Raises Fault (PROTOCOL) on a bad cursor."""
        check_limit(limit)
        place = place_of(cursor, "runs", float)
        wanted = select(runs).order_by(runs.c.started_at.desc(), runs.c.id.desc()).limit(limit + 1)
        asked = {"agent": agent, "thread_id": thread, "owner": owner, "status": status}
        for name, value in asked.items():
            if value is not None:
                wanted = wanted.where(runs.c[name] == value)
        if place is not None:
            wanted = wanted.where(tuple_(runs.c.started_at, runs.c.id) < tuple_(*place))
        rows = await self._database.read(lambda connection: connection.execute(wanted).all())
        found = tuple(map(run_record, rows[:limit]))
        more = len(rows) > limit
        return Page(found, cursor_of("runs", found[-1].started_at, found[-1].id) if more else "")

    async def events(
        self, run_id: str, after: int = 0, limit: int = 1000
    ) -> Sequence[tuple[int, dict[str, Any]]]:
        """Events of a run with numbers above ``after``, in order."""
        wanted = (
            select(run_events.c.seq, run_events.c.body)
            .where(run_events.c.run_id == run_id, run_events.c.seq > after)
            .order_by(run_events.c.seq)
            .limit(max(0, min(limit, MAX_EVENTS)))
        )
        rows = await self._database.read(lambda connection: connection.execute(wanted).all())
        return [(row.seq, row.body) for row in rows]

    async def add_events(self, run_id: str, rows: Sequence[tuple[int, dict[str, Any]]]) -> None:
        """Add events of a run that has begun; a number that exists is ignored.

        Raises Fault (not found) without the run.
        """
        if not rows:
            return
        now = self._clock()
        values = [{"run_id": run_id, "seq": seq, "at": now, "body": visible(body)} for seq, body in rows]

        def work(connection: Connection) -> None:
            if connection.execute(select(runs.c.id).where(runs.c.id == run_id)).first() is None:
                raise refusals.not_found("run not found: it is unknown, or was deleted with its thread")
            connection.execute(insert_new(connection, run_events).on_conflict_do_nothing(), values)

        await self._database.write(work)

    async def record(self, left: Iterable[EndedRun]) -> None:
        """Store many finished runs in one transaction.

        Events and steps of a run that does not exist (any more) are dropped.
        """
        now = self._clock()
        left = list(left)
        rows = {
            each.run_id: [
                {"run_id": each.run_id, "seq": seq, "at": now, "body": visible(body)}
                for seq, body in each.events
            ]
            for each in left
        }

        def work(connection: Connection) -> None:
            for each in left:
                if each.run is not None:
                    turn_statements.stop(connection, each.run, self._life, at=each.run.turn_index)
            there = set(connection.execute(select(runs.c.id).where(runs.c.id.in_(list(rows)))).scalars())
            if values := [row for run_id in there for row in rows[run_id]]:
                connection.execute(insert_new(connection, run_events).on_conflict_do_nothing(), values)
            known = [each for each in left if each.run_id in there]
            step_store.add(
                connection,
                chain.from_iterable(each.steps for each in known),
                [(each.run_id, blob) for each in known for blob in each.blobs],
                now,
            )

        await self._database.write(work)

    async def release_key(self, owner: str, key: str, run_id: str) -> None:
        """Free a key whose run was refused."""
        place = (idempotency.c.owner == owner, idempotency.c.key == key, idempotency.c.run_id == run_id)
        await self._database.write(lambda connection: connection.execute(delete(idempotency).where(*place)))

    async def claim_key(self, owner: str, key: str, run_id: str, digest: str) -> str:
        """The run of this key: ``run_id`` from now on, or the run that claimed it before.

        ``digest`` identifies the request. Raises Fault (conflict) if the key was used for another request.
        """
        now = self._clock()
        place = (idempotency.c.owner == owner, idempotency.c.key == key)
        values = {"owner": owner, "key": key, "run_id": run_id, "digest": digest, "created_at": now}

        def work(connection: Connection) -> str:
            connection.execute(
                delete(idempotency).where(*place, idempotency.c.created_at <= now - KEY_SECONDS)
            )
            connection.execute(insert_new(connection, idempotency).values(values).on_conflict_do_nothing())
            found = connection.execute(select(idempotency).where(*place)).one()
            if found.digest != digest:
                raise refusals.conflict(
                    "this Idempotency-Key was sent with another request before; send a new key with a new "
                    "request, and the old one only to repeat exactly what it was for",
                    key="Idempotency-Key",
                )
            return str(found.run_id)

        return await self._database.write(work)
