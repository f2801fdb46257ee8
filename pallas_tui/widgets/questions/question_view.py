"""The details of one question: next to the list, in the chat, and as text."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len

from pallas.model import MessageRecord
from pallas.model.questions import Question
from pallas.safe_text import one_line, sanitize

from ...records.question_text import answerer_of, arguments_text, outcome_of, subject_of
from ...runs.feed_run import FeedRun, RunStep
from ...runs.run_tree import HEAD, everything, rows_of
from ...state import Tone
from ...text import Glyphs, Line, Part, fit, joined, moment, wrapped
from ..fact_lines import ended, fact
from ..tones import DIM, STRONG, shape
from .question_list import time_left, tone_of_question

SHOWN_ID: Final = 12
_LOW: Final = 14
"""Lines below which the facts stand in one."""
_MAX_TREE: Final = 24
"""Lines of a run's tree that are shown, those at its end."""
_MAX_SAID: Final = 4_000
"""Characters of a text so far, its last ones."""
_STATES: Final = {"running": Tone.STARTING, "ok": Tone.OK, "error": Tone.ERROR}


@dataclass(frozen=True, slots=True)
class QuestionContext:
    """What led to a question: the outermost run, as the feed has it, and what was said in its own run."""

    root: FeedRun | None = None
    said: tuple[MessageRecord, ...] = ()


def facts_of(record: Question, now: float, glyphs: Glyphs) -> Iterator[tuple[str, str]]:
    """Yield the facts about a question, by name."""
    if record.state == "open":
        yield (
            "left",
            f"{time_left(record, now).removesuffix(' left')}, until {moment(record.expires_at, now)}",
        )
    else:
        by = f" by {by}" if (by := answerer_of(record)) else ""
        at = f" at {moment(record.answered_at, now)}" if record.answered_at is not None else ""
        yield "is", f"{outcome_of(record)}{by}{at}"
    yield "asks", asker_text(record, glyphs)
    if record.server and record.kind == "form":
        yield "server", record.server
    yield "owner", record.owner
    yield "asked", moment(record.asked_at, now)
    yield "thread", _short(record.thread, glyphs)
    yield "run", _short(record.run_id, glyphs)


def _short(id: str, glyphs: Glyphs) -> str:  # noqa: A002 - the word of the record
    return id if len(id) <= SHOWN_ID + 1 else f"{one_line(id[:SHOWN_ID], SHOWN_ID)}{glyphs.ellipsis}"


def asker_text(record: Question, glyphs: Glyphs) -> str:
    """The agents through which it came, the one that asks last."""
    return f" {glyphs.outbound} ".join(record.agents)


def asked_parts(record: Question, width: int) -> Iterator[tuple[str, str]]:
    """Yield what is asked as text with its style: the call, its arguments, the message.

    Arguments that fit into ``width`` cells stand on one line.
    """
    if record.kind == "form":
        yield record.message or "a form to fill in", STRONG
        fields = record.schema.get("properties") if isinstance(record.schema, dict) else None
        names = [one_line(str(name), 40) for name in fields or ()]
        if record.state == "open" and names:
            yield f"fields: {', '.join(names[:20])}", DIM
        return
    yield subject_of(record), STRONG
    if record.arguments not in ("", "{}"):
        yield (record.arguments if cell_len(record.arguments) <= width else arguments_text(record)), ""
    if record.message and record.message != f"May {record.agent} call {record.tool}?":
        yield record.message, DIM


def details(
    record: Question, context: QuestionContext, width: int, height: int, now: float, glyphs: Glyphs
) -> list[Line]:
    """Return what is asked, the facts, the tree of its run and the text so far."""
    lines: list[Line] = []
    for text, style in asked_parts(record, width):
        lines += [((line, style),) for line in wrapped_code(text, width)]
    facts = [each for each in facts_of(record, now, glyphs) if each[1]]
    if height < _LOW:
        lines.append(((fit(joined([text for _, text in facts[:2]], glyphs), width, glyphs), DIM),))
    else:
        lines.append(())
        for label, text in facts:
            lines += fact(label, text, width)
    for heading, more in _context_parts(record, context, width, now, glyphs):
        lines += [*([] if height < _LOW else [()]), ((heading, DIM),), *more]
    return ended(lines, height)


