"""The rows that a model is shown, also after an executor rewrote the conversation."""

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from sqlalchemy import Connection, and_, bindparam, func, or_, select

from pallas.model import Message
from pallas.model.packed import Packed

from .message_rows import images_in
from .tables import PENDING, messages, threads
from .thread_history import CompleteRow, Placed, history_of, placed

_NOT_SUMMARY = and_(~messages.c.summary, messages.c.turn_index >= threads.c.context_from)
_SUMMARY = and_(messages.c.summary, messages.c.turn_index >= threads.c.summary_from)
# The first bound uses the index; the others filter its result.
_CONTEXT = (
    select(*(messages.c[name] for name in CompleteRow._fields))
    .join(threads, threads.c.id == messages.c.thread_id)
    .where(
        messages.c.thread_id == bindparam("thread"),
        messages.c.turn_index >= bindparam("lowest"),
        messages.c.status == "complete",
        or_(_NOT_SUMMARY, _SUMMARY),
    )
    .order_by(messages.c.turn_index)
)
_BOUNDS = select(threads.c.next_index, threads.c.context_from, threads.c.summary_from).where(
    threads.c.id == bindparam("thread")
)


def context_of(connection: Connection, thread: str) -> tuple[list[CompleteRow], int] | None:
    """The complete rows that models see, and the next free index; None if there is no such thread."""
    bounds = connection.execute(_BOUNDS, {"thread": thread}).first()
    if bounds is None:
        return None
    lowest = bounds.context_from if bounds.summary_from is None else min(bounds[1:])
    rows = connection.execute(_CONTEXT, {"thread": thread, "lowest": lowest})
    return [CompleteRow._make(row) for row in rows], bounds.next_index


def context_of_run(connection: Connection, run: str) -> list[Placed]:
    """The messages of a run that is under way, as they are stored; calls may lack their answers."""
    columns = (messages.c[name] for name in CompleteRow._fields)
    wanted = select(*columns).where(messages.c.run_id == run, PENDING).order_by(messages.c.turn_index)
    return placed(CompleteRow._make(row) for row in connection.execute(wanted))


def turn_of_run(
    connection: Connection, thread: str, run: str
) -> tuple[Sequence[tuple[str, Message]], Sequence[Message]]:
    """The well-formed messages before those of a run, and its own, also if it failed.

    The former have the ids of their runs, which are empty for summaries. Messages that a summary replaces
    are left out.
    """
    columns = [messages.c[name] for name in CompleteRow._fields]
    of_run = select(*columns).where(messages.c.thread_id == thread, messages.c.run_id == run)
    own = [CompleteRow._make(row) for row in connection.execute(of_run.order_by(messages.c.turn_index))]
    if not own:
        return (), ()
    earlier = (messages.c.thread_id == thread, messages.c.turn_index < own[0].turn_index)
    stated = select(func.max(messages.c.turn_index)).where(*earlier, messages.c.summary)
    summary = connection.execute(stated).scalar() or 0
    before = select(*columns).where(
        *earlier, messages.c.turn_index >= summary, messages.c.status == "complete"
    )
    rows = [CompleteRow._make(row) for row in connection.execute(before)]
    runs = {row.part: row.run_id for row in rows}
    return (
        [(runs[each.part], _with_pictures(each.message)) for each in history_of(rows)],
        [_with_pictures(each.message) for each in placed(own)],
    )


def _with_pictures(message: Message) -> Message:
    """A message with the pictures in its native form, also those of tools."""
    packed = isinstance(message.native, Packed) and not message.images
    return replace(message, images=images_in(message.native.json)) if packed else message


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The difference between a rewritten conversation and the rows of its thread."""

    rest: Sequence[Message]  # the new messages at the end
    changed: bool = False  # False if the conversation only grew
    summaries: Sequence[Message] = ()  # they replace what was said before the rows from ``context`` on
    context: int | None = None  # None: the summaries replace everything before ``rest``


def rewritten(
    connection: Connection, thread: str, stored_parts: Set[int], new_context: Sequence[Message]
) -> Rewritten:
    """Compare ``new_context`` with the existing rows, which are not written again.

    ``stored_parts`` are the parts of the run's own messages that exist. New messages follow the last of them
    that is in ``new_context``. As much as possible of what precedes it is kept as rows; the rest, usually one
    summary, becomes rows that replace what was said before.
    """
    found = context_of(connection, thread)
    there = placed(found[0]) if found is not None else []
    heads = [each for each in there if each.stands]
    rows = [each for each in there if not each.stands]
    last = next((each for each in reversed(rows) if each.part in stored_parts), None)
    end = _last(new_context, last) if last is not None else 0
    if not end:
        # A summary replaces all that the run said on the way: only its last messages are new.
        end = (
            len(new_context) - 1 if new_context and new_context[-1].role == "assistant" else len(new_context)
        )
    same = 0
    while same < min(end, len(rows)) and _alike(rows[-1 - same].message, new_context[end - 1 - same]):
        same += 1
    left = new_context[: end - same]
    if same == len(rows) and len(left) == len(heads) and all(map(_alike, (h.message for h in heads), left)):
        return Rewritten(new_context[end:])
    # Rows of another run may be between those of this one: the context begins at the lowest.
    context = min((each.part for each in rows[len(rows) - same :]), default=None)
    return Rewritten(new_context[end:], True, left, context)


def _last(new_context: Sequence[Message], entry: Placed) -> int:
    """The number of messages up to and including the last one that equals the entry; 0 without one."""
    for number in range(len(new_context), 0, -1):
        if _alike(entry.message, new_context[number - 1]):
            return number
    return 0


def _alike(stored: Message, message: Message) -> bool:
    if stored.summary or message.summary:
        return stored.summary and message.summary and stored.text == message.text
    return (
        stored.role == message.role
        and [call.id for call in stored.calls] == [call.id for call in message.calls]
        and [answer.call_id for answer in stored.answers] == [answer.call_id for answer in message.answers]
        and (stored.role == "tool" or stored.text == message.text)
    )
