"""A turn in the database, step by step: each function is the work of one short transaction.

All take the row of the thread first, so that two of them wait for each other there and nowhere else.
"""

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, Text, bindparam, case, insert, select, update

from pallas import refusals
from pallas.model import Fault, Message, MessageStatus, RunRecord
from pallas.text import one_line

from .context import rewritten
from .rows import rows_of, run_values, size_of, storable
from .tables import PENDING, RUNNING, messages, runs, threads

MAX_TITLE = 80
"""Characters of a title that is made of a message."""

_TAKE = (
    update(threads)
    .where(threads.c.id == bindparam("thread"))
    .values(
        next_index=threads.c.next_index + bindparam("number"),
        updated_at=bindparam("now"),
        last_turn_at=bindparam("now"),
        title=case((threads.c.title == "", bindparam("first_title", type_=Text)), else_=threads.c.title),
    )
    .returning(threads.c.next_index)
)
_SETTLE = (
    update(messages)
    .where(messages.c.run_id == bindparam("run"), PENDING)
    .values(status=bindparam("outcome"), reason=bindparam("why"))
    .returning(messages.c.part, messages.c.turn_index)
)
_MEND = (
    update(messages)
    .where(messages.c.thread_id == bindparam("thread"), messages.c.run_id == bindparam("run"))
    .values(status="complete", reason="")
    .returning(messages.c.part, messages.c.turn_index)
)
_RUN_IS_OVER = update(runs).where(runs.c.id == bindparam("run"), RUNNING)
_WAS_RUNNING = select(runs.c.status).where(runs.c.id == bindparam("run"))
_ADD = insert(messages)


def take(connection: Connection, thread: str, number: int, now: float, *, title: str = "") -> int:
    """The first of ``number`` indexes that nobody else gets. Raises Fault (not found)."""
    values = {"thread": thread, "number": number, "now": now, "first_title": title}
    after = connection.execute(_TAKE, values).scalar_one_or_none()
    if after is None:
        raise no_thread()
    return int(after) - number


def no_thread() -> Fault:
    """There is no thread of that id, as far as whoever asks may know."""
    return refusals.not_found("thread not found: it is unknown, was deleted, or belongs to another caller")


def add(
    connection: Connection,
    thread: str,
    new: Sequence[Message],
    *,
    run: str,
    status: MessageStatus,
    now: float,
    title: str = "",
    summary: bool = False,
) -> int:
    """The rows of messages, at the end of the thread; returns the ``turn_index`` of the first."""
    first = index = take(connection, thread, sum(map(size_of, new)), now, title=title)
    rows = []
    for message in new:
        made = rows_of(message, thread, index, run=run, status=status, now=now, summary=summary)
        index += len(made)
        rows += made
    if rows:
        connection.execute(_ADD, rows)
    return first


def begin(connection: Connection, thread: str, run: RunRecord, question: Message, life: str) -> int:
    """The run as running, its question as pending."""
    title = storable(one_line(question.text, MAX_TITLE))
    index = add(connection, thread, [question], run=run.id, status="pending", now=run.started_at, title=title)
    start(connection, run, life)
    return index


def start(connection: Connection, run: RunRecord, life: str) -> None:
    """A run that begins; a second one of that id is refused by the database."""
    connection.execute(insert(runs), [{**run_values(run), "life": life}])


def stop(connection: Connection, run: RunRecord, life: str, *, thread: str = "", at: int | None) -> bool:
    """A run that is over, begun or not. False when it was taken for dead before."""
    values = run_values(run)
    values["turn_index"] = at
    values["thread_id"] = thread or values["thread_id"]
    done = connection.execute(_RUN_IS_OVER.values({name: values[name] for name in _ENDED}), {"run": run.id})
    if done.rowcount:
        return True
    if connection.execute(_WAS_RUNNING, {"run": run.id}).first() is None:
        connection.execute(insert(runs), [{**values, "life": life}])
        return True
    known = update(runs).where(runs.c.id == run.id).values({name: values[name] for name in _ENDED})
    connection.execute(known)
    return False


_ENDED = (
    "status",
    "finished_at",
    "seconds",
    "steps",
    "tools",
    "tokens_in",
    "tokens_out",
    "turn_index",
    "fault",
    "partial",
)


def finish(
    connection: Connection,
    thread: str,
    run: RunRecord,
    said: Sequence[Message],
    *,
    life: str,
    now: float,
    replaces: bool,
) -> int:
    """Everything of the run complete, the run over; returns the ``turn_index`` of the answer."""
    told = _rows(connection, _SETTLE, run=run.id, outcome="complete", why="")
    if not told:  # it was taken for dead, or never told
        told = _rows(connection, _MEND, run=run.id, thread=thread)
    before = sorted({part for part, _ in told})
    if replaces:
        new = rewritten(connection, thread, before, said)
        rest = new.rest
        if new.changed:
            at = add(connection, thread, new.summaries, run=run.id, status="complete", now=now, summary=True)
            after = at + sum(map(size_of, new.summaries))
            _show_from(
                connection,
                thread,
                at if new.summaries else None,
                after if new.context is None else new.context,
            )
    else:
        rest = said[len(before) :]
    first = add(connection, thread, rest, run=run.id, status="complete", now=now)
    answer = first + sum(map(size_of, rest)) - 1 if rest else max((index for _, index in told), default=None)
    stop(connection, run, life, thread=thread, at=answer)
    return first if answer is None else answer


def fail(
    connection: Connection,
    thread: str,
    run: RunRecord,
    reason: str,
    partial: Sequence[Message],
    *,
    life: str,
    now: float,
) -> None:
    """Everything of the run that is pending in error (SPEC AG-5), ``partial`` beside it, the run over."""
    _rows(connection, _SETTLE, run=run.id, outcome="error", why=storable(reason))
    at: int | None = None
    if partial:
        first = add(connection, thread, partial, run=run.id, status="complete", now=now)
        at = first + sum(map(size_of, partial)) - 1
    else:
        take(connection, thread, 0, now)
    stop(connection, run, life, thread=thread, at=at)


def summarise(connection: Connection, thread: str, summary: Message, upto: int, now: float) -> int:
    """A summary of the rows up to ``upto``: what models are shown begins with it."""
    at = add(connection, thread, [summary], run="", status="complete", now=now, summary=True)
    _show_from(connection, thread, at, upto + 1)
    return at


def _show_from(connection: Connection, thread: str, summary: int | None, context: int) -> None:
    """What models are shown from now on: the summary rows from there, then the others from ``context``."""
    values = {"summary_from": summary, "context_from": context}
    connection.execute(update(threads).where(threads.c.id == thread).values(values))


def _rows(connection: Connection, statement: object, **values: str) -> list[tuple[int, int]]:
    found: Iterable[tuple[int, int]] = connection.execute(statement, values).all()  # type: ignore[call-overload]
    return [(part, index) for part, index in found]
