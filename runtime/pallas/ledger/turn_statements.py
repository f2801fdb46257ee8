"""The statements of a turn: each function is the work of one short transaction.

Indexes come from the thread's own row, so two writers wait for each other there and nowhere else. The same
row names the run that may write, its attempt and its claim: one that another fleet took over changes nothing
any more, even if a failover lost that and the attempt is counted again.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, bindparam, case, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from pallas.model import Fault, Message, MessageStatus, RunRecord, refusals
from pallas.model.ledger_records import MADE_TITLE
from pallas.safe_text import one_line

from . import thread_queue
from .database import insert_new
from .hot_statement import HotStatement
from .message_rows import rows_of, run_values, size_of
from .model_context import context_of, context_of_run, rewritten
from .storable_text import Words, storable
from .tables import PENDING, RUNNING, call_results, messages, runs, threads, waiting
from .thread_history import history_of
from .thread_queue import FIRST

_HELD: Final = (
    threads.c.run_id == bindparam("run"),
    threads.c.attempt == bindparam("of_attempt"),
    threads.c.claim == bindparam("of_claim"),
)


def _taking(*conditions: Any, **more: Any) -> HotStatement:
    """The statement that reserves indexes of a thread, where the conditions hold."""
    return HotStatement(
        update(threads)
        .where(threads.c.id == bindparam("thread"), *conditions)
        .values(
            next_index=threads.c.next_index + bindparam("number"),
            updated_at=bindparam("now"),
            last_turn_at=bindparam("now"),
            title=case((threads.c.title == "", bindparam("first_title", type_=Words)), else_=threads.c.title),
            **more,
        )
        .returning(threads.c.next_index)
    )


_TAKE: Final = _taking()
_EARLIER: Final = select(waiting.c.position).where(
    waiting.c.thread_id == bindparam("thread"), waiting.c.position < bindparam("place")
)
_TAKE_FREE: Final = _taking(
    threads.c.run_id == "",
    ~_EARLIER.exists(),
    run_id=bindparam("run", type_=Words),
    attempt=bindparam("of_attempt"),
    claim=bindparam("of_claim", type_=Words),
)
_TAKE_HELD: Final = _taking(*_HELD)
_TAKE_LAST: Final = _taking(*_HELD, run_id="")
_HAS: Final = select(threads.c.id).where(threads.c.id == bindparam("thread"), *_HELD)
_HAS_STILL: Final = HotStatement(_HAS.with_for_update(read=True))
_IS_THERE: Final = HotStatement(select(threads.c.run_id).where(threads.c.id == bindparam("thread")))
_TOLD: Final = (
    messages.c.part,
    messages.c.turn_index,
    messages.c.role,
    messages.c.tool_call_id,
    messages.c.tool_calls,  # whole: in RETURNING, SQLite says of each column that it IS NOT NULL
)
_OF_RUN: Final = (messages.c.thread_id == bindparam("thread"), messages.c.run_id == bindparam("run"))
_SETTLE: Final = HotStatement(
    update(messages)
    .where(messages.c.run_id == bindparam("run"), PENDING)
    .values(status=bindparam("outcome"), reason=bindparam("why"))
    .returning(*_TOLD)
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
    "cost",
    "unpriced",
    "version",
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
    .where(
        runs.c.id == bindparam("run"),
        runs.c.attempt == bindparam("of_attempt"),
        runs.c.claim == bindparam("of_claim"),
        RUNNING,
    )
    .values(
        {name: bindparam(f"new_{name}", type_=runs.c[name].type) for name in ("seconds", "steps", "tools")}
    )
)
_HOW: Final = select(runs.c.status, runs.c.finished_at, runs.c.life).where(runs.c.id == bindparam("run"))
_FORGET_RESULTS: Final = HotStatement(delete(call_results).where(call_results.c.run_id == bindparam("run")))
_NEW_RESULT: Final = HotStatement(
    lambda connection: insert_new(connection, call_results).on_conflict_do_nothing()
)
_INSERT_RUN: Final = HotStatement(insert(runs))
_INSERT_MESSAGES: Final = HotStatement(insert(messages))


class RunRow(NamedTuple):
    """The columns of a run's row that are compared."""

    part: int
    turn_index: int
    role: str
    tool_call_id: str
    tool_calls: Any


def _fence(run: RunRecord) -> dict[str, Any]:
    return {"run": run.id, "of_attempt": run.attempt, "of_claim": run.claim}


