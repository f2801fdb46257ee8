"""The details of one task: next to the list, and as text."""

from collections.abc import Iterator, Mapping
from typing import Final

from pallas.model import TaskRecord
from pallas.safe_text import one_line, sanitize

from ...records.task_book import SHOWN_ID, UNDER_WAY
from ...state import Tone
from ...text import Glyphs, Line, count, duration, fit, joined, moment, wrapped
from ..fact_lines import ended, fact
from ..tones import DIM, STRONG, STYLES
from .task_list import WORDS

_LOW: Final = 14
"""Lines below which the facts stand in one."""
_LESS: Final = frozenset({"asked", "began", "kept", "for"})
_IDS: Final = frozenset({"thread", "run", "id"})
_MAX_FAULT: Final = 4_000
_MAX_PART: Final = 4_000
TaskParts = list[tuple[str, str, str]]
"""A heading, the text below it, and the style."""


def facts_of(record: TaskRecord, now: float, glyphs: Glyphs) -> Iterator[tuple[str, str]]:
    """Yield the facts about a task, by name; ids are shortened but distinct."""
    took = record.updated_at - record.created_at
    under_way = record.status in UNDER_WAY
    spent = duration(now - record.created_at, running=True) if under_way else duration(took)
    yield "state", f"{WORDS[record.status][0]}, {'for' if under_way else 'after'} {spent}"
    yield "agent", record.agent
    yield "for", record.owner
    yield "asked", f"with {record.kind}"
    yield "began", moment(record.created_at, now) if record.created_at else ""
    yield "kept", _retention(record, now)
    yield "thread", _short(record.thread, glyphs)
    yield "run", _short(record.run_id, glyphs)
    yield "id", _short(record.id, glyphs)


def _retention(record: TaskRecord, now: float) -> str:
    if record.ttl is None:
        return "for good"
    if record.status in UNDER_WAY:
        return f"{_span(record.ttl)} after its end"
    return f"until {moment(record.updated_at + record.ttl, now)}"


def _span(seconds: float) -> str:
    return count(int(seconds // 86_400), "day") if seconds >= 2 * 86_400 else duration(seconds)


def _short(id: str, glyphs: Glyphs) -> str:  # noqa: A002 - the word of the record
    return id if len(id) <= SHOWN_ID + 1 else f"{one_line(id[:SHOWN_ID], SHOWN_ID)}{glyphs.ellipsis}"


def questions(record: TaskRecord) -> list[str]:
    """What its caller is asked on the way."""
    found: list[str] = []
    for each in (record.request or {}).values():
        params = each.get("params") if isinstance(each, Mapping) else None
        if isinstance(params, Mapping) and params.get("message"):
            found.append(sanitize(str(params["message"]), _MAX_PART))
    return found


def problem(record: TaskRecord) -> list[str]:
    """Return the error, its fix, and the text written until then; each in a paragraph."""
    body = record.fault
    if not isinstance(body, Mapping):
        return []
    data = body.get("data")
    data = data if isinstance(data, Mapping) else {}
    paragraphs = [sanitize(str(body.get("error") or "no reason was given"), _MAX_FAULT)]
    if suggestion := data.get("suggestion"):
        paragraphs.append(f"Did you mean {one_line(str(suggestion), 100)}?")
    if data.get("retryable") is True:
        paragraphs.append("This is temporary: the same request may be sent again.")
    if partial := data.get("partial"):
        paragraphs.append(f"Text until then: {sanitize(str(partial), _MAX_PART)}")
    return paragraphs


def outcome_parts(record: TaskRecord, *, whole: bool) -> TaskParts:
    """Return what the task waits for, its progress, or its outcome; the answer only if ``whole``."""
    parts: TaskParts = []
    for question in questions(record):
        parts.append(("it asks its caller, and waits", question, STYLES[Tone.DEGRADED]))
    if record.progress and record.status in UNDER_WAY:
        parts.append(("so far", record.progress, ""))
    for number, paragraph in enumerate(problem(record)):
        parts.append(("" if number else "why", paragraph, DIM if number else STYLES[Tone.ERROR]))
    if record.text and whole and not record.fault:
        parts.append(("answer", record.text, ""))
    elif record.status == "completed" and whole and not record.text:
        parts.append(("answer", "(no text)", DIM))
    return parts


def details(
    record: TaskRecord, whole: TaskRecord | None, width: int, height: int, now: float, glyphs: Glyphs
) -> list[Line]:
    """Return question, facts and outcome; ``whole`` is the task with its answer, None until it is read."""
    low = height < _LOW
    lines: list[Line] = [((line, STRONG),) for line in _asked(record, width)[: 1 if low else 3]]
    if low:
        facts = [each for each in facts_of(record, now, glyphs) if each[0] not in _LESS and each[1]]
        known = [f"{label} {text}" if label in _IDS else text for label, text in facts]
        lines.append(((fit(joined(known, glyphs), width, glyphs), DIM),))
    else:
        lines.append(())
        for label, text in facts_of(record, now, glyphs):
            if text:
                lines += fact(label, text, width)
        lines.append(())
    for heading, text, style in outcome_parts(whole or record, whole=whole is not None):
        if heading and not low:
            lines.append(((fit(heading, width, glyphs), DIM),))
        # More of an answer than fits is behind the key; wrapping all of it would take its time.
        lines += [((line, style),) for line in wrapped(text[: max(1, width * height)], max(8, width))]
    if whole is None and record.status not in UNDER_WAY:
        lines.append(((f"reading{glyphs.ellipsis}", DIM),))
    return ended(lines, height)


def _asked(record: TaskRecord, width: int) -> list[str]:
    return wrapped(record.preview or "(no message)", width)


def details_text(record: TaskRecord, now: float, glyphs: Glyphs) -> str:
    """Everything known of it, as text."""
    known = [f"{label:<8}{text}" for label, text in facts_of(record, now, glyphs) if text]
    parts = [record.preview or "(no message)", "\n".join(known)]
    for heading, text, _ in outcome_parts(record, whole=True):
        parts.append(f"{heading.capitalize()}:\n{text}" if heading else text)
    return "\n\n".join(parts)
