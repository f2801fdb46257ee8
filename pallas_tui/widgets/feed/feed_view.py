"""The lines of the feed: one line each for a run and its steps, with fixed columns."""

from typing import Final

from pallas.model import AgentChanged, Event, LoopBlocked, Notice, Reloaded, VerdictReached
from pallas.model.verdict import verdict_text

from ...runs.feed_remark import FeedRemark
from ...runs.feed_run import EARLIER, FeedRun, State
from ...runs.run_tree import FAULT, HEAD, LEFT_OUT, WARNING, RunOutline, RunTreeRow, everything, rows_of
from ...runs.step_text import spent_text
from ...runs.verdict_tones import asking_text
from ...state import CRASH_LOOP_HELP, Tone
from ...supervision.reload_words import blocked_details
from ...supervision.version_diff import plain
from ...text import (
    DURATION_WIDTH,
    Glyphs,
    Line,
    Part,
    clock,
    count,
    cropped,
    date,
    duration,
    fit,
    moment,
    right,
)
from ..tones import DIM, STRONG, STYLES, shape
from .waterfall import Span, bar, bar_width, span_of_run, span_of_step, window_of

__all__ = ["FAULT", "HEAD", "LEFT_OUT", "WARNING", "RunOutline", "feed_line", "run_details"]

_TIME_WIDTH: Final = 9
_AGENT_WIDTH: Final = 14
_STATE_WIDTH: Final = 12
# The caller has a column where this much room is left for the message.
_WITH_CALLER: Final = 32
_BESIDE_COST: Final = 16
"""Cells that a message keeps beside what the run cost."""
_CALLER_WIDTH: Final = 11
_LEAST_MESSAGE: Final = 24
"""Cells of a message that words before it, such as ``rest`` and ``earlier``, do not take."""
# Levels that are drawn: deeper lines are indented like the last of them.
_DEEPEST: Final = 10
_TONES: Final[dict[State, Tone]] = {
    "running": Tone.STARTING,
    "ok": Tone.OK,
    "error": Tone.ERROR,
    "cancelled": Tone.STOPPED,
    "unknown": Tone.STOPPED,
}

_SERVER_HELP = (
    "The agent answers without the tools of a server that is missing. It is tried again after 1, 2, 4, 8, "
    "then every 15 seconds, and before each run; the log has each attempt."
)


def feed_line(
    row: RunTreeRow | FeedRemark,
    opened: bool,
    width: int,
    now: float,
    glyphs: Glyphs,
    window: Span | None = None,
) -> Line:
    """Return one line of the feed; bars (where there is room), durations and outcomes have own columns.

    The bars are drawn in ``window``; without one, in the time of the topmost run.
    """
    if isinstance(row, FeedRemark):
        return _remark(row, width, glyphs)
    window = window or window_of(row.run, now)
    return cropped(_line(row, opened, width, now, glyphs, window), width)


def _remark(remark: FeedRemark, width: int, glyphs: Glyphs) -> Line:
    """Return a line between the runs: its shape shows its kind."""
    mark, style = _mark_of(remark.about, glyphs)
    agent = min(_AGENT_WIDTH, max(0, width - _TIME_WIDTH - 3))
    room = max(0, width - _TIME_WIDTH - 2 - agent - 1)
    loud = "" if style in (DIM, STYLES[Tone.OK]) else style
    return cropped(
        (
            (f"{clock(remark.at)} ", DIM),
            (f"{mark} ", style),
            (fit(remark.agent, agent, glyphs) + " ", STRONG),
            (fit(remark.text, room, glyphs), loud),
        ),
        width,
    )


def _mark_of(event: Event, glyphs: Glyphs) -> tuple[str, str]:
    match event:
        case Reloaded(outcome="failed"):
            return glyphs.error, STYLES[Tone.ERROR]
        case Reloaded(outcome="held"):
            return glyphs.degraded, STYLES[Tone.DEGRADED]
        case VerdictReached(is_same=True):
            return glyphs.ok, STYLES[Tone.OK]
        case VerdictReached():
            return glyphs.degraded, STYLES[Tone.DEGRADED]
        case Reloaded(rolled_back=True):
            return glyphs.rolled_back, STYLES[Tone.DEGRADED]
        case LoopBlocked(over=True):
            return glyphs.degraded, DIM
        case LoopBlocked():
            return glyphs.degraded, STYLES[Tone.ERROR]
        case AgentChanged():
            return shape(Tone.CRASH_LOOP, glyphs)
        case Notice(level="info"):
            return glyphs.ok, STYLES[Tone.OK]
        case Notice():
            return glyphs.degraded, STYLES[Tone.DEGRADED]
    return glyphs.reloading, STYLES[Tone.OK]


