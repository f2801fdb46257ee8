"""The steps of a recording, which answer the requests of a replay."""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from pallas.model import RecordedRun, Recording, StepDetail, StepKind
from pallas.model.canonical_form import as_this_form, canonical_request, canonical_value
from pallas.model.dated_template import DatedTemplate

from .first_difference import FieldDifference, differences, loaded
from .loose_match import loose_key, same
from .nested_runs import RecordedCall, runs_of_call

MAX_COMPARED: Final = 500
"""Recorded requests among which the nearest is looked for."""
MAX_DIFFERENCES: Final = 200


@dataclass(frozen=True, slots=True)
class StepRequest:
    """A request of a replay, as steps have it: masked, long strings shortened. ``text`` is JSON.

    ``asker`` identifies the step that asks: it gets the same answer again. ``templates`` are those of the
    agent's instructions that name the date. ``tool_use_id`` is the id that a model gave a call.
    """

    run_id: str
    agent: str
    kind: StepKind
    name: str
    digest: str
    text: str
    asker: Hashable
    templates: tuple[DatedTemplate, ...] = ()
    tool_use_id: str = ""


@dataclass(frozen=True, slots=True)
class Miss:
    """Why the recording has no answer for a request.

    ``nearest`` is the recorded step that is most like it, None if none is; ``difference`` is the first field
    in which they differ. Without one the same request was recorded: ``times`` as often, or without an answer.
    """

    request: StepRequest
    nearest: StepDetail | None = None
    agent: str = ""  # of the nearest step
    difference: FieldDifference | None = None
    times: int = 0

    def __str__(self) -> str:
        """One line, without the end of a sentence."""
        asked = f"the {self.request.kind} request {self.request.name} of {self.request.agent}"
        if self.nearest is None:
            return f"{asked} is not in the recording, nor one like it"
        step = self.nearest.step
        place = f"step {step.number} of {self.agent}"
        if self.difference is not None:
            path, before, after = self.difference.path, self.difference.before, self.difference.after
            return f"{asked} is not in the recording: {path} is {after}, in {place} it was {before}"
        if self.times:
            often = "once" if self.times == 1 else f"{self.times} times"
            return f"{asked} was made only {often} in the recording, the last time in {place}"
        why = step.fault or "no response"
        return f"{asked} has no answer in the recording: {place} ended as {step.state} ({why})"


@dataclass(slots=True, eq=False)
class _Recorded:
    run: RecordedRun
    detail: StepDetail
    is_used: bool = False
    _forms: dict[tuple[DatedTemplate, ...], tuple[Any, str]] = field(default_factory=dict, repr=False)

    def form(self, templates: tuple[DatedTemplate, ...]) -> Any:
        return self._form(templates)[0]

    def key(self, templates: tuple[DatedTemplate, ...]) -> str:
        return self._form(templates)[1]

    def _form(self, templates: tuple[DatedTemplate, ...]) -> tuple[Any, str]:
        if templates not in self._forms:
            form = form_of(self.detail.step.kind, self.detail.request, templates)
            self._forms[templates] = form, loose_key(form)
        return self._forms[templates]


