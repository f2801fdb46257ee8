"""The word for a run for which models were asked, from the first request that differs on."""

import json
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator
from dataclasses import replace
from typing import Any, Final

from pallas.agent_tests.expectations import cost_of
from pallas.executors.fastagent.fastagent_faults import NO_KEY
from pallas.fleet.replay_fleet import ReplayOutcome
from pallas.model import RecordedRun, Recording, Step, StepDetail, VerdictWord
from pallas.model.canonical_form import canonical_value
from pallas.recordings.first_difference import differences, loaded
from pallas.recordings.loose_match import same
from pallas.safe_text import one_line

from .verdict_words import SAME, Judgement, calls_of_all

_MOST: Final = 300
_BUSY: Final = frozenset({401, 402, 403, 404, 407, 408, 409, 425, 429})
"""What a provider answers that says nothing of the request itself."""
_SOON: Final = 1e-6
"""Seconds that stand for one second of a run that did not run again."""


def live_judgement(recorded: Recording, outcome: ReplayOutcome, live: Recording) -> Judgement:
    """What became of a run. ``live`` is that of the outcome, as ``with_answered`` completes it."""
    if outcome.refusal:
        return Judgement("not decided", what=one_line(outcome.refusal, _MOST))
    if (failed := next(_unanswered(outcome, live), None)) is not None:
        return _of_failure(*failed)
    if outcome.missed:
        return _of_missed(recorded, outcome, live)
    if outcome.is_miss:
        return Judgement("not decided", what=one_line(outcome.fault, _MOST))
    if (run := _failed_run(recorded, live)) is not None:
        word: VerdictWord = "not decided" if run.fault.startswith(NO_KEY) else "fails"
        return Judgement(word, run.agent, one_line(run.fault or run.status, _MOST))
    if (found := _other_calls(recorded, live)) is not None:
        return found
    return _other_words(recorded, live) or _by_cost(recorded, live)


def with_answered(recorded: Recording, live: Recording, running: Collection[str]) -> Recording:
    """A recording of agents that ran, with the recorded runs of those that were answered in it.

    A call of one that ran is that of the same agent, with the same name and arguments, in the order in which
    such calls were recorded.
    """
    left: dict[Hashable, list[tuple[RecordedRun, StepDetail]]] = defaultdict(list)
    for run in recorded.runs:
        for each in run.steps:
            if each.step.kind in ("tool", "agent"):
                left[_call_key(run, each)].append((run, each))
    found: list[RecordedRun] = []
    for run in (run for run in live.runs if run.agent in running):
        found.append(run)
        for each in run.steps:
            if calls := left.get(_call_key(run, each)):
                found += _answered(recorded, *calls.pop(0), run, each.step, running)
    return replace(live, runs=tuple(found), offers={**recorded.offers, **live.offers})


def _answered(
    recorded: Recording,
    caller: RecordedRun,
    call: StepDetail,
    by: RecordedRun,
    now: Step,
    running: Collection[str],
) -> Iterator[RecordedRun]:
    """The runs that a recorded call led to, with those below, as if a call now had led to them."""
    for run in recorded.led_to(caller, call.step.number):
        if run.agent in running:
            continue
        below = [run]
        for each in below:
            below += (other for other in recorded.runs if other.parent == each.id)
        for each in below:
            since = call.step.started_at
            steps = tuple(
                replace(step, step=replace(step.step, started_at=_soon(now, since, step.step)))
                for step in each.steps
            )
            each = replace(each, steps=steps)
            yield replace(each, parent=by.id, parent_step=now.number) if each.id == run.id else each


def _soon(now: Step, since: float, step: Step) -> float:
    """When a recorded step stands to have begun: right after the call that is answered by it."""
    return now.started_at + _SOON * max(0.0, step.started_at - since)


def _call_key(run: RecordedRun, detail: StepDetail) -> Hashable:
    return run.agent, detail.step.name, repr(canonical_value(loaded(detail.request)))


