"""The messages of a thread that a model is shown (AG-7): no call without its answer, no answer without
its call.

Nothing here uses the database: rows come in, messages go out.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from pallas.model import Message, Role, ToolAnswer
from pallas.model.packed import Packed

from .message_rows import calls_of, pictures_of


class CompleteRow(NamedTuple):
    """The columns of a complete row that models need."""

    turn_index: int
    part: int
    role: str
    content: str
    tool_calls: Any = None
    tool_call_id: str = ""
    tool_ok: bool = True
    run_id: str = ""
    pictures: int = 0
    images: Any = None
    native: str | None = None
    summary: bool = False


class Placed(NamedTuple):
    """A message and the ``turn_index`` of its first row. ``stands``: it replaces what was said before."""

    part: int
    message: Message
    stands: bool


def placed(rows: Iterable[CompleteRow]) -> list[Placed]:
    """The messages of complete rows in the order for a model.

    Summaries come first, then run after run, each whole: if two runs wrote at the same time, their rows are
    interleaved, and models require an answer to follow its call directly.
    """
    ordered = sorted(rows, key=lambda row: row.turn_index)
    begun: dict[str, int] = {}
    for row in ordered:
        if row.run_id and not row.summary:
            begun.setdefault(row.run_id, row.turn_index)
    parts: dict[tuple[bool, int, int], list[CompleteRow]] = {}
    for row in ordered:
        run = row.part if row.summary else begun.get(row.run_id, row.turn_index)
        parts.setdefault((not row.summary, run, row.part), []).append(row)
    return [Placed(key[2], _message(parts[key]), not key[0]) for key in sorted(parts)]


def history_of(rows: Iterable[CompleteRow]) -> list[Placed]:
    """The well-formed messages of complete rows."""
    return list(well_formed(placed(rows)))


def well_formed(entries: Sequence[Placed]) -> Iterator[Placed]:
    """Yield ``entries`` without calls that have no answer, and without answers that have no call.

    An entry that loses its calls keeps its text, but not its native form, which contains them.
    """
    at = 0
    while at < len(entries):
        entry, message = entries[at], entries[at].message
        at += 1
        if message.role == "tool":
            continue
        if message.role != "assistant" or not message.calls:
            yield entry
            continue
        answers: list[Placed] = []
        while at < len(entries) and entries[at].message.role == "tool":
            answers.append(entries[at])
            at += 1
        if _fit(message, [answer.message for answer in answers]):
            yield entry
            yield from answers
        elif message.text or message.images:
            yield entry._replace(message=Message("assistant", message.text, message.images))


def _fit(message: Message, answers: Sequence[Message]) -> bool:
    asked = sorted(call.id for call in message.calls)
    answered = sorted(answer.call_id for each in answers for answer in each.answers)
    return asked == answered and len(set(asked)) == len(asked) and all(each.answers for each in answers)


def _message(rows: Sequence[CompleteRow]) -> Message:
    """The message stored in these rows."""
    first = rows[0]
    answers: tuple[ToolAnswer, ...] = ()
    if first.role == "tool":
        answers = tuple(
            ToolAnswer(row.tool_call_id, row.content, row.tool_ok) for row in rows if row.tool_call_id
        )
    return Message(
        # A summary is stored as a system row for people, but models get it as a user's message.
        cast(Role, "user" if first.role == "system" else first.role),
        "\n".join(row.content for row in rows if row.content),
        pictures_of(first.images, first.native) if first.pictures else (),
        Packed(first.native) if first.native is not None else None,
        calls_of(first.tool_calls) if first.role == "assistant" else (),
        answers,
        summary=first.role == "system",
    )
