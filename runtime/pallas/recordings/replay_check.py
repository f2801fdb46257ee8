"""The first difference between a recording and that of its replay."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pallas.model import RecordedRun, Recording, Step, StepDetail, StepKind
from pallas.model.dated_template import DatedTemplate
from pallas.model.step_view import view_of
from pallas.model.steps import OWN_CODE

from .first_difference import FieldDifference, differences, loaded
from .loose_match import same
from .recorded_steps import form_of

type Templates = Mapping[str, tuple[DatedTemplate, ...]]
"""The templates of instructions that name the date, by agent."""


@dataclass(frozen=True, slots=True)
class ReplayDifference:
    """What differs, in a few words, in the run of which agent; ``step`` is its number, 0 for the run itself.

    ``field`` says where, with both values, unless something is missing on one side. With ``is_unused`` the
    recording has something there that the replay did not need. ``run`` is the id of the recorded run,
    ``kind`` that of the recorded step, empty for the run itself.
    """

    agent: str
    what: str
    step: int = 0
    field: FieldDifference | None = None
    is_unused: bool = False
    run: str = ""
    kind: StepKind | Literal[""] = ""

    @property
    def place(self) -> str:
        """``step 3 of desk``, or the agent alone."""
        return f"step {self.step} of {self.agent}" if self.step else self.agent

    def __str__(self) -> str:
        """One line."""
        place = self.place
        if self.field is None:
            return f"{place}: {self.what}"
        path, before, after = self.field.path, self.field.before, self.field.after
        return f"{place}: {self.what}: {path} is {after}, and was {before}"


def first_replay_difference(
    recorded: Recording, replayed: Recording, templates: Templates | None = None
) -> ReplayDifference | None:
    """The first difference between the steps and answers of both; None if they are the same.

    Times of steps, tokens and ids do not count, nor dates that ``templates`` put into instructions, nor what
    a server asked of a model: in a replay it is not there.
    """
    return next(_Check(recorded, replayed, templates or {}).differences(), None)


def first_unused(
    recorded: Recording, replayed: Recording, templates: Templates | None = None
) -> ReplayDifference | None:
    """The first recorded step or run that the replay did not need; None if it needed all of them."""
    found = _Check(recorded, replayed, templates or {}).differences()
    return next((each for each in found if each.is_unused), None)


@dataclass(frozen=True, slots=True)
class _Check:
    recorded: Recording
    replayed: Recording
    templates: Templates

    def differences(self) -> Iterator[ReplayDifference]:
        return self._of_runs(self.recorded.first, self.replayed.first)

    def _of_runs(self, before: RecordedRun, after: RecordedRun) -> Iterator[ReplayDifference]:
        templates = self.templates.get(after.agent, ())
        left = _own_steps(after)
        for step in _own_steps(before):
            found = _counterpart(step, left, templates)
            if found is None:
                yield _unmatched(before, step, left, templates)
                return
            left.remove(found)
            # What it led to comes first: that is why its answer differs.
            yield from self._nested((before, step.step), (after, found.step))
            yield from _step_differences(before, step, found)
        if left:
            extra = left[0].step
            what = f"the {extra.kind} request {extra.name} is not in the recording"
            yield ReplayDifference(before.agent, what, extra.number, run=before.id, kind=extra.kind)
        # What no step asked for: a router's agent.
        yield from self._nested((before, None), (after, None))
        was, now = (
            {"status": run.status, "fault": run.fault, "answer": run.answer} for run in (before, after)
        )
        for field in differences(was, now, same):
            yield ReplayDifference(before.agent, "the run ends differently", field=field, run=before.id)

    def _nested(
        self, before: tuple[RecordedRun, Step | None], after: tuple[RecordedRun, Step | None]
    ) -> Iterator[ReplayDifference]:
        """What differs in the runs that a step led to; without one, in those that no step led to."""
        (run, step), (now, other) = before, after
        were = list(self.recorded.led_to(run, step.number if step is not None else 0))
        are = list(self.replayed.led_to(now, other.number if other is not None else 0))
        if not are and step is not None and step.kind == "tool" and step.name.startswith(f"{OWN_CODE}__"):
            return  # a function that was answered from the recording asks for nothing
        lacks, count = len(are) < len(were), len(are)
        for each, its in _pairs(were, are):
            yield from self._of_runs(each, its)
        if len(were) != count:
            what = f"it leads to {count} runs, and led to {len(were)}"
            number = step.number if step is not None else 0
            kind = step.kind if step is not None else ""
            yield ReplayDifference(run.agent, what, number, None, lacks, run.id, kind)


def _pairs(
    were: Sequence[RecordedRun], are: Sequence[RecordedRun]
) -> Iterator[tuple[RecordedRun, RecordedRun]]:
    """Runs that were recorded with their counterparts: runs that begin at once have no order."""
    left = list(are)
    for each in were:
        if not left:
            return
        found = min(left, key=lambda its: (its.agent != each.agent, its.question != each.question))
        left.remove(found)
        yield each, found


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


def _counterpart(
    step: StepDetail, among: Sequence[StepDetail], templates: tuple[DatedTemplate, ...]
) -> StepDetail | None:
    kind = step.step.kind
    request = form_of(kind, step.request, templates)
    equal = (
        each
        for each in sorted(among, key=lambda each: each.step.tool_use_id != step.step.tool_use_id)
        if (each.step.kind, each.step.name) == (kind, step.step.name)
        and not any(differences(request, form_of(kind, each.request, templates), same))
    )
    return next(equal, None)


def _unmatched(
    run: RecordedRun, step: StepDetail, left: Sequence[StepDetail], templates: tuple[DatedTemplate, ...]
) -> ReplayDifference:
    value, agent = step.step, run.agent
    nearest = next((each for each in left if each.step.kind == value.kind), None)
    if nearest is None:
        what = f"the {value.kind} request {value.name} is not made"
        return ReplayDifference(agent, what, value.number, None, True, run.id, value.kind)
    was, now = (form_of(value.kind, each.request, templates) for each in (step, nearest))
    field = next(differences(was, now, same), None)
    what = f"another {value.kind} request"
    return ReplayDifference(agent, what, value.number, field, True, run.id, value.kind)


def _step_differences(run: RecordedRun, step: StepDetail, found: StepDetail) -> Iterator[ReplayDifference]:
    value = step.step
    if value.state != found.step.state:
        what = f"the {value.kind} request {value.name} ends as {found.step.state}, and ended as {value.state}"
        yield ReplayDifference(run.agent, what, value.number, None, False, run.id, value.kind)
    for field in differences(_answer(step), _answer(found), same):
        what = f"another answer of {value.name}"
        yield ReplayDifference(run.agent, what, value.number, field, False, run.id, value.kind)


def _answer(detail: StepDetail) -> Any:
    """What came back, without the ids, times and counts of a model's answer."""
    if detail.step.kind != "model":
        return loaded(detail.response)
    view = view_of("", detail.response)
    return {"answer": view.answer, "reasoning": view.reasoning}