def _unanswered(outcome: ReplayOutcome, live: Recording) -> Iterator[tuple[RecordedRun, Step]]:
    """The requests to models that were made for real, or not even made, and were not answered."""
    asked = {(each.run_id, each.number) for each in outcome.asked}
    for run in live.runs:
        for step in (each.step for each in run.steps if each.step.kind == "model"):
            is_cut = step.state in ("failed", "cancelled")
            if is_cut and ((run.id, step.number) in asked or not step.attempts):
                yield run, step


def _failed_run(recorded: Recording, live: Recording) -> RecordedRun | None:
    """The last run that failed, of an agent of which none failed in the recording."""
    known = {run.agent for run in recorded.runs if run.status != "ok"}
    failed = (run for run in reversed(live.runs) if run.status != "ok" and run.agent not in known)
    return next(failed, None)


def _of_failure(run: RecordedRun, step: Step) -> Judgement:
    """A model that did not answer: the change may be why only if the request was refused for what it is."""
    status = step.attempts[-1].status if step.attempts else None
    refused = status is not None and 400 <= status < 500 and status not in _BUSY
    word: VerdictWord = "fails" if refused else "not decided"
    return Judgement(word, run.agent, one_line(run.fault or step.fault, _MOST))


def _of_missed(recorded: Recording, outcome: ReplayOutcome, live: Recording) -> Judgement:
    """A call that was never recorded, and is not made."""
    request: Any = loaded(outcome.missed)
    name, arguments = str(request["name"]), request["arguments"]
    who = next(
        (run.agent for run in reversed(live.runs) for each in run.steps if each.step.name == name),
        live.first.agent,
    )
    shown = one_line(json.dumps(arguments, ensure_ascii=False), _MOST // 2)
    known = any(each.step.name == name and loaded(each.request) == request for _, each in _calls(recorded))
    never = "which was never recorded" if not known else "which was recorded less often"
    return Judgement("other tool calls", who, f"would call {one_line(name, 100)} {shown}, {never}")


def _calls(recording: Recording) -> Iterator[tuple[RecordedRun, StepDetail]]:
    for run in recording.runs:
        for each in run.steps:
            if each.step.kind in ("tool", "agent"):
                yield run, each


def _other_calls(recorded: Recording, live: Recording) -> Judgement | None:
    """The first call that is made in one of them only, more often than in the other."""
    before, after = calls_of_all(recorded), calls_of_all(live)
    for what, recording, more, less in (
        ("now also calls {}", live, after, before),
        ("no longer calls {}", recorded, before, after),
    ):
        for run, each in _calls(recording):
            key = run.agent, each.step.name, repr(canonical_value(loaded(each.request)))
            if more[key] > less[key]:
                return Judgement("other tool calls", run.agent, what.format(_shown(each)))
    return None


def _shown(call: StepDetail) -> str:
    request = loaded(call.request)
    arguments = request.get("arguments", {}) if isinstance(request, dict) else {}
    text = json.dumps(arguments, ensure_ascii=False)
    return one_line(f"{call.step.name} {text}", _MOST // 2)


def _other_words(recorded: Recording, live: Recording) -> Judgement | None:
    """Another answer of the first run, else of one below it."""
    left = list(recorded.runs)
    for run in live.runs:
        among = [each for each in left if each.agent == run.agent]
        if not among:
            continue
        # Runs that begin at once have no order.
        was = min(among, key=lambda each: each.question != run.question)
        left.remove(was)
        field = next(differences({"answer": was.answer}, {"answer": run.answer}, same), None)
        if field is not None:
            return Judgement(
                "other words", run.agent, f"another answer: {field.path}", field.before, field.after
            )
    return None


def _by_cost(recorded: Recording, live: Recording) -> Judgement:
    """The same answer and calls, which may be dearer."""
    was, now = cost_of(recorded), cost_of(live)
    if was.cost is not None and now.cost is not None and now.cost > was.cost:
        return Judgement("costs more", what="its cost", before=was.text, after=now.text)
    return SAME
