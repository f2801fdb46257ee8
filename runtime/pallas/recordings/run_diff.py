"""Compares two recordings.

An inserted step does not make those behind it different: each is compared by what is new in it
(``step_contents``). What follows from a difference before it, such as the answer that a later request
repeats, is no difference of its own. Pure: reads and writes nothing.
"""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Final

from pallas.model import Cost, Image, RecordedRun, Recording

from .alignment import merged, refined
from .diff_tree import DiffMark, PartChange, RecordingDiff, RunDiff, RunTotals, StepDiff
from .step_alignment import AlignedStep, align
from .step_changes import StepComparison, state_change
from .step_contents import ContentsReader

MAX_DEPTH: Final = 64
"""Levels of runs below each other. Deeper ones are shown below the first run."""


def diff(before: Recording, after: Recording) -> RecordingDiff:
    """Compare two recordings. Takes under a second for runs of 1,000 steps."""
    run = _Comparison(before, after).of_runs(before.first, after.first)
    return RecordingDiff(run, totals_of(before), totals_of(after))


def totals_of(recording: Recording) -> RunTotals:
    """What a recording took. Its time is that of the first run, in which the others were."""
    steps = [each.step for run in recording.runs for each in run.steps]
    counted_in = [each.usage.input for each in steps if each.usage.input is not None]
    counted_out = [each.usage.output for each in steps if each.usage.output is not None]
    return RunTotals(
        len(recording.runs),
        len(steps),
        recording.first.seconds,
        sum(counted_in) if counted_in else None,
        sum(counted_out) if counted_out else None,
        Cost.sum(recording.runs),
    )


class _Comparison:
    def __init__(self, before: Recording, after: Recording) -> None:
        self._reader = ContentsReader()
        self._before = _led_to(before)
        self._after = _led_to(after)

    def of_runs(self, before: RecordedRun | None, after: RecordedRun | None) -> RunDiff:
        """A run of both, or of one."""
        old = self._reader.read(before) if before is not None else []
        new = self._reader.read(after) if after is not None else []
        changes = tuple(_run_changes(before, after)) if before is not None and after is not None else ()
        comparison = StepComparison(before, after)
        steps = self._tree(align(old, new), comparison, before, after)
        runs = self._runs(before, after, 0, 0)
        mark = _mark(before, after, changes)
        return RunDiff(mark, before, after, changes, steps, runs, _is_same(mark, steps, runs))

    def _tree(
        self,
        aligned: Sequence[AlignedStep],
        comparison: StepComparison,
        before: RecordedRun | None,
        after: RecordedRun | None,
    ) -> tuple[StepDiff, ...]:
        """The steps as a tree, made from the leaves up."""
        changes = [tuple(comparison.changes(each)) for each in aligned]
        below: dict[int, list[tuple[int, StepDiff]]] = {}
        for index in sorted(range(len(aligned)), key=lambda index: -aligned[index].depth):
            row = aligned[index]
            steps = tuple(each for _, each in sorted(below.pop(index, ()), key=lambda each: each[0]))
            old, new = row.before, row.after
            runs = self._runs(
                before,
                after,
                old.detail.step.number if old is not None else -1,
                new.detail.step.number if new is not None else -1,
            )
            mark: DiffMark = "moved" if row.is_moved else _mark(old, new, changes[index])
            found = StepDiff(
                mark,
                old.detail if old is not None else None,
                new.detail if new is not None else None,
                changes[index],
                steps,
                runs,
                _is_same(mark, steps, runs),
            )
            below.setdefault(row.parent, []).append((index, found))
        return tuple(each for _, each in sorted(below.get(-1, ()), key=lambda each: each[0]))

    def _runs(
        self, before: RecordedRun | None, after: RecordedRun | None, old_step: int, new_step: int
    ) -> tuple[RunDiff, ...]:
        """The runs to which a step led; 0 stands for none."""
        old = self._before.get((before.id, old_step), []) if before is not None else []
        new = self._after.get((after.id, new_step), []) if after is not None else []
        pairs = refined(
            (), [(each.agent, each.question) for each in old], [(each.agent, each.question) for each in new]
        )
        pairs = refined(pairs, [each.agent for each in old], [each.agent for each in new])
        return tuple(
            self.of_runs(old[a] if a is not None else None, new[b] if b is not None else None)
            for a, b in merged(pairs, len(old), len(new))
        )


def _led_to(recording: Recording) -> dict[tuple[str, int], list[RecordedRun]]:
    """The runs by the run and the step that asked for them, 0 for a step that is not known."""
    first = recording.first.id
    depths = {first: 0}
    steps = {run.id: {each.step.number for each in run.steps} for run in recording.runs}
    found: dict[tuple[str, int], list[RecordedRun]] = {}
    for run in recording.runs[1:]:
        known = run.parent in depths and depths[run.parent] < MAX_DEPTH and run.id not in depths
        parent = run.parent if known else first
        depths.setdefault(run.id, depths[parent] + 1)
        step = run.parent_step if known and run.parent_step in steps[parent] else 0
        found.setdefault((parent, step), []).append(run)
    return found


def _mark(before: object, after: object, changes: Sequence[PartChange]) -> DiffMark:
    if before is None:
        return "inserted"
    if after is None:
        return "removed"
    return "changed" if changes else "same"


def _is_same(mark: DiffMark, steps: Sequence[StepDiff], runs: Sequence[RunDiff]) -> bool:
    return mark == "same" and all(each.is_same for each in steps) and all(each.is_same for each in runs)


def _run_changes(before: RecordedRun, after: RecordedRun) -> Iterator[PartChange]:
    if before.agent != after.agent:
        yield PartChange("agent", "", before.agent, after.agent)
    old, new = ("\n".join((each.question, *map(_picture, each.images))) for each in (before, after))
    if old != new:
        yield PartChange("question", "", old, new)
    if before.answer != after.answer:
        yield PartChange("answer", "", before.answer, after.answer)
    yield from state_change(before.status, before.fault, after.status, after.fault)


def _picture(image: Image) -> str:
    return f"[{image.mime_type}, SHA-256 {sha256(image.data.encode()).hexdigest()[:16]}]"
