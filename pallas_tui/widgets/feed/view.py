"""How a run and its steps look in the feed, and where each line of them stands."""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Final

from ...feed_state import Run, State, Step
from ...state import Tone
from ...text import DURATION_WIDTH, Glyphs, Line, Part, clock, count, cropped, duration, fit, right
from ..tones import DIM, STRONG, STYLES, shape

_TIME_WIDTH: Final = 9
_AGENT_WIDTH: Final = 14
_STATE_WIDTH: Final = 12
_LOOK_AHEAD: Final = 50
_TONES: Final[dict[State, Tone]] = {
    "running": Tone.STARTING,
    "ok": Tone.OK,
    "error": Tone.ERROR,
    "cancelled": Tone.STOPPED,
    "unknown": Tone.STOPPED,
}

Place = tuple[Run, int]
"""A line: a run and the index of a step in it, or one of those below."""
HEAD: Final = -1
FAULT: Final = -2
LEFT_OUT: Final = -3
WARNING: Final = -4


@dataclass(frozen=True, slots=True)
class _Block:
    """The lines of one run, in order: its head, its warning, its fault, what was left out, its steps."""

    run: Run
    opened: bool

    @property
    def extras(self) -> tuple[int, ...]:
        run = self.run
        wanted = (
            (HEAD, True),
            (WARNING, bool(run.warning)),
            (FAULT, bool(run.fault)),
            (LEFT_OUT, self.opened and run.left_out > 0),
        )
        return tuple(place for place, there in wanted if there)

    def __len__(self) -> int:
        return len(self.extras) + (len(self.run.steps) if self.opened else 0)


class Outline:
    """Which line of the feed is what. Made anew for each change: it costs one pass over the runs."""

    def __init__(self, runs: Iterable[Run], is_open: Callable[[Run], bool]) -> None:
        self._blocks = [_Block(run, is_open(run)) for run in runs]
        self._ends = list(accumulate(len(block) for block in self._blocks))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def at(self, index: int) -> Place:
        """What stands in line ``index``."""
        number = bisect_right(self._ends, index)
        block = self._blocks[number]
        offset = index - (self._ends[number] - len(block))
        extras = block.extras
        return block.run, extras[offset] if offset < len(extras) else offset - len(extras)

    def find(self, run_id: str, place: int) -> int | None:
        """The line of a place, or of its run's head when it is not there any more."""
        for block, end in zip(self._blocks, self._ends, strict=True):
            if block.run.id == run_id:
                start, extras = end - len(block), block.extras
                if place in extras:
                    return start + extras.index(place)
                if place >= 0 and start + len(extras) + place < end:
                    return start + len(extras) + place
                return start
        return None


def feed_line(place: Place, opened: bool, width: int, now: float, glyphs: Glyphs) -> Line:
    """One line of the feed; durations and outcomes stand in columns of their own on the right."""
    return cropped(_line(place, opened, width, now, glyphs), width)


def _line(place: Place, opened: bool, width: int, now: float, glyphs: Glyphs) -> Line:
    run, index = place
    if index == HEAD:
        return _head(run, opened, width, now, glyphs)
    if index in (FAULT, WARNING):
        text, tone = (run.fault, Tone.ERROR) if index == FAULT else (run.warning, Tone.DEGRADED)
        lead = " " * _TIME_WIDTH + "  "
        mark = str(getattr(glyphs, tone.value))
        return (lead, ""), (f"{mark} {fit(text, width - len(lead) - 2, glyphs)}", STYLES[tone])
    if index == LEFT_OUT:
        text = f"{glyphs.ellipsis} {count(run.left_out, 'earlier step')} not kept"
        return ((fit(" " * _TIME_WIDTH + "  " + text, width, glyphs), DIM),)
    return _step(run, index, width, now, glyphs)


def _head(run: Run, opened: bool, width: int, now: float, glyphs: Glyphs) -> Line:
    marker = glyphs.open if opened else glyphs.closed
    preview = run.preview or ("(only images)" if run.images else "(began before this was open)")
    extra = f" +{count(run.images, 'image')}" if run.images and run.preview else ""
    room = width - _TIME_WIDTH - 2 - _AGENT_WIDTH - 1 - DURATION_WIDTH - 1 - _STATE_WIDTH
    word = "cancelling" if run.cancelling else run.state
    return (
        (f"{clock(run.started)} ", DIM),
        (f"{marker} ", DIM),
        (fit(run.agent, _AGENT_WIDTH, glyphs) + " ", STRONG),
        (fit(preview + extra, room, glyphs), ""),
        *_outcome(run.elapsed(now), run.running, run.state, word, glyphs),
    )


def _step(run: Run, index: int, width: int, now: float, glyphs: Glyphs) -> Line:
    step = run.steps[index]
    lead = "  " + _branches(run.steps, index, glyphs) + " "
    room = width - _TIME_WIDTH - len(lead) - DURATION_WIDTH - 1 - _STATE_WIDTH
    running = step.state == "running"
    # A step of a loop says only how long it took: whether all went well is said by its calls and its run.
    word = step.notice or ("" if not step.call_id and step.state == "ok" else step.state)
    return (
        (f"{clock(step.at)} ", DIM),
        (lead, DIM),
        (fit(step.label, room, glyphs), "" if step.call_id or step.notice else DIM),
        *_outcome(step.seconds(now), running, step.state, word, glyphs),
    )


def _branches(steps: list[Step], index: int, glyphs: Glyphs) -> str:
    """The lines of the tree in front of a step: they go on where more is to come on their level."""
    depth = steps[index].depth
    goes_on = [False] * (depth + 1)
    level = depth
    for step in islice(steps, index + 1, index + _LOOK_AHEAD):
        if step.depth <= level:
            goes_on[step.depth] = True
            level = step.depth - 1
            if level < 0:
                break
    above = "".join(f"{glyphs.pipe} " if more else "  " for more in goes_on[:-1])
    return above + (glyphs.tee if goes_on[-1] else glyphs.corner)


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


def run_story(run: Run, now: float) -> str:
    """Everything that is known of a run, as text to read and to copy."""
    took = run.elapsed(now)
    head = [
        f"{run.agent}: {run.state}" + ("" if took is None else f" after {duration(took)}"),
        f"run {run.id}, began {clock(run.started)}"
        + (f", conversation {run.conversation}" if run.conversation else ""),
    ]
    if any(number is not None for number in run.tokens):
        tokens = ("?" if number is None else str(number) for number in run.tokens)
        head.append("{} tokens in, {} out".format(*tokens))
    parts = ["\n".join(head)]
    if run.preview or run.images:
        parts.append(run.preview + (f"\n({count(run.images, 'image')})" if run.images else ""))
    parts += [text for text in (run.warning, run.fault) if text]
    steps = [f"{count(run.left_out, 'earlier step')} not kept"] if run.left_out else []
    for step in run.steps:
        seconds = step.seconds(now)
        took_text = "" if seconds is None else f"  {duration(seconds)}"
        word = step.notice or (step.state if step.call_id or step.state != "ok" else "")
        steps.append(f"{clock(step.at)} {'  ' * step.depth}{step.label}{took_text}  {word}".rstrip())
    if steps:
        parts.append("\n".join(steps))
    if hops := [f"  {hop.story}" for hop in run.hops]:
        if run.hops.left_out:
            hops.append(f"  and {count(run.hops.left_out, 'request')} of other kinds")
        parts.append("Requests to downstreams, and the credential of each:\n" + "\n".join(hops))
    return "\n\n".join(parts)