def no_thread() -> Fault:
    """The Fault for a thread that does not exist for the caller."""
    return refusals.not_found("thread not found: it is unknown, was deleted, or belongs to another caller")


def _take(
    connection: Connection,
    statement: HotStatement,
    thread: str,
    number: int,
    now: float,
    holder: RunRecord | None,
    title: str,
    place: int,
) -> int:
    """Reserve ``number`` indexes; returns the first.

    Raises Fault (not found, busy, taken over).
    """
    values: dict[str, Any] = {"thread": thread, "number": number, "now": now, "first_title": title}
    if statement is _TAKE_FREE:
        values["place"] = place
    if holder is not None:
        values |= _fence(holder)
    after = statement.rows(connection, values)
    if after:
        return int(after[0][0]) - number
    if not _IS_THERE.rows(connection, {"thread": thread}):
        raise no_thread()
    raise refusals.thread_busy() if statement is _TAKE_FREE else refusals.taken_over()


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
    holder: RunRecord | None = None,
    statement: HotStatement | None = None,
    place: int = FIRST,
) -> int:
    """Add rows of messages at the end of the thread; returns the ``turn_index`` of the first.

    ``holder`` must have the thread, unless ``statement`` gives it to it. Raises Fault (not found,
    busy, taken over).
    """
    take = statement or (_TAKE if holder is None else _TAKE_HELD)
    number = sum(map(size_of, new))
    first = index = _take(connection, take, thread, number, now, holder, title, place)
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
    request: str | None = None,
    place: int = FIRST,
) -> int:
    """Add the run as running and its question as pending, after the messages ``before``.

    ``request`` is what another fleet needs to continue it, ``place`` its position among those that wait.
    Raises Fault (busy) while another run has the thread, or waits for it longer.
    """
    now = run.started_at
    first = _TAKE_FREE
    if before:
        add(
            connection,
            thread,
            before,
            run="",
            status="complete",
            now=now,
            holder=run,
            statement=first,
            place=place,
        )
        first = _TAKE_HELD
    title = one_line(question.text, MADE_TITLE)
    index = add(
        connection,
        thread,
        [question],
        run=run.id,
        status="pending",
        now=now,
        title=title,
        holder=run,
        statement=first,
        place=place,
    )
    if place != FIRST:
        thread_queue.leave(connection, run.id)
    start(connection, run, life, request)
    return index


def start(connection: Connection, run: RunRecord, life: str, request: str | None = None) -> None:
    """Add a run that begins. Raises Fault (conflict) if its id exists."""
    try:
        _INSERT_RUN.run(connection, {**run_values(run), "life": life, "request": request})
    except IntegrityError:
        raise refusals.taken_run() from None


def stop(connection: Connection, run: RunRecord, life: str, *, thread: str = "", at: int | None) -> None:
    """Record the end of a run, whether it was begun or is unknown."""
    values = {**run_values(run), "turn_index": at}
    ended = {f"new_{name}": values[name] for name in _ENDED}
    if _STOP.run(connection, {"run": run.id, **ended}) == 0:
        start_values = {
            **values,
            "thread_id": thread or run.thread or None,
            "life": life,
            "request": None,
        }
        _INSERT_RUN.run(connection, start_values)


def may_stop(connection: Connection, run: RunRecord) -> bool:
    """Whether no other fleet has the run or ended it."""
    found = connection.execute(select(runs.c.claim).where(runs.c.id == run.id)).scalar_one_or_none()
    return found in (None, "", run.claim)


