"""The details of one thread: next to the list, and as text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pallas.model import MessageRecord, ThreadRecord
from pallas.safe_text import one_line

from ...state import Tone
from ...text import Glyphs, Line, count, fit, moment, wrapped
from ..fact_lines import ended, fact
from ..tones import DIM, STRONG, STYLES
from .thread_list import used

SEEN_ROWS = 6
"""Rows whose text is shown next to the list."""
_BRANCHES = 5
"""Branches that are shown; the others are counted."""
_LOW = 14
"""Lines below which the facts stand in one."""
_LESS = frozenset({"begun", "rows"})


@dataclass(frozen=True, slots=True)
class SeenThread:
    """What was read of a thread: its last rows, the threads that go on from it, and the title of the one from
    which it goes on itself.
    """

    rows: tuple[MessageRecord, ...] = ()
    branches: tuple[ThreadRecord, ...] = ()
    origin: str = ""


def facts_of(record: ThreadRecord, seen: SeenThread, now: float) -> Iterator[tuple[str, str]]:
    """Yield the facts about a thread, by name."""
    yield "found", record.snippet
    yield "agent", record.agent
    yield "from", record.origin
    yield "owner", record.owner
    yield "used", moment(used(record), now)
    yield "begun", moment(record.created_at, now) if record.created_at else ""
    yield "rows", str(record.messages)
    if record.branched_from:
        origin = one_line(seen.origin or record.branched_from, 200)
        yield "branch", f"of {origin}, after message {record.branched_at}"
    for each in seen.branches[:_BRANCHES]:
        yield "branch", f"{each.title or each.id}, after message {each.branched_at}"
    if (more := len(seen.branches) - _BRANCHES) > 0:
        yield "branch", f"{more} more"
    yield "id", record.id


def details(
    record: ThreadRecord,
    seen: SeenThread | None,
    width: int,
    height: int,
    now: float,
    glyphs: Glyphs,
) -> list[Line]:
    """Title, facts, and the last words of it; ``seen`` None while those are not read."""
    rows: Sequence[MessageRecord] = seen.rows if seen is not None else ()
    facts = list(facts_of(record, seen or SeenThread(), now))
    low = height < _LOW
    title = wrapped(record.title or "(no title)", width)[: 1 if low else 3]
    lines: list[Line] = [((line, STRONG),) for line in title]
    if low:
        known = f" {glyphs.dot} ".join(text for label, text in facts if text and label not in _LESS)
        lines.append(((fit(known, width, glyphs), DIM),))
    else:
        lines.append(())
        for label, text in facts:
            if text:
                lines += fact(label, text, width)
        lines.append(())
    if seen is None:
        lines.append(((f"reading{glyphs.ellipsis}", DIM),))
    if low:
        # There is room for little more than the last answer, and the title is often the question.
        rows = [row for row in rows if row.role != "user"]
    for row in rows:
        lines += _row_lines(row, record.agent, width, glyphs)
    while lines and not lines[-1]:
        lines.pop()
    return ended(lines, height)


def _row_lines(row: MessageRecord, agent: str, width: int, glyphs: Glyphs) -> list[Line]:
    if row.status == "error" and row.reason and row.role != "user":
        return [((line, STYLES[Tone.ERROR]),) for line in wrapped(one_line(row.reason, 300), width)[:2]]
    if row.role == "tool" or not (row.content or row.tool_calls):
        return []
    if not row.content:
        names = ", ".join(one_line(call.name, 60).replace("__", "/", 1) for call in row.tool_calls)
        return [((fit(f"  {glyphs.corner} {names}", width, glyphs), DIM),)]
    author = {"user": "you", "system": "summary"}.get(row.role, agent)
    texts = wrapped(one_line(row.content, 600), max(8, width))
    return [((fit(author, width, glyphs), DIM),), *(((line, ""),) for line in texts[:4]), ()]


def details_text(record: ThreadRecord, seen: SeenThread, now: float) -> str:
    """Everything known of it, and its last words, as text."""
    known = [f"{label:<8}{text}" for label, text in facts_of(record, seen, now) if text]
    texts = [
        f"{row.role}: {one_line(row.reason if row.status == 'error' else row.content, 2_000)}"
        for row in seen.rows
        if row.content or row.reason
    ]
    parts = [record.title or "(no title)", "\n".join(known)]
    if texts:
        parts.append(f"The last {count(len(texts), 'row')}:\n" + "\n".join(texts))
    return "\n\n".join(parts)
