"""Threads in the ledger: durable conversations and their messages."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    bindparam,
    case,
    delete,
    insert,
    select,
    tuple_,
    update,
)
from sqlalchemy.exc import IntegrityError

from pallas.model import Message, MessageRecord, NewThread, Page, RunRecord, Said, ThreadRecord, refusals
from pallas.model.ids import mint
from pallas.model.run_values import OF_AGENTS
from pallas.safe_text import one_line

from . import claims, thread_queue, turn_statements
from .database import Database, insert_new
from .hot_statement import HotStatement
from .known_handles import MOST, HandleFilter, KnownHandles
from .message_rows import message_record, thread_record
from .message_search import SearchTerms, threads_in
from .model_context import context_of, context_of_run, turn_of_run
from .page_cursor import check_limit, cursor_of, place_of
from .storable_text import new_id
from .tables import WITHIN, agents, idempotency, messages, runs, threads
from .thread_history import history_of
from .thread_queue import FIRST

MAX_TITLE: Final = 200
"""Most characters of a title."""

_THREADS: Final = select(threads, agents.c.name.label("agent")).join(
    agents, agents.c.id == threads.c.agent_id
)
_OF_AGENT: Final = _THREADS.where(agents.c.name == bindparam("agent"))
# Built once, since that takes longer than running it.
_BY_ID: Final = _OF_AGENT.where(threads.c.id == bindparam("handle"))
_BY_HANDLE: Final = _OF_AGENT.where(threads.c.handle == bindparam("handle"))
_AGENT_ID: Final = HotStatement(select(agents.c.id).where(agents.c.name == bindparam("agent")))
_INSERT_THREAD: Final = HotStatement(insert(threads))
_HANDLES: Final = select(threads.c.handle).where(threads.c.handle.is_not(None)).limit(MOST + 1)
_MESSAGES: Final = select(
    messages.c.id,
    messages.c.thread_id,
    messages.c.turn_index,
    messages.c.role,
    messages.c.content,
    messages.c.tool_calls,
    messages.c.tool_call_id,
    messages.c.tool_ok,
    messages.c.status,
    messages.c.reason,
    messages.c.run_id,
    messages.c.pictures,
    messages.c.images,
    # The native form is large and needed for its pictures only.
    case((messages.c.pictures > 0, messages.c.native)).label("native"),
    messages.c.summary,
    messages.c.created_at,
)


def agent_id(connection: Connection, name: str, now: float) -> str:
    """The id of the agent of that name; creates its row if it has none."""
    found = _AGENT_ID.rows(connection, {"agent": name})
    if not found:
        values = {"id": new_id(), "name": name, "created_at": now, "updated_at": now}
        connection.execute(insert_new(connection, agents).values(values).on_conflict_do_nothing())
        found = _AGENT_ID.rows(connection, {"agent": name})
    return str(found[0][0])


class ThreadRows:
    """The threads of one ledger. Permissions are checked elsewhere (``pallas.sessions.thread_access``).

    Every method raises Fault: ``not_found`` for an unknown thread, TRANSPORT and TIMEOUT if the database
    fails.
    """

    def __init__(self, database: Database, life: str, clock: Callable[[], float]) -> None:
        self._database = database
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

    async def get(self, thread: str) -> ThreadRecord | None:
        """The thread of that id."""
        return await self._database.read(
            lambda connection: _one(connection, _THREADS.where(threads.c.id == thread))
        )

    async def find(self, agent: str, handle: str) -> ThreadRecord | None:
        """The agent's thread with that id or caller's handle."""
        found = await self.resolve(agent, handle)
        return None if found is None else found[0]

    async def resolve(self, agent: str, handle: str) -> tuple[ThreadRecord, str] | None:
        """As ``find``, with the caller's handle for the thread, empty if it has none."""

        def work(connection: Connection) -> tuple[ThreadRecord, str] | None:
            for statement in (_BY_ID, _BY_HANDLE):
                row = connection.execute(statement, {"agent": agent, "handle": handle}).first()
                if row is not None:
                    return thread_record(row), row.handle or ""
            return None

        return await self._database.read(work)

    async def named(self, handle: str) -> tuple[ThreadRecord, ...]:
        """The thread of that id, else all threads with that caller's handle, one per agent."""

        def work(connection: Connection) -> tuple[ThreadRecord, ...]:
            if (by_id := _one(connection, _THREADS.where(threads.c.id == handle))) is not None:
                return (by_id,)
            # One query per agent, since the index of handles begins with the agent.
            of_agents = threads.c.agent_id.in_(select(agents.c.id))
            statement = _THREADS.where(of_agents, threads.c.handle == handle).order_by(agents.c.name)
            return tuple(map(thread_record, connection.execute(statement)))

        return await self._database.read(work)

    async def list(
        self,
        *,
        agent: str | None = None,
        owner: str | None = None,
        search: str = "",
        branches_of: str = "",
        limit: int = 50,
        cursor: str = "",
    ) -> Page[ThreadRecord]:
        """Threads, last used first, without those of nested runs; ``limit`` 1 to 200.

        With ``branches_of`` only those that go on from the thread of that id.
        With ``search`` only those with all its words in one message or in the title, with a snippet.
        Raises Fault (PROTOCOL) on a bad cursor or search.
        """
        check_limit(limit)
        terms = SearchTerms.of(search)
        place = place_of(cursor, "threads", float)
        statement = _THREADS.order_by(threads.c.updated_at.desc(), threads.c.id.desc()).limit(limit + 1)
        of_viewer: list[ColumnElement[bool]] = [threads.c.origin.not_in(OF_AGENTS)]
        if agent is not None:
            one = select(agents.c.id).where(agents.c.name == agent).scalar_subquery()
            of_viewer.append(threads.c.agent_id == one)
        if owner is not None:
            of_viewer.append(threads.c.owner == owner)
        if branches_of:
            of_viewer.append(threads.c.branched_from == branches_of)
        statement = statement.where(*of_viewer)
        if place is not None:
            statement = statement.where(tuple_(threads.c.updated_at, threads.c.id) < tuple_(*place))

        rows = await self._database.read(lambda it: threads_in(it, statement, terms, of_viewer))
        found, more = tuple(rows[:limit]), len(rows) > limit
        return Page(found, cursor_of("threads", found[-1].updated_at, found[-1].id) if more else "")

    async def turn_of(self, thread: str, run: str) -> tuple[Sequence[tuple[str, Message]], Sequence[Message]]:
        """What was said in a thread before a run, as models see it, and what the run said.

        The former with the ids of the runs that said it, which are empty for summaries.
        """
        return await self._database.read(lambda connection: turn_of_run(connection, thread, run))

    async def rename(self, thread: str, title: str) -> ThreadRecord:
        """Set the title, one line of at most 200 characters."""
        values = {"title": one_line(title, MAX_TITLE), "updated_at": self._clock()}

        def work(connection: Connection) -> ThreadRecord:
            connection.execute(update(threads).where(threads.c.id == thread).values(values))
            found = _one(connection, _THREADS.where(threads.c.id == thread))
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

    async def messages(
        self,
        thread: str,
        *,
        limit: int = 50,
        cursor: str = "",
        newest_first: bool = False,
    ) -> Page[MessageRecord]:
        """Rows of a thread in order; the cost depends on ``limit`` (1 to 200) alone.

        Raises Fault (PROTOCOL).
        """
        check_limit(limit)
        kind = "messages-" if newest_first else "messages+"
        place = place_of(cursor, kind, int)
        index = messages.c.turn_index
        statement = _MESSAGES.where(messages.c.thread_id == thread).limit(limit + 1)
        statement = statement.order_by(index.desc() if newest_first else index)
        if place is not None:
            statement = statement.where(index < place[0] if newest_first else index > place[0])

        def work(connection: Connection) -> Sequence[MessageRecord]:
            rows = connection.execute(statement).all()
            if (
                not rows
                and connection.execute(select(threads.c.id).where(threads.c.id == thread)).first() is None
            ):
                raise turn_statements.no_thread()
            return [message_record(row) for row in rows]

        found = await self._database.read(work)
        page = tuple(found[:limit])
        return Page(page, cursor_of(kind, page[-1].turn_index, "") if len(found) > limit else "")

    async def text_at(self, thread: str, turn_index: int) -> str:
        """The text of one row; empty if there is none."""
        place = (messages.c.thread_id == thread, messages.c.turn_index == turn_index)
        wanted = select(messages.c.content).where(*place)
        return await self._database.read(lambda connection: connection.execute(wanted).scalar()) or ""

    async def history(self, thread: str) -> tuple[tuple[Message, ...], int]:
        """The messages that a model is shown (AG-7), and the next free ``turn_index``."""

        def work(connection: Connection) -> tuple[tuple[Message, ...], int]:
            found = context_of(connection, thread)
            if found is None:
                raise turn_statements.no_thread()
            return tuple(each.message for each in history_of(found[0])), found[1]

        return await self._database.read(work)

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

    async def said(self, run_id: str) -> Said | None:
        """What a run under way has said so far; None if its question is not stored."""

        def work(connection: Connection) -> Said | None:
            if not (found := context_of_run(connection, run_id)):
                return None
            last = found[-1].part
            results = turn_statements.results_of(connection, run_id, last)
            return Said(tuple(each.message for each in found), found[0].part, last, results)

        return await self._database.read(work)

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

    async def answers(self, thread: str, run_id: str) -> tuple[str, ...]:
        """The texts of the model in a run that is over, in order."""
        of_run = (messages.c.thread_id == thread, messages.c.run_id == run_id, messages.c.role == "assistant")
        wanted = select(messages.c.content).where(*of_run).order_by(messages.c.turn_index)
        rows = await self._database.read(lambda connection: connection.execute(wanted).scalars().all())
        return tuple(text for text in rows if text)

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


def _one(connection: Connection, statement: Select[tuple[object, ...]]) -> ThreadRecord | None:
    row = connection.execute(statement).first()
    return thread_record(row) if row is not None else None


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
