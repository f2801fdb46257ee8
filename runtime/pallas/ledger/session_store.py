"""Sessions in the ledger: any fleet can go on with one, and at most one prompt of each is under way."""

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import batched
from typing import Any, Final

from sqlalchemy import Connection, and_, bindparam, case, delete, func, or_, select, update

from pallas.model import StoredSession

from .database import Database, insert_new
from .tables import agents, lives, runs, sessions, threads, waiting
from .thread_table import agent_id

KEEP_SECONDS: Final = 14 * 24 * 3600.0
"""Seconds that a session that never expires is kept without use, once the fleet that opened it has ended."""
_AT_ONCE: Final = 1_000

_STATUS: Final = func.coalesce(
    select(runs.c.status).where(runs.c.id == sessions.c.run_id).scalar_subquery(), ""
)
_IS_QUEUED: Final = select(waiting.c.run_id).where(waiting.c.run_id == sessions.c.run_id).exists()
# A run has no row before it begins, and without a thread none before it ends.
_MAY_BEGIN: Final = or_(_IS_QUEUED, select(lives.c.id).where(lives.c.id == sessions.c.run_life).exists())
_IS_BUSY: Final = and_(sessions.c.run_id != "", or_(_STATUS == "running", and_(_STATUS == "", _MAY_BEGIN)))
# The run that another fleet took over may have ended after the last write of the session.
_ENDED: Final = func.coalesce(
    select(runs.c.finished_at).where(runs.c.id == sessions.c.run_id).scalar_subquery(), 0.0
)
_ALL: Final = select(
    sessions,
    agents.c.name.label("agent"),
    case((_IS_BUSY, sessions.c.run_id), else_="").label("run"),
    _ENDED.label("ended_at"),
    select(threads.c.id).where(threads.c.id == sessions.c.handle).scalar_subquery().label("known"),
).join(agents, agents.c.id == sessions.c.agent_id)
_SAVE: Final = (
    update(sessions)
    .where(
        sessions.c.id == bindparam("session"),
        or_(sessions.c.run_id == bindparam("over"), and_(bindparam("over") == "", ~_IS_BUSY)),
    )
    .values(
        **{
            name: bindparam(f"new_{name}", type_=sessions.c[name].type)
            for name in ("handle", "thread_id", "begun", "failed", "had_prompt", "turns", "used_at")
        },
        run_id="",
    )
)


