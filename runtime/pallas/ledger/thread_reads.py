"""Threads in the ledger: what reads durable conversations and their messages."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import ColumnElement, Connection, bindparam, case, select, tuple_

from pallas.model import Message, MessageRecord, Page, Said, ThreadRecord
from pallas.model.run_values import OF_AGENTS

from . import turn_statements
from .database import Database
from .message_rows import message_record, thread_record
from .message_search import SearchTerms, threads_in
from .model_context import context_of, context_of_run, turn_of_run
from .page_cursor import check_limit, cursor_of, place_of
from .tables import agents, messages, threads
from .thread_history import history_of

_THREADS: Final = select(threads, agents.c.name.label("agent")).join(
    agents, agents.c.id == threads.c.agent_id
)
_OF_AGENT: Final = _THREADS.where(agents.c.name == bindparam("agent"))
# Built once, since that takes longer than running it.
_BY_ID: Final = _OF_AGENT.where(threads.c.id == bindparam("handle"))
_BY_HANDLE: Final = _OF_AGENT.where(threads.c.handle == bindparam("handle"))
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


class ThreadReads:
    """Reads the threads of one ledger. Permissions are checked elsewhere (``pallas.sessions.thread_access``).

    Every method raises Fault: ``not_found`` for an unknown thread, TRANSPORT and TIMEOUT if the database
    fails.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, thread: str) -> ThreadRecord | None:
        """The thread of that id."""
        return await self._database.read(lambda connection: thread_of(connection, thread))

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
            if (by_id := thread_of(connection, handle)) is not None:
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

        With ``branches_of`` only those that continue from the thread of that id.
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

    async def said(self, run_id: str) -> Said | None:
        """What a run under way has said so far; None if its question is not stored."""

        def work(connection: Connection) -> Said | None:
            if not (found := context_of_run(connection, run_id)):
                return None
            last = found[-1].part
            results = turn_statements.results_of(connection, run_id, last)
            return Said(tuple(each.message for each in found), found[0].part, last, results)

        return await self._database.read(work)

    async def answers(self, thread: str, run_id: str) -> tuple[str, ...]:
        """The texts of the model in a run that is over, in order."""
        of_run = (messages.c.thread_id == thread, messages.c.run_id == run_id, messages.c.role == "assistant")
        wanted = select(messages.c.content).where(*of_run).order_by(messages.c.turn_index)
        rows = await self._database.read(lambda connection: connection.execute(wanted).scalars().all())
        return tuple(text for text in rows if text)


def thread_of(connection: Connection, thread: str) -> ThreadRecord | None:
    """The thread of that id."""
    row = connection.execute(_THREADS.where(threads.c.id == thread)).first()
    return thread_record(row) if row is not None else None
