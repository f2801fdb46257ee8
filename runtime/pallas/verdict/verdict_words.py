"""The word for a replayed run, and the first difference."""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import jsonschema
from jsonschema.exceptions import SchemaError, best_match
from referencing import Registry
from referencing.exceptions import Unresolvable

from pallas.agent_tests.expectations import arguments_of, cost_of
from pallas.config import Project
from pallas.fleet.reload.server_digest import server_digest
from pallas.fleet.replay_fleet import ReplayOutcome
from pallas.model import RecordedRun, Recording, RunVerdict, StepDetail, VerdictWord
from pallas.model.canonical_form import canonical_value
from pallas.model.redaction import redact_head, redact_text
from pallas.model.steps import OWN_CODE
from pallas.recordings.first_difference import FieldDifference, loaded
from pallas.recordings.recorded_tools import RecordedTool, tools_in
from pallas.recordings.replay_check import ReplayDifference, Templates, first_replay_difference
from pallas.safe_text import one_line, sanitize

from .judged_runs import JudgedRun

_MOST: Final = 300
"""Characters of a text."""
_MAX_TEXT: Final = 4_000
"""Characters of a value that differs."""
_MAX_READ: Final = 100_000
"""Characters of it in which the difference is looked for."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The word, and where and what differs first, as ``RunVerdict`` has them."""

    word: VerdictWord
    where: str = ""
    what: str = ""
    before: str = ""
    after: str = ""
    request: ReplayDifference | None = None
    """Where a request to a model differs first: what follows is not known without asking it."""
    field: FieldDifference | None = None


SAME: Final = Judgement("same")


def judgement_of(recorded: Recording, outcome: ReplayOutcome, templates: Templates) -> Judgement:
    """What became of a recording. Never ``same`` for a replay that failed or left recorded steps unused."""
    replayed = outcome.recording
    difference = first_replay_difference(recorded, replayed, templates)
    if difference is None:
        return _missed(outcome) if outcome.is_miss else _by_cost(recorded, replayed)
    now, was = replayed.first, recorded.first
    if not outcome.is_miss and now.status != "ok" and was.status == "ok":
        return _at(difference, "fails", one_line(now.fault or now.status, _MOST))
    if difference.kind in ("tool", "agent"):
        return _at(difference, "other tool calls", difference.what)
    if difference.kind == "model":
        found = _of_request(recorded, replayed, difference)
        return replace(found, request=difference) if failed_request(replayed, difference.agent) else found
    word: VerdictWord = (
        "other words" if calls_of_all(recorded) == calls_of_all(replayed) else "other tool calls"
    )
    return _at(difference, word, difference.what)


def _missed(outcome: ReplayOutcome) -> Judgement:
    """A request that was not recorded, with nothing to compare it with."""
    return Judgement("not decided", what=one_line(outcome.fault, _MOST))


def _by_cost(recorded: Recording, replayed: Recording) -> Judgement:
    """The same run, which the prices of today may make dearer."""
    was, now = cost_of(recorded), cost_of(replayed)
    if was.cost is not None and now.cost is not None and now.cost > was.cost:
        return Judgement("costs more", what="its cost", before=was.text, after=now.text)
    return SAME


def _of_request(recorded: Recording, replayed: Recording, difference: ReplayDifference) -> Judgement:
    """A request to a model that differs: what the model would answer is not known.

    If a tool that was called in the recording is not offered any more, or does not take the recorded
    arguments, the calls cannot be the same.
    """
    failed = failed_request(replayed, difference.agent)
    asked = loaded(failed.request) if failed is not None else None
    run = next((each for each in recorded.runs if each.id == difference.run), None)
    if (
        isinstance(asked, dict)
        and run is not None
        and (lost := next(_lost_calls(run, difference.step, asked), ""))
    ):
        return Judgement("other tool calls", difference.place, lost)
    calls_differ = failed is None and calls_of_all(recorded) != calls_of_all(replayed)
    return _at(difference, "other tool calls" if calls_differ else "other words", difference.what)


def failed_request(replayed: Recording, agent: str) -> StepDetail | None:
    """The step of an agent's request to a model that was not answered; None without one."""
    steps = (each for run in replayed.runs if run.agent == agent for each in run.steps)
    failed = [each for each in steps if each.step.kind == "model" and each.step.state != "done"]
    return failed[-1] if failed else None


def _lost_calls(run: RecordedRun, step: int, asked: Any) -> Iterator[str]:
    """Calls of a run, from a step on, that cannot be made with the tools of a request."""
    number = next((at for at, each in enumerate(run.steps) if each.step.number == step), 0)
    before = loaded(run.steps[number].request) if run.steps else None
    old = {tool.name: tool for tool in tools_in(before.get("tools"))} if isinstance(before, dict) else {}
    new = {tool.name: tool for tool in tools_in(asked.get("tools"))}
    for call in run.steps[number:]:
        if call.step.kind not in ("tool", "agent"):
            continue
        name = call.step.name.removeprefix(f"{OWN_CODE}__")
        if name not in old:
            continue
        if name not in new:
            yield f"the tool {name}, which was called in step {call.step.number}, is not offered any more"
        elif new[name].schema != old[name].schema and (why := _refusal(new[name], call, old[name])):
            yield f"the tool {name} does not take the arguments of step {call.step.number} any more: {why}"


def _refusal(tool: RecordedTool, call: StepDetail, old: RecordedTool) -> str:
    """Why a schema refuses arguments that the one before took; empty if it takes them."""
    arguments = arguments_of(call)
    if _error(old, arguments):
        return ""
    return _error(tool, arguments)


def _error(tool: RecordedTool, arguments: dict[str, Any]) -> str:
    schema: Any = {"additionalProperties": False, **tool.schema}  # an argument that is not named is not taken
    try:
        validator = jsonschema.validators.validator_for(schema)(schema, registry=Registry())
        error = best_match(validator.iter_errors(arguments))
    except (SchemaError, Unresolvable, TypeError, ValueError, RecursionError):
        return ""
    return one_line(f"{error.json_path}: {error.message}", _MOST) if error is not None else ""


def calls_of_all(recording: Recording) -> Counter[tuple[str, str, str]]:
    """The calls of all runs with their arguments."""
    return Counter(
        (run.agent, each.step.name, repr(canonical_value(loaded(each.request))))
        for run in recording.runs
        for each in run.steps
        if each.step.kind in ("tool", "agent")
    )


def _at(difference: ReplayDifference, word: VerdictWord, what: str) -> Judgement:
    field = difference.field
    if field is None:
        return Judgement(word, difference.place, what)
    return Judgement(word, difference.place, f"{what}: {field.path}", field.before, field.after, field=field)


def shown_verdict(run: JudgedRun, found: Judgement, affected: Collection[str], seconds: float) -> RunVerdict:
    """The verdict on a run as it is shown."""
    where, what, before, after = (
        one_line(redact_text(each), _MOST) for each in (found.where, found.what, found.before, found.after)
    )
    agents = tuple(sorted(run.agents.intersection(affected)))
    name, agent = one_line(run.name, 100), one_line(run.agent, 80)
    texts = found.field.texts(_MAX_TEXT, _masked) if found.field is not None else ()
    return RunVerdict(
        name, run.source, agent, found.word, where, what, before, after, agents, seconds, *texts
    )


def _masked(text: str) -> str:
    return sanitize(redact_head(text, _MAX_READ))


def digest_of(project: Project, server: str) -> str:
    """What a server is made of here; empty for one behind a URL, whose program is elsewhere."""
    downstream = project.downstreams.get(server)
    return "" if downstream is None or downstream.url else server_digest(project, server)
