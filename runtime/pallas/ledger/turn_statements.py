"""The statements of a turn: each function is the work of one short transaction.

Indexes come from the thread's own row, so two writers wait for each other there and nowhere else.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, bindparam, case, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from pallas.model import Fault, Message, MessageStatus, RunRecord, refusals
from pallas.safe_text import one_line

from .hot_statement import HotStatement
from .message_rows import rows_of, run_values, size_of
from .model_context import context_of, rewritten
from .storable_text import Words, storable
from .tables import PENDING, RUNNING, messages, runs, threads
from .thread_history import history_of

MAX_TITLE: Final = 80
"""Most characters of a title that is made from a message."""

_TAKE: Final = HotStatement(
    update(threads)
    .where(threads.c.id == bindparam("thread"))
    .values(
        next_index=threads.c.next_index + bindparam("number"),
        updated_at=bindparam("now"),
        last_turn_at=bindparam("now"),
        title=case((threads.c.title == "", bindparam("first_title", type_=Words)), else_=threads.c.title),
    )
    .returning(threads.c.next_index)
)
_TOLD: Final = (messages.c.part, messages.c.turn_index, messages.c.role, messages.c.tool_call_id)
_OF_RUN: Final = (messages.c.thread_id == bindparam("thread"), messages.c.run_id == bindparam("run"))
_SETTLE: Final = HotStatement(
    update(messages)
    .where(messages.c.run_id == bindparam("run"), PENDING)
    .values(status=bindparam("outcome"), reason=bindparam("why"))
    .returning(*_TOLD)
)
_MEND: Final = HotStatement(
    update(messages).where(*_OF_RUN).values(status="complete", reason="").returning(*_TOLD)
)
_STANDS: Final = (
    update(messages)
    .where(messages.c.thread_id == bindparam("thread"), messages.c.turn_index == bindparam("question"))
    .values(status="complete", reason="")
)
_UNSAY: Final = delete(messages).where(*_OF_RUN, messages.c.turn_index >= bindparam("index"))
_FIRST_PENDING: Final = select(func.min(messages.c.turn_index)).where(
    messages.c.run_id == bindparam("run"), PENDING
)
_ENDED: Final = (
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
# Built once, since that takes longer than running it.
_STOP: Final = HotStatement(
    update(runs)
    .where(runs.c.id == bindparam("run"))
    .values({name: bindparam(f"new_{name}", type_=runs.c[name].type) for name in _ENDED})
)
_PROGRESS: Final = (
    update(runs)
    .where(runs.c.id == bindparam("run"), RUNNING)
    .values(
        {name: bindparam(f"new_{name}", type_=runs.c[name].type) for name in ("seconds", "steps", "tools")}
    )
)
_HOW: Final = select(runs.c.status, runs.c.finished_at).where(runs.c.id == bindparam("run"))
_INSERT_RUN: Final = HotStatement(insert(runs))
_INSERT_MESSAGES: Final = HotStatement(insert(messages))


class RunRow(NamedTuple):
    """The columns of a run's row that are compared."""

    part: int
    turn_index: int
    role: str
    tool_call_id: str


def no_thread() -> Fault:
    """The Fault for a thread that does not exist for the caller."""
    return refusals.not_found("thread not found: it is unknown, was deleted, or belongs to another caller")


def take(connection: Connection, thread: str, number: int, now: float, *, title: str = "") -> int:
    """Reserve ``number`` indexes; returns the first. Raises Fault (not found)."""
    values = {"thread": thread, "number": number, "now": now, "first_title": title}
    after = _TAKE.rows(connection, values)
    if not after:
        raise no_thread()
    return int(after[0][0]) - number


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
    """Add rows of messages at the end of the thread; returns the ``turn_index`` of the first."""
    first = index = take(connection, thread, sum(map(size_of, new)), now, title=title)
    rows: list[dict[str, Any]] = []
    for message in new:
        rows_of_message = rows_of(message, thread, index, run=run, status=status, now=now, summary=summary)
        index += len(rows_of_message)
        rows += rows_of_message
    if rows:
        _INSERT_MESSAGES.run_many(connection, rows)
    return first


def begin(
    connection: Connection,
    thread: str,
    run: RunRecord,
    question: Message,
    before: Sequence[Message],
    life: str,
) -> int:
    """Add the run as running and its question as pending, after the messages ``before``."""
    now = run.started_at
    if before:
        add(connection, thread, before, run="", status="complete", now=now)
    title = one_line(question.text, MAX_TITLE)
    index = add(connection, thread, [question], run=run.id, status="pending", now=now, title=title)
    start(connection, run, life)
    return index


def start(connection: Connection, run: RunRecord, life: str) -> None:
    """Add a run that begins. Raises Fault (conflict) if its id exists."""
    try:
        _INSERT_RUN.run(connection, {**run_values(run), "life": life})
    except IntegrityError:
        raise refusals.taken_run() from None


