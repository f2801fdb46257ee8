"""The parts of a recording that another version of an agent may change: all else is answered from it."""

from collections.abc import Collection, Iterator
from dataclasses import replace

from pallas.model import RecordedRun, Recording, StepDetail


def units_of(recording: Recording, affected: Collection[str]) -> list[Recording]:
    """The topmost runs of affected agents, each as a recording of its own, in the recorded order.

    A unit has the runs of affected agents that it leads to without another one between, with all steps, and
    the runs of others that these ask, without steps: those are answered as a whole.
    """
    units: dict[str, list[RecordedRun]] = {}
    unit_of: dict[str, str] = {}
    for run in recording.runs:
        above = unit_of.get(run.parent)
        if run.agent not in affected:
            if above is not None:
                units[above].append(replace(run, steps=()))
            continue
        if above is None:
            units[run.id] = [replace(run, parent="", parent_step=0)]
            unit_of[run.id] = run.id
        else:
            units[above].append(run)
            unit_of[run.id] = above
    return [
        replace(
            recording,
            runs=tuple(runs),
            history=recording.history if root == recording.first.id else (),
        )
        for root, runs in units.items()
    ]


def running_in(recording: Recording, affected: Collection[str]) -> frozenset[str]:
    """The agents that run again for the answer of the first run: affected ones, and those above them."""
    by_id = {run.id: run for run in recording.runs}
    found: set[str] = set()
    for run in recording.runs:
        at = run if run.agent in affected else None
        while at is not None:
            found.add(at.agent)
            at = by_id.get(at.parent)
    return frozenset(found)


def steps_in_order(
    recording: Recording, run: RecordedRun | None = None
) -> Iterator[tuple[RecordedRun, StepDetail]]:
    """The steps of a run, by default the first, each before those of the runs that it led to."""
    run = run or recording.first
    for step in run.steps:
        yield run, step
        for below in recording.led_to(run, step.step.number):
            yield from steps_in_order(recording, below)
    for below in recording.led_to(run, 0):
        yield from steps_in_order(recording, below)


def without_answered(recording: Recording, affected: Collection[str]) -> Recording:
    """A recording without the runs of agents that were answered as a whole."""
    first, *others = recording.runs
    return replace(recording, runs=(first, *(run for run in others if run.agent in affected)))