def _line(row: RunTreeRow, opened: bool, width: int, now: float, glyphs: Glyphs, window: Span) -> Line:
    run = row.run
    if row.place == HEAD:
        return _head(row, opened, width, now, glyphs, window)
    if row.place in (FAULT, WARNING):
        text, tone = (
            (run.ending, Tone.ERROR if run.state == "error" else Tone.STOPPED)
            if row.place == FAULT
            else (run.warning, Tone.DEGRADED)
        )
        lead = " " * _TIME_WIDTH + _pipes(row, glyphs) + "  "
        mark = str(getattr(glyphs, tone.value))
        return (lead, DIM), (f"{mark} {fit(text, width - len(lead) - 2, glyphs)}", STYLES[tone])
    if row.place == LEFT_OUT:
        text = f"{glyphs.ellipsis} {count(run.left_out, 'earlier step')} not kept"
        lead = " " * _TIME_WIDTH + _pipes(row, glyphs) + "  "
        return ((fit(lead + text, width, glyphs), DIM),)
    return _step(row, width, now, glyphs, window)


def _head(row: RunTreeRow, opened: bool, width: int, now: float, glyphs: Glyphs, window: Span) -> Line:
    run = row.run
    lead = _branches(row, glyphs) + f"{glyphs.open if opened else glyphs.closed} "
    bars = bar_width(width)
    empty = "(empty message)" if run.is_begin_known else "(began before the workbench)"
    preview = run.preview or ("(only images)" if run.images else empty)
    if run.replica:
        preview = f"at {run.replica}" + (f" {glyphs.dot} {run.preview}" if run.preview else "")
    extra = f" +{count(run.images, 'image')}" if run.images and run.preview else ""
    room = _room(width, bars) - len(lead)
    agent = _AGENT_WIDTH if row.level == 0 else min(_AGENT_WIDTH, len(run.agent))
    agent = max(0, min(agent, room - 1))
    word = "cancelling" if run.cancelling else run.state
    room_left = room - agent - 1
    asks = _CALLER_WIDTH if row.level == 0 and room_left >= _WITH_CALLER else 0
    cost = "" if run.running else run.whole_cost.words
    cost = f" {cost}" if cost and room_left - asks - len(cost) > _BESIDE_COST else ""
    is_alone = not asks and row.level == 0 and run.surface not in ("", "mcp")
    words = [run.surface] * is_alone + [EARLIER] * run.is_before
    preview = _led(words, preview + extra, room_left - asks - len(cost), glyphs)
    # Of a run from before today the day says more than the time.
    began = (run.is_before and date(run.started, now)) or clock(run.started)
    return (
        (f"{began:<{_TIME_WIDTH}}", DIM),
        (lead, DIM),
        (fit(run.agent, agent, glyphs) + " ", STRONG),
        (fit(preview, room_left - asks - len(cost), glyphs), DIM if run.is_before else ""),
        *(((cost, DIM),) if cost else ()),
        *(((f" {fit(run.asked_by, asks - 1, glyphs)}", DIM),) if asks else ()),
        *_bar(span_of_run(run, now), window, run.state, False, bars, glyphs),
        *_outcome(run.elapsed(now), run.running, run.state, word, glyphs),
    )


def _led(words: list[str], text: str, room: int, glyphs: Glyphs) -> str:
    """Return a message behind words about its run, as many of the last ones as leave it enough room.

    The details of a run have all of them, and a run of before is dim.
    """
    needs = min(len(text), _LEAST_MESSAGE)
    for first in range(len(words) + 1):
        lead = "".join(f"{word} {glyphs.dot} " for word in words[first:])
        if len(lead) + needs <= room:
            return lead + text
    return text


def _step(row: RunTreeRow, width: int, now: float, glyphs: Glyphs, window: Span) -> Line:
    step = row.run.steps[row.place]
    lead = _branches(row, glyphs)
    bars = bar_width(width)
    running = step.state == "running"
    own = not step.call_id and not step.notice
    # Of a question to a model only its duration is shown: its run shows whether all went well.
    word = step.notice or ("" if own and step.state == "ok" else step.state)
    label, room = step.title, _room(width, bars) - len(lead)
    if step.record is not None and (spent := spent_text(step.record)) and len(label) + len(spent) + 2 <= room:
        label = f"{label}  {spent}"
    if (step.call_id or step.record is not None) and step.notice:
        label, word = f"{label}: {step.notice}", step.state
    if quiet := row.run.quiet(step, now):
        label = f"{label} {glyphs.dot} {quiet}"
    return (
        (f"{clock(step.at)} ", DIM),
        (lead, DIM),
        (fit(label, room, glyphs), DIM if own and step.record is None else ""),
        *_bar(span_of_step(step, now), window, step.state, own, bars, glyphs),
        *_outcome(step.seconds(now), running, step.state, word, glyphs),
    )


def _room(width: int, bars: int) -> int:
    """Return the cells for the tree and the text."""
    return width - _TIME_WIDTH - (bars + 1 if bars else 0) - DURATION_WIDTH - 1 - _STATE_WIDTH


def _pipes(row: RunTreeRow, glyphs: Glyphs) -> str:
    """Return the lines of the tree that pass by on the left."""
    levels = range(1, min(row.level, _DEEPEST) + 1)
    lead = "".join(f"{glyphs.pipe} " if row.rails >> level & 1 else "  " for level in levels)
    return f"  {lead}" if row.level else ""