def stop(connection: Connection, run: RunRecord, life: str, *, thread: str = "", at: int | None) -> None:
    """Record the end of a run, whether it was begun, taken for dead in between, or is unknown."""
    values = {**run_values(run), "turn_index": at}
    ended = {f"new_{name}": values[name] for name in _ENDED}
    if _STOP.run(connection, {"run": run.id, **ended}) == 0:
        start_values = {**values, "thread_id": thread or run.thread or None, "life": life}
        _INSERT_RUN.run(connection, start_values)


def progress(connection: Connection, under_way: Sequence[RunRecord]) -> None:
    """Record the progress of runs; does nothing for one that is over."""
    values = [
        {"run": each.id, "new_seconds": each.seconds, "new_steps": each.steps, "new_tools": each.tools}
        for each in under_way
    ]
    connection.execute(_PROGRESS, values)


def finish(
    connection: Connection,
    thread: str,
    run: RunRecord,
    messages: Sequence[Message],
    *,
    life: str,
    now: float,
    replaces: bool,
) -> int:
    """Complete the run and all its rows; returns the ``turn_index`` of the answer."""
    values = {"run": run.id, "thread": thread}
    stored = _rows(_SETTLE.rows(connection, {"run": run.id, "outcome": "complete", "why": ""}))
    if not stored:  # it was taken for dead, or none of its messages was stored
        stored = _rows(_MEND.rows(connection, values))
    if replaces:
        new = rewritten(connection, thread, {row.part for row in stored}, messages)
        rest = new.rest
        if new.changed:
            at = add(connection, thread, new.summaries, run=run.id, status="complete", now=now, summary=True)
            after = at + sum(map(size_of, new.summaries))
            begins = after if new.context is None else new.context
            _show_from(connection, thread, at if new.summaries else None, begins)
    else:
        same, wrong = _same(stored, messages)
        rest = messages[same:]
        if wrong is not None:  # a message could not be stored: those after it are written again
            connection.execute(_UNSAY, {**values, "index": wrong})
            stored = [row for row in stored if row.part < wrong]
    first = add(connection, thread, rest, run=run.id, status="complete", now=now)
    stored_rows = sum(map(size_of, rest))
    answer = (
        first + stored_rows - 1 if stored_rows else max((row.turn_index for row in stored), default=first)
    )
    stop(connection, run, life, thread=thread, at=answer)
    return answer


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
    """End the run and put its pending rows into error (SPEC AG-5).

    With ``partial`` the question stays, followed by these messages. A run that already ended stays as it is,
    if its end is reported twice.
    """
    before = connection.execute(_HOW, {"run": run.id}).first()
    if before is not None and (before.status == "ok" or before.finished_at == run.finished_at):
        return
    stored = _rows(_SETTLE.rows(connection, {"run": run.id, "outcome": "error", "why": reason}))
    if partial and stored:
        connection.execute(_STANDS, {"thread": thread, "question": stored[0].turn_index})
    first = add(connection, thread, partial, run=run.id, status="complete", now=now)
    at = first + sum(map(size_of, partial)) - 1 if partial else None
    stop(connection, run, life, thread=thread, at=at)


def summarise(
    connection: Connection, thread: str, summary: Message, number: int, before: str, now: float
) -> int:
    """Add a summary that replaces the ``number`` oldest messages for models."""
    at = add(connection, thread, [summary], run="", status="complete", now=now, summary=True)
    found = context_of(connection, thread)
    shown = [each for each in history_of(found[0] if found else []) if each.part != at]
    left = [each.part for each in shown[number:] if not each.stands]
    # Messages of a running run are shown once it is complete.
    pending = connection.execute(_FIRST_PENDING, {"run": before}).scalar() if before else None
    _show_from(connection, thread, at, min([*left, at + 1 if pending is None else pending]))
    return at


def _show_from(connection: Connection, thread: str, summary: int | None, context: int) -> None:
    """Set what models see: the summary rows from ``summary`` on, then the others from ``context`` on."""
    values = {"summary_from": summary, "context_from": context}
    connection.execute(update(threads).where(threads.c.id == thread).values(values))


def _rows(found: list[tuple[Any, ...]]) -> list[RunRow]:
    return sorted(map(RunRow._make, found))


def _same(stored: Sequence[RunRow], messages: Sequence[Message]) -> tuple[int, int | None]:
    """How many messages of ``messages`` are stored, and the first stored row that differs."""
    shapes: dict[int, list[tuple[str, str]]] = {}
    for row in stored:
        shapes.setdefault(row.part, []).append((row.role, row.tool_call_id))
    for number, (part, shape) in enumerate(shapes.items()):
        if number == len(messages) or shape != _shape(messages[number]):
            return number, part
    return len(shapes), None


def _shape(message: Message) -> list[tuple[str, str]]:
    ids = [storable(answer.call_id) for answer in message.answers] if message.role == "tool" else []
    return [("system" if message.summary else message.role, each) for each in ids or [""]]
