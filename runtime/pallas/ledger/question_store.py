"""Questions to people, and the audit log, in the ledger."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from sqlalchemy import Connection, delete, insert, or_, select, tuple_, update

from pallas.model import Page
from pallas.model.codec import loads
from pallas.model.questions import BY_DEADLINE, BY_END, AuditRecord, Question, QuestionState

from .database import Database, to_text
from .page_cursor import check_limit, cursor_of, place_of
from .tables import OPEN, RUNNING, audit, questions, runs

_JSON: Final = ("path", "schema", "content")
_MAX_DEPTH: Final = 64
"""Most runs above a run that are followed."""


class QuestionStore:
    """The questions of one ledger, as ``pallas.questions.question_records`` says.

    Every method raises Fault (TRANSPORT, TIMEOUT) if the database fails.
    """

    is_shared = True

    def __init__(self, database: Database, life: str, clock: Callable[[], float]) -> None:
        self._database = database
        self._life = life
        self._clock = clock

    async def add(self, question: Question, audit: AuditRecord) -> None:
        """Store a new question with its entry in the audit log."""
        values = {**_values(question), "life": self._life}

        def work(connection: Connection) -> None:
            connection.execute(insert(questions), [values])
            _note(connection, audit)

        await self._database.write(work)

    async def get(self, id: str) -> Question | None:  # noqa: A002 - the word of the record
        """The question of that id."""
        return await self._one(select(questions).where(questions.c.id == id))

    async def of_call(self, call: tuple[str, int, str, str]) -> Question | None:
        """The last approval that was asked for the call: run, part, call id and digest."""
        run_id, part, call_id, digest = call
        wanted = select(questions).where(
            questions.c.run_id == run_id,
            questions.c.part == part,
            questions.c.call_id == call_id,
            questions.c.digest == digest,
            questions.c.kind == "approval",
        )
        return await self._one(wanted.order_by(questions.c.asked_at.desc(), questions.c.id.desc()))

    async def unmade(self, run_id: str, part: int) -> frozenset[str]:
        """The ids of the calls of that message that were asked about, and were not made."""
        wanted = select(questions.c.call_id, questions.c.used).where(
            questions.c.run_id == run_id, questions.c.part == part, questions.c.kind == "approval"
        )
        rows = await self._database.read(lambda connection: connection.execute(wanted).all())
        made = {row.call_id for row in rows if row.used}
        return frozenset(row.call_id for row in rows if row.call_id not in made)

    async def standing(self, question: Question) -> Question | None:
        """An answer ``always`` that holds for this question."""
        where = (
            questions.c.thread == question.thread if question.thread else questions.c.root == question.root
        )
        wanted = select(questions).where(
            where,
            questions.c.always,
            questions.c.state == "answered",
            questions.c.action == "accept",
            questions.c.owner == question.owner,
            questions.c.agent == question.agent,
            questions.c.tool == question.tool,
        )
        return await self._one(wanted.order_by(questions.c.asked_at.desc()))

    async def end(self, ended: Question, audit: AuditRecord) -> bool:
        """Store how an open question ended; False if it is not open any more."""
        known = _values(ended)
        names = ("state", "action", "always", "content", "answered_by", "answered_at")
        change = update(questions).where(questions.c.id == ended.id, OPEN)
        return await self._change(change.values({name: known[name] for name in names}), audit)

    async def use(self, id: str, audit: AuditRecord) -> bool:  # noqa: A002 - as above
        """Mark an accepted approval as used; False if it was used before."""
        unused = (
            questions.c.id == id,
            questions.c.state == "answered",
            questions.c.action == "accept",
            questions.c.used.is_(False),
        )
        return await self._change(update(questions).where(*unused).values(used=True), audit)

    async def ended(self, ids: Collection[str]) -> Sequence[Question]:
        """Those of the questions that are not open any more."""
        wanted = select(questions).where(questions.c.id.in_(list(ids)), questions.c.state != "open")
        rows = await self._database.read(lambda connection: connection.execute(wanted).all())
        return [_question(row) for row in rows]

    async def list(
        self,
        *,
        owner: str | None = None,
        state: QuestionState | None = "open",
        run_id: str = "",
        thread: str = "",
        limit: int = 50,
        cursor: str = "",
    ) -> Page[Question]:
        """Questions, newest first; ``limit`` 1 to 200. Raises Fault (PROTOCOL) on a bad cursor."""
        check_limit(limit)
        place = place_of(cursor, "questions", float)
        wanted = select(questions).order_by(questions.c.asked_at.desc(), questions.c.id.desc())
        if owner is not None:
            wanted = wanted.where(questions.c.owner == owner)
        if state is not None:
            wanted = wanted.where(questions.c.state == state)
        if run_id:
            wanted = wanted.where(or_(questions.c.run_id == run_id, questions.c.root == run_id))
        if thread:
            wanted = wanted.where(questions.c.thread == thread)
        if place is not None:
            wanted = wanted.where(tuple_(questions.c.asked_at, questions.c.id) < tuple_(*place))
        wanted = wanted.limit(limit + 1)
        rows = await self._database.read(lambda connection: connection.execute(wanted).all())
        found = tuple(map(_question, rows[:limit]))
        more = len(rows) > limit
        return Page(found, cursor_of("questions", found[-1].asked_at, found[-1].id) if more else "")

    async def note(self, audit: AuditRecord) -> None:
        """Append to the audit log."""
        await self._database.write(lambda connection: _note(connection, audit))

    async def audit(
        self, *, who: str = "", run: str = "", tool: str = "", limit: int = 50, cursor: str = ""
    ) -> Page[AuditRecord]:
        """Entries of the audit log, newest first; ``limit`` 1 to 200."""
        check_limit(limit)
        place = place_of(cursor, "audit", int)
        wanted = select(audit).order_by(audit.c.id.desc())
        for name, value in {"who": who, "run": run, "tool": tool}.items():
            if value:
                wanted = wanted.where(audit.c[name] == value)
        if place is not None:
            wanted = wanted.where(audit.c.id < place[0])
        wanted = wanted.limit(limit + 1)
        rows = await self._database.read(lambda connection: connection.execute(wanted).all())
        found = tuple(AuditRecord(**row._mapping) for row in rows[:limit])
        return Page(found, cursor_of("audit", found[-1].id, "") if len(rows) > limit else "")

    async def root_of(self, run_id: str) -> tuple[str, str, str]:
        """The outermost run above this one, its thread and its owner; empty where it is not known."""

        def work(connection: Connection) -> tuple[str, str, str]:
            found = run_id, "", ""
            above = run_id
            for _ in range(_MAX_DEPTH):
                columns = (runs.c.id, runs.c.thread_id, runs.c.owner, runs.c.within)
                row = connection.execute(select(*columns).where(runs.c.id == above)).first()
                if row is None:
                    break
                found = row.id, row.thread_id or "", row.owner
                if not row.within:
                    break
                above = row.within
            return found

        return await self._database.read(work)

    async def expire(self, now: float) -> None:
        """End the questions whose time is over."""
        over = update(questions).where(OPEN, questions.c.expires_at <= now)
        values = {"state": "expired", "answered_by": BY_DEADLINE, "answered_at": now}
        await self._database.write(lambda connection: connection.execute(over.values(values)))

    async def _one(self, wanted: Any) -> Question | None:
        row = await self._database.read(lambda connection: connection.execute(wanted.limit(1)).first())
        return _question(row) if row is not None else None

    async def _change(self, change: Any, audit: AuditRecord) -> bool:
        def work(connection: Connection) -> bool:
            if not connection.execute(change).rowcount:
                return False
            _note(connection, audit)
            return True

        return await self._database.write(work)


def withdraw(connection: Connection, life: str, now: float) -> None:
    """End the open questions of a life whose runs are over, or were never stored."""
    going_on = select(runs.c.id).where(RUNNING)
    _withdraw(connection, now, questions.c.life == life, questions.c.run_id.not_in(going_on))


def withdraw_of(connection: Connection, run_id: str, now: float) -> None:
    """End the open questions of a run that is over."""
    _withdraw(connection, now, questions.c.run_id == run_id)


def _withdraw(connection: Connection, now: float, *which: Any) -> None:
    values = {"state": "withdrawn", "answered_by": BY_END, "answered_at": now}
    connection.execute(update(questions).where(OPEN, *which).values(values))


def forget_questions(connection: Connection, before: float, limit: int) -> bool:
    """Delete questions that were asked before that time, at most ``limit``; whether there may be more.

    The audit log stays.
    """
    old = select(questions.c.id).where(questions.c.asked_at < before, questions.c.expires_at < before)
    found = connection.execute(old.limit(limit)).scalars().all()
    if found:
        connection.execute(delete(questions).where(questions.c.id.in_(found)))
    return len(found) == limit


def _note(connection: Connection, entry: AuditRecord) -> None:
    values = {each.name: getattr(entry, each.name) for each in fields(AuditRecord) if each.name != "id"}
    connection.execute(insert(audit), [values])


def _values(question: Question) -> dict[str, Any]:
    values = {each.name: getattr(question, each.name) for each in fields(Question)}
    return values | {name: to_text(values[name]) for name in _JSON}


def _question(row: Any) -> Question:
    known: Mapping[str, Any] = row._mapping
    values = {each.name: known[each.name] for each in fields(Question)}
    values |= {name: loads(values[name]) for name in _JSON}
    return Question(**values | {"path": tuple(values["path"])})
