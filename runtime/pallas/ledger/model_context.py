"""The rows that a model is shown, and what becomes of them when an executor rewrote the conversation."""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from sqlalchemy import Connection, and_, bindparam, or_, select

from pallas.model import Message

from .tables import messages, threads
from .thread_history import CompleteRow, Placed, placed

_NOT_SUMMARY = and_(~messages.c.summary, messages.c.turn_index >= threads.c.context_from)
_SUMMARY = and_(messages.c.summary, messages.c.turn_index >= threads.c.summary_from)
# The first bound is what the index is asked for; the others choose among that.
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
    """The complete rows of what models are shown, and the next free index; None where there is no thread."""
    bounds = connection.execute(_BOUNDS, {"thread": thread}).first()
    if bounds is None:
        return None
    lowest = bounds.context_from if bounds.summary_from is None else min(bounds[1:])
    rows = connection.execute(_CONTEXT, {"thread": thread, "lowest": lowest})
    return [CompleteRow._make(row) for row in rows], bounds.next_index


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What is new when messages stand for the whole conversation.

    ``rest`` is what the run said last. Unless ``changed`` it only grew; else ``summaries`` stand for what was
    said before the rows from ``context`` on (None: before what comes now).
    """

    rest: Sequence[Message]
    changed: bool = False
    summaries: Sequence[Message] = ()
    context: int | None = None


def rewritten(connection: Connection, thread: str, told: Set[int], whole: Sequence[Message]) -> Rewritten:
    """Compare ``whole`` with the rows there are: what is there already is not written again.

    ``told`` are the parts of the run's own messages that are there. The last of them that stands in ``whole``
    is followed by what is new. Before it, as much as possible is what rows hold; the others, usually one
    summary, become rows that only stand for what was said.
    """
    found = context_of(connection, thread)
    there = placed(found[0]) if found is not None else []
    heads = [each for each in there if each.stands]
    rows = [each for each in there if not each.stands]
    last = next((each for each in reversed(rows) if each.part in told), None)
    end = _last(whole, last) if last is not None else 0
    if not end:
        # All that the run said on the way is told by a summary: what it ended with is new.
        end = len(whole) - 1 if whole and whole[-1].role == "assistant" else len(whole)
    same = 0
    while same < min(end, len(rows)) and _alike(rows[-1 - same].message, whole[end - 1 - same]):
        same += 1
    left = whole[: end - same]
    if same == len(rows) and len(left) == len(heads) and all(map(_alike, (h.message for h in heads), left)):
        return Rewritten(whole[end:])
    # Rows of another run may lie between those of this one: what is shown begins at the lowest.
    context = min((each.part for each in rows[len(rows) - same :]), default=None)
    return Rewritten(whole[end:], True, left, context)


def _last(whole: Sequence[Message], entry: Placed) -> int:
    """The number of messages up to the last one that is that entry; 0 without one."""
    for number in range(len(whole), 0, -1):
        if _alike(entry.message, whole[number - 1]):
            return number
    return 0


def _alike(kept: Message, message: Message) -> bool:
    if kept.summary or message.summary:
        return kept.summary and message.summary and kept.text == message.text
    return (
        kept.role == message.role
        and [call.id for call in kept.calls] == [call.id for call in message.calls]
        and [answer.call_id for answer in kept.answers] == [answer.call_id for answer in message.answers]
        and (kept.role == "tool" or kept.text == message.text)
    )