def progress(connection: Connection, under_way: Sequence[RunRecord]) -> None:
    """Record the progress of runs; does nothing for one that is over."""
    values = [
        {
            **_fence(each),
            "new_seconds": each.seconds,
            "new_steps": each.steps,
            "new_tools": each.tools,
        }
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
    """Complete the run and all its rows, and free the thread; returns the ``turn_index`` of the answer.

    Raises Fault (taken over).
    """
    values = {"run": run.id, "thread": thread}
    stored = _rows(_SETTLE.rows(connection, {"run": run.id, "outcome": "complete", "why": ""}))
    if replaces:
        new = rewritten(connection, thread, {row.part for row in stored}, messages)
        rest = new.rest
        if new.changed:
            at = add(
                connection,
                thread,
                new.summaries,
                run=run.id,
                status="complete",
                now=now,
                summary=True,
                holder=run,
            )
            after = at + sum(map(size_of, new.summaries))
            begins = after if new.context is None else new.context
            _show_from(connection, thread, at if new.summaries else None, begins)
    else:
        same, wrong = _same(stored, messages)
        rest = messages[same:]
        if wrong is not None:  # a message could not be stored: those after it are written again
            connection.execute(_UNSAY, {**values, "index": wrong})
            stored = [row for row in stored if row.part < wrong]
    first = add(
        connection,
        thread,
        rest,
        run=run.id,
        status="complete",
        now=now,
        holder=run,
        statement=_TAKE_LAST,
    )
    stored_rows = sum(map(size_of, rest))
    answer = (
        first + stored_rows - 1 if stored_rows else max((row.turn_index for row in stored), default=first)
    )
    if len(stored) > 1:
        forget_results(connection, run.id)
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
    """End the run and put its pending rows into error (AG-5).

    With ``partial`` the question stays, followed by these messages. A run that already ended stays as it is,
    if its end is reported twice. Raises Fault (taken over).
    """
    before = connection.execute(_HOW, {"run": run.id}).first()
    if before is None:  # its beginning may just be written: wait for that
        add(connection, thread, [], run=run.id, status="complete", now=now)
        before = connection.execute(_HOW, {"run": run.id}).first()
    if before is not None and (before.status == "ok" or before.finished_at == run.finished_at):
        return
    if before is not None and before.life != life:  # it waited here, and another fleet began it
        raise refusals.taken_over()
    stored = _rows(_SETTLE.rows(connection, {"run": run.id, "outcome": "error", "why": reason}))
    if partial and stored:
        connection.execute(_STANDS, {"thread": thread, "question": stored[0].turn_index})
    first = add(
        connection,
        thread,
        partial,
        run=run.id,
        status="complete",
        now=now,
        holder=run if before is not None else None,
        statement=_TAKE_LAST if before is not None else None,
    )
    at = first + sum(map(size_of, partial)) - 1 if partial else None
    if len(stored) > 1:
        forget_results(connection, run.id)
    stop(connection, run, life, thread=thread, at=at)


def last_of(connection: Connection, run: str) -> tuple[int, Message] | None:
    """The last message of a run in flight and the ``turn_index`` of its first row; None without one."""
    found = context_of_run(connection, run)
    return (found[-1].part, found[-1].message) if found else None


def has(connection: Connection, thread: str, run: RunRecord) -> bool:
    """Whether the run has the thread now."""
    return connection.execute(_HAS, {"thread": thread, **_fence(run)}).first() is not None


def keep_result(connection: Connection, run: RunRecord, part: int, call_id: str, native: str) -> None:
    """Store the result of one of several calls, whose message is at ``part``; not one of an old attempt."""
    if _HAS_STILL.rows(connection, {"thread": run.thread, **_fence(run)}):
        values = {"run_id": run.id, "part": part, "call_id": call_id, "native": native}
        _NEW_RESULT.run(connection, values)


def forget_results(connection: Connection, run: str) -> None:
    """Delete the results of calls: their message is stored."""
    _FORGET_RESULTS.run(connection, {"run": run})


def results_of(connection: Connection, run: str, part: int) -> dict[str, str]:
    """The stored results of the calls of a message, by call id."""
    wanted = select(call_results.c.call_id, call_results.c.native).where(
        call_results.c.run_id == run, call_results.c.part == part
    )
    return {row.call_id: row.native for row in connection.execute(wanted)}


def summarise(
    connection: Connection, thread: str, summary: Message, number: int, holder: RunRecord | None, now: float
) -> int:
    """Add a summary that replaces the ``number`` oldest messages for models.

    The messages of the run that has the thread are not among them. Raises Fault (taken over).
    """
    before = holder.id if holder is not None else ""
    at = add(connection, thread, [summary], run="", status="complete", now=now, summary=True, holder=holder)
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
    shapes: dict[int, list[tuple[str, str, bool]]] = {}
    for row in stored:
        shapes.setdefault(row.part, []).append((row.role, row.tool_call_id, bool(row.tool_calls)))
    for number, (part, shape) in enumerate(shapes.items()):
        if number == len(messages) or shape != _shape(messages[number]):
            return number, part
    return len(shapes), None


def _shape(message: Message) -> list[tuple[str, str, bool]]:
    ids = [storable(answer.call_id) for answer in message.answers] if message.role == "tool" else []
    role = "system" if message.summary else message.role
    return [(role, each, bool(message.calls)) for each in ids or [""]]