def _context_parts(
    record: Question, context: QuestionContext, width: int, now: float, glyphs: Glyphs
) -> Iterator[tuple[str, list[Line]]]:
    if record.kind == "form" and record.content:
        yield "answered", [((fit(f"{key}: {value}", width, glyphs), ""),) for key, value in _content(record)]
    yield "its run", list(tree_lines(record, context.root, width, now, glyphs))
    for heading, text in said_parts(context.said):
        yield heading, [((line, ""),) for line in wrapped(text, width)]


def _content(record: Question) -> Iterator[tuple[str, str]]:
    for key, value in record.content.items():
        yield one_line(str(key), 60), one_line(str(value), 300)


def said_parts(said: Iterable[MessageRecord]) -> Iterator[tuple[str, str]]:
    """Yield a heading and a text: what the asking agent was asked, and what it wrote so far."""
    rows = list(said)
    if asked := next((row.content for row in rows if row.role == "user"), ""):
        yield "it was asked", sanitize(asked[:_MAX_SAID]).strip()
    if written := "\n\n".join(row.content for row in rows if row.role == "assistant" and row.content):
        yield "text so far", sanitize(written[-_MAX_SAID:]).strip()


def tree_lines(
    record: Question, root: FeedRun | None, width: int, now: float, glyphs: Glyphs
) -> Iterator[Line]:
    """Yield the tree of a run, one line each; the agents only where the feed does not have it."""
    if root is None:
        for level, agent in enumerate(record.agents):
            yield (("  " * level, ""), shape(Tone.STARTING, glyphs), (f" {agent}", ""))
        return
    rows = rows_of(root, everything)
    if len(rows) > _MAX_TREE:
        yield ((f"{glyphs.ellipsis} {len(rows) - _MAX_TREE} lines before", DIM),)
    for row in rows[-_MAX_TREE:]:
        indent = "  " * min(row.level, 8)
        if row.place == HEAD:
            mark, words = _mark(row.run.state, glyphs), f"{row.run.agent}  {row.run.preview}"
        elif row.place >= 0:
            step = row.run.steps[row.place]
            mark, words = _mark_of_step(step, record, glyphs), _label(step)
        else:
            continue
        yield ((indent, ""), mark, (fit(f" {words}", width - len(indent) - 1, glyphs).rstrip(), ""))


def _label(step: RunStep) -> str:
    return f"{step.title}  {step.notice}" if step.notice else step.title


def _mark(state: str, glyphs: Glyphs) -> Part:
    return shape(_STATES.get(state, Tone.STOPPED), glyphs)


def _mark_of_step(step: RunStep, record: Question, glyphs: Glyphs) -> Part:
    waits = step.question == record.id and record.state == "open"
    return shape(tone_of_question(record), glyphs) if waits else _mark(step.state, glyphs)


def wrapped_code(text: str, width: int) -> list[str]:
    """Wrap lines, with those that continue one below its indentation."""
    lines: list[str] = []
    for line in text.split("\n"):
        indent = min(len(line) - len(line.lstrip(" ")), width // 2)
        first, *rest = wrapped(line[indent:], max(8, width - indent))
        lines += [" " * indent + first, *(" " * indent + each for each in rest)]
    return lines


def details_text(record: Question, context: QuestionContext, now: float, glyphs: Glyphs) -> str:
    """Everything known of it, as text."""
    parts = [text for text, _ in asked_parts(record, 80)]
    parts.append("\n".join(f"{label:<8}{text}" for label, text in facts_of(record, now, glyphs) if text))
    if record.kind == "form" and record.content:
        parts.append("\n".join(f"{key}: {value}" for key, value in _content(record)))
    tree = ["".join(text for text, _ in line) for line in tree_lines(record, context.root, 200, now, glyphs)]
    parts.append("Its run:\n" + "\n".join(tree))
    parts += [f"{heading.capitalize()}:\n{text}" for heading, text in said_parts(context.said)]
    return "\n\n".join(parts)
