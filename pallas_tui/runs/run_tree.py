"""The lines of the feed: each run with its steps, and below each call the runs it started."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import accumulate
from typing import Final

from pallas.model import Step

from .feed_remark import FeedRemark
from .feed_run import FeedRun

HEAD: Final = -1
FAULT: Final = -2
LEFT_OUT: Final = -3
WARNING: Final = -4
_BESIDE: Final = frozenset({FAULT, LEFT_OUT, WARNING})


@dataclass(frozen=True, slots=True)
class RunTreeRow:
    """A line: a run and the index of a step in it, or one of the places above.

    ``level`` is its indentation, 0 for a run on its own. ``rails`` has a bit for each level that continues
    below.
    """

    run: FeedRun
    place: int
    level: int
    rails: int = 0


Rows = Sequence[RunTreeRow]
Test = Callable[[FeedRun], bool]


def everything(run: FeedRun) -> bool:
    """Show every run."""
    return True


def rows_of(run: FeedRun, is_open: Test, shows: Test = everything) -> list[RunTreeRow]:
    """Return the lines of a run and of the nested runs that ``shows``, in order."""
    found: list[tuple[FeedRun, int, int]] = []
    _collect(run, 0, is_open, shows, found)
    # From the end, so that each line knows whether its level goes on.
    rows: list[RunTreeRow] = []
    rails = 0
    for each, place, level in reversed(found):
        if place in _BESIDE:
            rows.append(RunTreeRow(each, place, level, rails))
            continue
        rails &= (2 << level) - 1
        rows.append(RunTreeRow(each, place, level, rails))
        rails |= 1 << level
    rows.reverse()
    return rows


def _collect(
    run: FeedRun, level: int, is_open: Test, shows: Test, into: list[tuple[FeedRun, int, int]]
) -> None:
    opened = is_open(run)
    into.append((run, HEAD, level))
    if run.warning:
        into.append((run, WARNING, level))
    if run.ending:
        into.append((run, FAULT, level))
    if not opened:
        return
    if run.left_out:
        into.append((run, LEFT_OUT, level))
    below: dict[int, list[int]] = {}
    for index, step in enumerate(run.steps):
        below.setdefault(id(step.below) if step.below is not None else 0, []).append(index)
    left = [(index, level + 1) for index in _latest_first(run, below.get(0, ()))]
    while left:  # no recursion: handlers may call one another many times
        index, inner = left.pop()
        step = run.steps[index]
        into.append((run, index, inner))
        shown = [child for child in step.runs or () if shows(child)]
        for child in shown:
            _collect(child, inner + 1, is_open, shows, into)
        caused = below.get(id(step), ())
        if step.runs:  # they show themselves what was reported of them
            caused = [each for each in caused if not run.steps[each].is_relayed]
        left += [(each, inner + 1) for each in _latest_first(run, caused)]


def recorded_at(row: RunTreeRow) -> Step | None:
    """Return the recorded step that a line is about; None for the line of a run itself."""
    if row.place == HEAD:
        return None
    if row.place == LEFT_OUT:
        return row.run.first_step
    return row.run.recorded_at(row.run.steps[row.place] if row.place >= 0 else None)


def _latest_first(run: FeedRun, places: Iterable[int]) -> list[int]:
    return sorted(places, key=lambda place: run.steps[place].at)[::-1]


def _time_of(item: FeedRun | FeedRemark) -> float:
    return item.started if isinstance(item, FeedRun) else item.at


class RunOutline:
    """The lines of several runs, one after the other, with remarks between them by their times."""

    def __init__(
        self,
        runs: Iterable[FeedRun],
        is_open: Test,
        rows: Callable[[FeedRun], Rows] | None = None,
        remarks: Iterable[FeedRemark] = (),
    ) -> None:
        self._blocks: list[Sequence[RunTreeRow | FeedRemark]] = []
        self._numbers: dict[str, int] = {}
        items: list[Iterable[FeedRun | FeedRemark]] = [runs, remarks]
        for item in merge(*items, key=_time_of):
            if isinstance(item, FeedRun):
                self._numbers[item.id] = len(self._blocks)
                self._blocks.append(rows(item) if rows is not None else rows_of(item, is_open))
            else:
                self._blocks.append((item,))
        self._ends = list(accumulate(len(block) for block in self._blocks))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def at(self, index: int) -> RunTreeRow | FeedRemark:
        """Return the content of line ``index``."""
        number = bisect_right(self._ends, index)
        block = self._blocks[number]
        return block[index - (self._ends[number] - len(block))]

    def find_remark(self, key: str) -> int | None:
        """Return the line of a remark."""
        for number, block in enumerate(self._blocks):
            if isinstance(block[0], FeedRemark) and block[0].key == key:
                return self._ends[number] - 1
        return None

    def find(self, run: FeedRun, place: int) -> int | None:
        """Return the line of a place; if it has none, the line of its run's head, or of the run above."""
        number = self._numbers.get(run.root.id)
        if number is None:
            return None
        block = self._blocks[number]
        start = self._ends[number] - len(block)
        wanted = [run, *run.ancestors()]
        heads: dict[str, int] = {}
        for offset, row in enumerate(block):
            if isinstance(row, FeedRemark):
                break
            if row.run is run and row.place == place:
                return start + offset
            if row.place == HEAD:
                heads[row.run.id] = offset
        return next((start + heads[each.id] for each in wanted if each.id in heads), None)
