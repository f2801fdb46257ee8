"""The first difference between a recording and that of its replay."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pallas.model import RecordedRun, Recording, StepDetail
from pallas.model.step_view import view_of

from .first_difference import FieldDifference, differences, loaded
from .loose_match import same


@dataclass(frozen=True, slots=True)
class ReplayDifference:
    """What differs, in a few words, in the run of which agent; ``step`` is its number, 0 for the run itself.

    ``field`` says where, with both values, unless something is missing on one side.
    """

    agent: str
    what: str
    step: int = 0
    field: FieldDifference | None = None

    def __str__(self) -> str:
        """One line."""
        place = f"step {self.step} of {self.agent}" if self.step else self.agent
        if self.field is None:
            return f"{place}: {self.what}"
        path, before, after = self.field.path, self.field.before, self.field.after
        return f"{place}: {self.what}: {path} is {after}, and was {before}"


def first_replay_difference(recorded: Recording, replayed: Recording) -> ReplayDifference | None:
    """The first difference between the steps and answers of both; None if they are the same.

    Times, tokens and ids do not count, nor what a server asked of a model: in a replay it is not there.
    """
    return next(_run_differences(recorded, replayed, recorded.first, replayed.first), None)


def _run_differences(
    recorded: Recording, replayed: Recording, before: RecordedRun, after: RecordedRun
) -> Iterator[ReplayDifference]:
    left = _own_steps(after)
    for step in _own_steps(before):
        found = _counterpart(step, left)
        if found is None:
            yield _unmatched(before.agent, step, left)
            return
        left.remove(found)
        # What it led to comes first: that is why its answer differs.
        yield from _nested(recorded, replayed, (before, step.step.number), (after, found.step.number))
        yield from _step_differences(before.agent, step, found)
    if left:
        extra = left[0].step
        yield ReplayDifference(
            before.agent, f"the {extra.kind} request {extra.name} is not in the recording", extra.number
        )
    was, now = ({"status": run.status, "fault": run.fault, "answer": run.answer} for run in (before, after))
    for field in differences(was, now, same):
        yield ReplayDifference(before.agent, "the run ends otherwise", field=field)


def _nested(
    recorded: Recording,
    replayed: Recording,
    before: tuple[RecordedRun, int],
    after: tuple[RecordedRun, int],
) -> Iterator[ReplayDifference]:
    """What differs in the runs that a step led to."""
    were, are = list(recorded.led_to(*before)), list(replayed.led_to(*after))
    if len(were) != len(are):
        what = f"it leads to {len(are)} runs, and led to {len(were)}"
        yield ReplayDifference(before[0].agent, what, before[1])
    for was, now in zip(were, are, strict=False):
        yield from _run_differences(recorded, replayed, was, now)


def _own_steps(run: RecordedRun) -> list[StepDetail]:
    """The steps that the agent itself made, or one that it is made of."""
    inside = {each.step.number for each in run.steps if each.step.kind == "tool"}
    found = []
    for each in run.steps:
        if each.step.parent in inside:
            inside.add(each.step.number)
        else:
            found.append(each)
    return found


def _counterpart(step: StepDetail, among: Sequence[StepDetail]) -> StepDetail | None:
    request = loaded(step.request)
    return next(
        (
            each
            for each in among
            if (each.step.kind, each.step.name) == (step.step.kind, step.step.name)
            and not any(differences(request, loaded(each.request), same, ids=step.step.kind != "model"))
        ),
        None,
    )


def _unmatched(agent: str, step: StepDetail, left: Sequence[StepDetail]) -> ReplayDifference:
    value = step.step
    nearest = next((each for each in left if each.step.kind == value.kind), None)
    if nearest is None:
        return ReplayDifference(agent, f"the {value.kind} request {value.name} is not made", value.number)
    fields = differences(loaded(step.request), loaded(nearest.request), same, ids=value.kind != "model")
    field = next(fields, None)
    return ReplayDifference(agent, f"another {value.kind} request", value.number, field)


def _step_differences(agent: str, step: StepDetail, found: StepDetail) -> Iterator[ReplayDifference]:
    value = step.step
    if value.state != found.step.state:
        what = f"the {value.kind} request {value.name} ends as {found.step.state}, and ended as {value.state}"
        yield ReplayDifference(agent, what, value.number)
    for field in differences(_answer(step), _answer(found), same):
        yield ReplayDifference(agent, f"another answer of {value.name}", value.number, field)


def _answer(detail: StepDetail) -> Any:
    """What came back, without the ids, times and counts of a model's answer."""
    if detail.step.kind != "model":
        return loaded(detail.response)
    view = view_of("", detail.response)
    return {"answer": view.answer, "reasoning": view.reasoning}