def _branches(row: RunTreeRow, glyphs: Glyphs) -> str:
    """Return the branches of the tree before a line: they go on where their level goes on."""
    if row.level == 0:
        return ""
    above = _pipes(RunTreeRow(row.run, row.place, row.level - 1, row.rails), glyphs) or "  "
    return f"{above}{glyphs.tee if row.rails >> row.level & 1 else glyphs.corner} "


def _bar(
    span: Span | None, window: Span, state: State, quiet: bool, cells: int, glyphs: Glyphs
) -> tuple[Part, ...]:
    if not cells:
        return ()
    style = DIM if quiet else STYLES[_TONES[state]]
    return ((" ", ""), (bar(span, window, cells, glyphs), style))


def _outcome(
    seconds: float | None,
    running: bool,
    state: State,
    word: str,
    glyphs: Glyphs,
) -> tuple[Part, ...]:
    took = "" if seconds is None else duration(seconds, running)
    tone = _TONES[state]
    parts: tuple[Part, ...] = ((right(took, DURATION_WIDTH) + " ", STRONG if running else ""),)
    if not word:
        return (*parts, (" " * _STATE_WIDTH, ""))
    mark: Part = (glyphs.running, STYLES[tone]) if running else shape(tone, glyphs)
    return (*parts, mark, (f" {word:<{_STATE_WIDTH - 2}}", STYLES[tone]))


def run_details(run: FeedRun, now: float) -> str:
    """Return the details of a run, as text to read and to copy."""
    took = run.elapsed(now)
    head = [
        f"{run.agent}: {run.state}" + ("" if took is None else f" after {duration(took)}"),
        f"run {run.id}, began {moment(run.started, now)}"
        + (f", conversation {run.conversation}" if run.conversation else "")
        + (f", thread {run.thread}" if run.thread and run.thread != run.conversation else ""),
    ]
    asked = f"{run.parent.agent} (run {run.parent.id})" if run.parent is not None else run.caller
    if asked or run.principal or run.surface:
        caller = f" over {run.surface}" if run.surface else ""
        caller += f", as {run.identity}" if run.identity else ""
        caller += f", with key {run.principal}" if run.principal else ""
        head.append(f"asked by {asked or 'a caller without a name'}{caller}")
    if run.is_before:
        head.append("from before the fleet was started")
    if run.replica:
        head.append(f"at replica {run.replica}")
    if run.origin:
        head.append(f"forked from {run.origin}")
    if run.trace_id:
        head.append(f"trace {run.trace_id}")
    if any(number is not None for number in run.tokens):
        tokens = ("?" if number is None else f"{number:,}" for number in run.tokens)
        head.append("{} tokens in, {} out".format(*tokens))
    if run.cost_text:
        head.append(f"cost {run.cost_text}")
    parts = ["\n".join(head)]
    if run.preview or run.images:
        parts.append(run.preview + (f"\n({count(run.images, 'image')})" if run.images else ""))
    parts += [text for text in (run.warning, run.fault) if text]
    if run.partial:
        parts.append(f"Its text until it was cut short:\n{run.partial}")
    steps = [f"{count(run.left_out, 'earlier step')} not kept"] if run.left_out else []
    for row in rows_of(run, everything, lambda each: each is run):
        if row.place < 0:
            continue
        step = run.steps[row.place]
        seconds = step.seconds(now)
        took_text = "" if seconds is None else f"  {duration(seconds)}"
        word = step.notice or (step.state if step.call_id or step.state != "ok" else "")
        steps.append(f"{clock(step.at)} {'  ' * (row.level - 1)}{step.title}{took_text}  {word}".rstrip())
    if steps:
        parts.append("\n".join(steps))
    if requests := [f"  {request.details}" for request in run.requests]:
        if run.requests.left_out:
            requests.append(f"  and {count(run.requests.left_out, 'request')} of other kinds")
        parts.append("Requests to downstreams, and the credential of each:\n" + "\n".join(requests))
    return "\n\n".join(parts)


def remark_details(remark: FeedRemark) -> str:
    """Return the details of a line between the runs."""
    if isinstance(remark.about, LoopBlocked):
        return blocked_details(remark.about)
    if isinstance(remark.about, Reloaded):
        return plain(remark.about)
    if isinstance(remark.about, VerdictReached):
        return _verdict_details(remark.about)
    if isinstance(remark.about, Notice):
        return f"{remark.agent}: {remark.text}\n\n{_SERVER_HELP}"
    return f"{remark.agent} {remark.text}\n\n{CRASH_LOOP_HELP}"


def _verdict_details(verdict: VerdictReached) -> str:
    """The files of a verdict and its words, and each run with what differs first."""
    parts = [f"{verdict.cause}: {', '.join(verdict.files or verdict.agents)}", verdict_text(verdict, 0)]
    parts += [f"{each.name}: {each.line}" for each in verdict.runs]
    if asking := asking_text(verdict):
        parts.append(asking)
    return "\n\n".join(parts)