class SessionStore:
    """The sessions of one ledger. Raises Fault (TRANSPORT, TIMEOUT) if the database fails."""

    def __init__(self, database: Database, life: str, clock: Callable[[], float]) -> None:
        self._database = database
        self._life = life
        self._clock = clock

    async def put(self, session: StoredSession) -> None:
        """Store a session that was opened, or opened again."""
        now = self._clock()

        def work(connection: Connection) -> None:
            values = {
                "id": session.id,
                "agent_id": agent_id(connection, session.agent, now),
                "kind": session.kind,
                "owner": session.owner,
                "life": self._life,
                "metadata": session.metadata,
                "created_at": session.created_at,
                **_changing(session),
            }
            row = insert_new(connection, sessions).values(values)
            changed = {name: row.excluded[name] for name in ("metadata", *_changing(session))}
            connection.execute(row.on_conflict_do_update(index_elements=[sessions.c.id], set_=changed))

        await self._database.write(work)

    async def get(self, session: str) -> StoredSession | None:
        """The session of that id."""
        return await self._database.read(lambda connection: _one(connection, session))

    async def claim(self, session: str, run_id: str) -> StoredSession | None:
        """Have a prompt begin with that run, unless the session is busy or failed; the session after that.

        The prompt has begun if that is its ``run``. Returns None if the session is over.
        """
        now = self._clock()
        free = (sessions.c.id == session, sessions.c.failed == "", ~_IS_BUSY)
        values = {"run_id": run_id, "run_life": self._life, "had_prompt": True, "used_at": now}

        def work(connection: Connection) -> StoredSession | None:
            connection.execute(update(sessions).where(*free).values(values))
            return _one(connection, session)

        return await self._database.write(work)

    async def save(self, changed: Iterable[tuple[StoredSession, str]]) -> None:
        """Write what changed of sessions, each with the run of its prompt, which is over.

        That run is empty if it was not claimed. Does nothing for a session that is over, or in which another
        prompt has begun.
        """
        rows = [
            {
                "session": each.id,
                "over": over,
                **{f"new_{key}": value for key, value in _changing(each).items()},
            }
            for each, over in changed
        ]
        if rows:
            await self._database.write(lambda connection: connection.execute(_SAVE, rows))

    async def free(self, session: str, run_id: str) -> None:
        """Undo ``claim``: the prompt has not begun."""
        its = (sessions.c.id == session, sessions.c.run_id == run_id)
        change = update(sessions).where(*its).values(run_id="")
        await self._database.write(lambda connection: connection.execute(change))

    async def ask_cancel(self, session: str, run_id: str) -> None:
        """Note that the session's client cancelled that prompt, whose fleet then reports no error."""
        its = (sessions.c.id == session, sessions.c.run_id == run_id)
        change = update(sessions).where(*its).values(cancelled=run_id)
        await self._database.write(lambda connection: connection.execute(change))

    async def is_cancelled(self, session: str, run_id: str) -> bool:
        """Whether the session's client cancelled that prompt, or closed the session."""
        wanted = select(sessions.c.cancelled).where(sessions.c.id == session)
        found = await self._database.read(lambda connection: connection.execute(wanted).first())
        return found is None or found.cancelled == run_id

    async def delete(self, session: str) -> None:
        """End a session, if there is one of that id."""
        gone = delete(sessions).where(sessions.c.id == session)
        await self._database.write(lambda connection: connection.execute(gone))

    async def expire(
        self, idle: float, ttl: float, kinds: Collection[str], *, but: Sequence[str] = ()
    ) -> None:
        """Delete sessions with agents of these kinds that are unused for ``idle`` seconds or older than
        ``ttl``, except busy ones and those in ``but``. Of other kinds delete those that nobody goes on with.
        """
        now = self._clock()
        before = now - idle
        unused = and_(sessions.c.used_at <= before, before >= _ENDED)
        late = and_(sessions.c.kind.in_(kinds), or_(sessions.c.created_at <= now - ttl, unused))
        has_fleet = select(lives.c.id).where(lives.c.id == sessions.c.life).exists()
        left = and_(sessions.c.kind.not_in(kinds), sessions.c.used_at <= now - KEEP_SECONDS, ~has_fleet)
        gone = delete(sessions).where(or_(late, left), ~_IS_BUSY, sessions.c.id.not_in(but))
        await self._database.write(lambda connection: connection.execute(gone))

    async def known(self, ids: Iterable[str]) -> dict[str, float]:
        """Those of these sessions that are not over, each with the time of its last use."""

        def work(connection: Connection) -> dict[str, float]:
            found: dict[str, float] = {}
            for some in batched(ids, _AT_ONCE, strict=False):
                wanted = select(sessions.c.id, sessions.c.used_at, _ENDED.label("ended_at"))
                rows = connection.execute(wanted.where(sessions.c.id.in_(some)))
                found |= {row.id: max(row.used_at, row.ended_at) for row in rows}
            return found

        return await self._database.read(work)


def _changing(session: StoredSession) -> dict[str, Any]:
    return {
        "handle": session.handle,
        "thread_id": session.thread,
        "begun": session.begun,
        "failed": session.failed,
        "had_prompt": session.had_prompt,
        "turns": session.turns,
        "used_at": session.used_at,
    }


def _one(connection: Connection, session: str) -> StoredSession | None:
    row = connection.execute(_ALL.where(sessions.c.id == session)).first()
    if row is None:
        return None
    return StoredSession(
        row.id,
        row.agent,
        row.kind,
        row.owner,
        row.handle,
        row.metadata,
        row.created_at,
        max(row.used_at, row.ended_at),
        begun=row.begun or row.known is not None,
        thread=row.thread_id or row.known or "",
        failed=row.failed,
        had_prompt=row.had_prompt,
        turns=row.turns,
        run=row.run,
    )
