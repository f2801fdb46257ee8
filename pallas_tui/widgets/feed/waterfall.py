"""Bars that show when something happened within the whole: at least half a cell."""

from math import ceil, floor
from typing import Final

from ...runs.feed_run import FeedRun, RunStep
from ...text import Glyphs

Span = tuple[float, float]
"""Beginning and end, in Unix seconds."""

_LEAST_WIDTH: Final = 84
_MOST: Final = 48
_LEAST: Final = 12


def bar_width(width: int) -> int:
    """Return the cells of the bars in a line of ``width`` cells; 0 where there is no room."""
    return max(_LEAST, min(_MOST, (width - 42) * 2 // 5)) if width >= _LEAST_WIDTH else 0


def window_of(run: FeedRun, now: float) -> Span:
    """Return the time that all bars of a tree are drawn in: that of the topmost run."""
    root = run.root
    took = root.elapsed(now)
    if took is None:  # its duration is not known: until its last event
        took = max((step.ended or step.at for step in root.steps), default=root.started) - root.started
    return root.started, root.started + max(took, 0.001)


def span_of_run(run: FeedRun, now: float) -> Span | None:
    """Return when a run began and ended, or ``now`` while it runs; None when its end is not known."""
    took = run.elapsed(now)
    return None if took is None else (run.started, run.started + took)


def span_of_step(step: RunStep, now: float) -> Span | None:
    """Return when a step began and ended, or ``now`` while it runs; None when that is not known."""
    took = step.seconds(now)
    return None if took is None or step.started is None else (step.started, step.started + took)


def bar(span: Span | None, window: Span, cells: int, glyphs: Glyphs) -> str:
    """Return exactly ``cells`` cells with the bar of ``span`` in them; blank without one."""
    if span is None or cells <= 0:
        return " " * max(0, cells)
    halves = 2 * cells
    first, length = window[0], window[1] - window[0]
    begin = max(0, min(floor((span[0] - first) / length * halves), halves - 1))
    end = max(begin + 1, min(ceil((span[1] - first) / length * halves), halves))
    shapes = {(False, False): " ", (True, False): glyphs.bar_left, (False, True): glyphs.bar_right}
    return "".join(
        shapes.get((begin <= left < end, begin <= left + 1 < end), glyphs.bar) for left in range(0, halves, 2)
    )
