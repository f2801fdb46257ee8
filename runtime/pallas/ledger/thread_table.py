"""Threads in the ledger: what makes and changes durable conversations."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from sqlalchemy import (
    Connection,
    bindparam,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from pallas.model import Message, NewThread, RunRecord, ThreadRecord, refusals
from pallas.model.ids import mint
from pallas.model.ledger_records import MAX_TITLE
from pallas.model.run_values import OF_AGENTS
from pallas.safe_text import one_line

from . import claims, thread_queue, turn_statements
from .database import Database, insert_new
from .hot_statement import HotStatement
from .known_handles import MOST, HandleFilter, KnownHandles
from .storable_text import new_id
from .tables import WITHIN, agents, idempotency, runs, threads
from .thread_queue import FIRST
from .thread_reads import ThreadReads, thread_of

_AGENT_ID: Final = HotStatement(select(agents.c.id).where(agents.c.name == bindparam("agent")))
_INSERT_THREAD: Final = HotStatement(insert(threads))
_HANDLES: Final = select(threads.c.handle).where(threads.c.handle.is_not(None)).limit(MOST + 1)


def agent_id(connection: Connection, name: str, now: float) -> str:
    """The id of the agent of that name; creates its row if it has none."""
    found = _AGENT_ID.rows(connection, {"agent": name})
    if not found:
        values = {"id": new_id(), "name": name, "created_at": now, "updated_at": now}
        connection.execute(insert_new(connection, agents).values(values).on_conflict_do_nothing())
        found = _AGENT_ID.rows(connection, {"agent": name})
    return str(found[0][0])


class ThreadRows(ThreadReads):
    """The threads of one ledger. Permissions are checked elsewhere (``pallas.sessions.thread_access``).

    Every method raises Fault: ``not_found`` for an unknown thread, TRANSPORT and TIMEOUT if the database
    fails.
    """

    def __init__(self, database: Database, life: str, clock: Callable[[], float]) -> None:
        super().__init__(database)
        self._life = life
        self._clock = clock
        self._handles = KnownHandles()

    async def create(
        self,
        agent: str,
        owner: str,
        *,
        id: str | None = None,  # noqa: A002 - the word of the record
        handle: str | None = None,
        origin: str = "",
        title: str = "",
    ) -> ThreadRecord:
        """Create a thread of an agent. Raises Fault (conflict) if it has one of that id or handle."""
        now = self._clock()
        if handle is not None:
            self._handles.add(handle)
        record = ThreadRecord(
            id or mint(), agent, owner, one_line(title, MAX_TITLE), origin, created_at=now, updated_at=now
        )
        await self._database.write(lambda connection: _create(connection, record, handle))
        return record

    async def learn_handles(self) -> None:
        """Read the handles of all threads, so that ``may_have`` knows which are new."""

        def work(connection: Connection) -> HandleFilter | None:
            found = connection.execute(_HANDLES).scalars().all()
            return HandleFilter(found) if len(found) <= MOST else None

        if (stored := await self._database.read(work)) is not None:
            self._handles.are(stored)

    def may_have(self, handle: str) -> bool:
        """Whether a thread may have that handle of a caller, as far as this fleet knows: not of those that
        another one has made since ``learn_handles``.
        """
        return self._handles.may_have(handle)

    async def rename(self, thread: str, title: str) -> ThreadRecord:
        """Set the title, one line of at most 200 characters."""
        values = {"title": one_line(title, MAX_TITLE), "updated_at": self._clock()}

        def work(connection: Connection) -> ThreadRecord:
            connection.execute(update(threads).where(threads.c.id == thread).values(values))
            found = thread_of(connection, thread)
            if found is None:
                raise turn_statements.no_thread()
            return found

        return await self._database.write(work)

    async def delete(self, thread: str) -> None:
        """Delete a thread with its messages, its runs and their events, and those of nested runs."""

        def work(connection: Connection) -> None:
            # Idempotency keys stay, so that a repeated request is not run again.
            gone = select(runs.c.id).where(runs.c.thread_id == thread)
            connection.execute(update(idempotency).where(idempotency.c.run_id.in_(gone)).values(run_id=""))
            below = gone.cte("below", recursive=True)
            below = below.union(select(runs.c.id).join(below, runs.c.within == below.c.id).where(WITHIN))
            nested = select(runs.c.thread_id).join(below, runs.c.within == below.c.id).where(WITHIN)
            connection.execute(
                delete(threads).where(threads.c.id.in_(nested), threads.c.origin.in_(OF_AGENTS))
            )
            branches = update(threads).where(threads.c.branched_from == thread)
            connection.execute(branches.values(branched_from="", branched_at=0))
            if not connection.execute(delete(threads).where(threads.c.id == thread)).rowcount:
                raise turn_statements.no_thread()

        await self._database.write(work)

    async def begin(
        self,
        thread: str,
        run: RunRecord,
        question: Message,
        *,
        before: Sequence[Message] = (),
        new: NewThread | None = None,
        request: str | None = None,
        place: int = FIRST,
    ) -> int:
        """Begin a run in the thread, with its question pending; returns the index of the question.

        ``before`` are earlier messages from elsewhere; they come first, complete. With ``new`` the thread is
        created for the run's agent and owner. ``request`` is what another fleet needs to continue the run,
        ``place`` what ``wait`` returned.
        Raises Fault: conflict if there is a thread of that id or handle, or a run of that id; busy while
        another run has the thread.
        """
        run = replace(run, thread=thread)
        now = self._clock()
        if new is not None and new.handle is not None:
            self._handles.add(new.handle)

        def work(connection: Connection) -> int:
            if new is not None:
                row = ThreadRecord(
                    thread,
                    run.agent,
                    run.owner,
                    origin=new.origin,
                    created_at=now,
                    updated_at=now,
                    branched_from=new.branched_from,
                    branched_at=len(before) if new.branched_from else 0,
                )
                _create(connection, row, new.handle)
            return turn_statements.begin(
                connection, thread, run, question, before, self._life, request, place
            )

        return await self._database.write(work)

    async def add_message(self, thread: str, run: RunRecord, message: Message, *, again: bool = False) -> int:
        """Add a message of the loop, pending until the run is over; returns the index of its first row.

        ``again``: an earlier write of it failed, but may have been done. Raises Fault (taken over).
        """
        now = self._clock()

        def work(connection: Connection) -> int:
            add = partial(
                turn_statements.add,
                connection,
                thread,
                run=run.id,
                status="pending",
                now=now,
                holder=run,
            )
            if again:
                add([])  # waits for the first try; raises if it is taken over
                last = turn_statements.last_of(connection, run.id)
                if last is not None and _is_same(last[1], message):
                    return last[0]
            part = add([message])
            if message.role == "tool":
                turn_statements.forget_results(connection, run.id)
            return part

        return await self._database.write(work)

    async def keep_result(self, run: RunRecord, part: int, call_id: str, native: str) -> None:
        """Store the result of one of several calls of the message at ``part``, before all have returned.

        Does nothing for a run that was taken over.
        """
        await self._database.write(
            lambda connection: turn_statements.keep_result(connection, run, part, call_id, native)
        )

    async def hand_over(self, run: RunRecord) -> None:
        """Leave a run under way to another fleet, or to this one when it is started again."""
        await self._database.write(lambda connection: claims.hand_over(connection, run))

    async def wait(self, thread: str, run: RunRecord, request: str) -> int:
        """Queue a run for a thread that another one has; returns its place.

        ``request`` is the whole request as JSON. Raises Fault if too many wait.
        """
        now = self._clock()
        return await self._database.write(
            lambda connection: thread_queue.join(
                connection, thread, run.id, agent=run.agent, life=self._life, request=request, now=now
            )
        )

    async def stop_waiting(self, run_id: str) -> None:
        """Take a run out of the queue."""
        await self._database.write(lambda connection: thread_queue.leave(connection, run_id, self._life))

    async def hand_over_place(self, run_id: str) -> None:
        """Leave a run that waits to another fleet, at its place."""
        await self._database.write(lambda connection: claims.hand_over_place(connection, run_id, self._life))

    async def has(self, thread: str, run: RunRecord) -> bool:
        """Whether the run still has the thread."""
        return await self._database.read(lambda connection: turn_statements.has(connection, thread, run))

    async def progress(self, under_way: Sequence[RunRecord]) -> None:
        """Record duration, steps and tools of running runs, so that they survive a kill."""
        await self._database.write(lambda connection: turn_statements.progress(connection, under_way))

    async def finish(
        self,
        thread: str,
        run: RunRecord,
        messages: Sequence[Message],
        *,
        replaces: bool = False,
    ) -> int:
        """Complete a run that was answered; returns the ``turn_index`` of its answer, which is durable then.

        ``messages`` are the question, the messages already stored by ``add_message``, and the new ones. With
        ``replaces`` they replace the whole conversation for models; people still see every row.
        """
        now = self._clock()
        return await self._database.write(
            lambda connection: turn_statements.finish(
                connection, thread, run, messages, life=self._life, now=now, replaces=replaces
            )
        )

    async def fail(
        self,
        thread: str,
        run: RunRecord,
        reason: str,
        partial: Sequence[Message] = (),
    ) -> None:
        """End a run without an answer: its pending rows get the status error and the reason (AG-5).

        ``partial`` are messages to store all the same: then the question stays, followed by them.
        """
        now = self._clock()
        await self._database.write(
            lambda connection: turn_statements.fail(
                connection, thread, run, reason, partial, life=self._life, now=now
            )
        )

    async def summarise(
        self,
        thread: str,
        summary: Message,
        number: int,
        *,
        before: RunRecord | None = None,
    ) -> int:
        """Add a row that replaces the ``number`` oldest messages of ``history`` for models; returns its
        index.

        The messages of the running run ``before`` are not among them. People still see every row. Raises
        Fault (taken over).
        """
        now = self._clock()
        return await self._database.write(
            lambda connection: turn_statements.summarise(connection, thread, summary, number, before, now)
        )


def _is_same(stored: Message, message: Message) -> bool:
    return (stored.role, stored.calls, stored.answers) == (message.role, message.calls, message.answers)


def _create(connection: Connection, record: ThreadRecord, handle: str | None) -> None:
    """Add the row of a new thread. Raises Fault (conflict)."""
    values = {
        "id": record.id,
        "agent_id": agent_id(connection, record.agent, record.created_at),
        "handle": handle,
        "owner": record.owner,
        "title": record.title,
        "origin": record.origin,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "branched_from": record.branched_from,
        "branched_at": record.branched_at,
    }
    try:
        _INSERT_THREAD.run(connection, values)
    except IntegrityError:
        raise refusals.conflict(
            f"agent {record.agent} has a thread of that name already; continue it, or choose another name"
        ) from None