class RecordedSteps:
    """Answers requests by their digest, else by a comparison of the whole request; each step answers once, in
    its order.

    Digests of older forms are not used. What may differ is in ``loose_match``, and dates that a template put
    into instructions.
    A run of the replay is bound to a recorded run, and takes the steps of that run before those of others. It
    is the one that ``bind`` names or the same call led to, else the one whose step answered it first. Of
    equal calls, that with the id which the model gave it comes first.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._all: dict[StepKind, list[_Recorded]] = defaultdict(list)
        for run in recording.runs:
            for detail in run.steps:
                self._all[detail.step.kind].append(_Recorded(run, detail))
        self._by_digest: dict[tuple[StepKind, str], list[_Recorded]] = defaultdict(list)
        for kind, steps in self._all.items():
            for each in steps:
                if digest := as_this_form(each.detail.step.digest):
                    self._by_digest[kind, digest].append(each)
        self._given: dict[Hashable, StepDetail] = {}
        self._bound: dict[str, str] = {}  # the ids of recorded runs by those of the replay's

    def bind(self, run_id: str, recorded: str) -> None:
        """Answer a run of the replay from the recorded run with that id first."""
        self._bound[run_id] = recorded

    def bind_nested(self, run_id: str, call: RecordedCall) -> None:
        """Bind a run to one that the same call of its caller's recorded run led to, if there is one left."""
        above, taken = self._bound.get(call.caller), set(self._bound.values())
        for caller in (run for run in self._recording.runs if run.id == above):
            found = runs_of_call(self._recording, caller, call)
            if (run := next((each for each in found if each.id not in taken), None)) is not None:
                self.bind(run_id, run.id)

    def bound(self, run_id: str) -> str:
        """The id of the recorded run that a run of the replay is bound to; empty for none."""
        return self._bound.get(run_id, "")

    def answer(self, request: StepRequest) -> StepDetail | Miss:
        """The recorded step that answers this request."""
        found = self._answering(request)
        if found is None:
            return self._miss(request)
        if isinstance(found, StepDetail):
            return found
        return Miss(request, found.detail, found.run.agent)

    def find(self, request: StepRequest) -> StepDetail | None:
        """The same, without why there is none: the nearest request is not looked for."""
        found = self._answering(request)
        return found if isinstance(found, StepDetail) else None

    def _answering(self, request: StepRequest) -> StepDetail | _Recorded | None:
        """The step that answers; else one with this request whose answer was not recorded."""
        if (given := self._given.get(request.asker)) is not None:
            return given
        found = self._by_digest.get((request.kind, request.digest), [])
        chosen = self._choose(request, found) or self._choose(request, self._alike(request))
        if chosen is None or not _is_answered(chosen.detail):
            return chosen
        chosen.is_used = True
        self._bound.setdefault(request.run_id, chosen.run.id)
        self._given[request.asker] = chosen.detail
        return chosen.detail

    def run_of(self, run_id: str, agent: str, question: str) -> RecordedRun | FieldDifference | None:
        """The recorded run in which an agent was asked this, for a run of the replay.

        It is the one that this run is bound to, else each answers once, in its order. Without one the
        difference to the nearest question, None if the agent was not asked that often.
        """
        runs = [run for run in self._recording.runs if run.agent == agent]
        own, taken = self._bound.get(run_id), set(self._bound.values())
        unused = [run for run in runs if run.id == own or run.id not in taken]
        unused.sort(key=lambda run: run.id != own)
        for run in (*(each for each in unused if each.question == question), *unused):
            if same(run.question, question):
                self.bind(run_id, run.id)
                return run
        nearest = next(iter((*unused, *runs)), None)
        asked = {"question": nearest.question} if nearest is not None else {}
        return next(differences(asked, {"question": question}, same), None)

    def _choose(self, request: StepRequest, steps: Sequence[_Recorded]) -> _Recorded | None:
        """The first step that is not used: of the run's own recorded run, else of one that is free."""
        bound, taken = self._bound.get(request.run_id), set(self._bound.values())
        unused = [each for each in steps if not each.is_used]
        if request.tool_use_id:  # a recorded model gives calls the ids that they had
            unused.sort(key=lambda each: each.detail.step.tool_use_id != request.tool_use_id)
        own = [each for each in unused if each.run.id == bound]
        free = [each for each in unused if each.run.id not in taken and each.run.agent == request.agent]
        return next(iter((*own, *free, *unused)), None)

    def _alike(self, request: StepRequest, *, used: bool = False) -> list[_Recorded]:
        """The steps with this request that are not used; with ``used`` all of them."""
        templates = request.templates
        form = form_of(request.kind, request.text, templates)
        key = loose_key(form)
        return [
            each
            for each in self._all.get(request.kind, ())
            if (used or not each.is_used)
            and each.key(templates) == key
            and not any(differences(each.form(templates), form, same))
        ]

    def _miss(self, request: StepRequest) -> Miss:
        if equal := self._alike(request, used=True):
            last = equal[-1]
            return Miss(request, last.detail, last.run.agent, times=len(equal))
        form = form_of(request.kind, request.text, request.templates)
        best: tuple[int, _Recorded, FieldDifference] | None = None
        for each in islice(self._likely(request), MAX_COMPARED):
            fields = differences(each.form(request.templates), form, same)
            found = list(islice(fields, MAX_DIFFERENCES))
            if found and (best is None or len(found) < best[0]):
                best = len(found), each, found[0]
        if best is None:
            return Miss(request)
        return Miss(request, best[1].detail, best[1].run.agent, best[2])

    def _likely(self, request: StepRequest) -> Iterator[_Recorded]:
        """The recorded requests of its kind, the likely ones first: of its name, run and agent, not used."""
        bound = self._bound.get(request.run_id)
        steps = self._all.get(request.kind, ())
        return iter(
            sorted(
                steps,
                key=lambda each: (
                    each.detail.step.name != request.name,
                    each.run.id != bound,
                    each.run.agent != request.agent,
                    each.is_used,
                ),
            )
        )


def form_of(kind: StepKind, text: str, templates: tuple[DatedTemplate, ...] = ()) -> Any:
    """The canonical form of the request of a step, a JSON text."""
    request = loaded(text)
    return canonical_request(request, templates) if kind == "model" else canonical_value(request)


def _is_answered(detail: StepDetail) -> bool:
    """Whether its answer was recorded to its end; that may be an error."""
    step = detail.step
    if step.kind != "model" or step.state == "done":
        return bool(detail.response)
    status = step.attempts[-1].status if step.attempts else None
    return bool(detail.response) and status is not None and status >= 400
