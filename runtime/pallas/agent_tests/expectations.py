"""What is expected of a run, and what a recording of one says to it."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import jsonpath
import jsonschema
from jsonschema.exceptions import best_match
from referencing import Registry
from referencing.exceptions import Unresolvable

from pallas.model import Cost, RecordedRun, Recording, StepDetail
from pallas.model.codec import Undecodable, loads
from pallas.model.money import Priced, usd_text
from pallas.safe_text import one_line

_SHOWN: Final = 120


@dataclass(frozen=True, slots=True)
class ExpectedAnswer:
    """What the text of the answer must be like."""

    contains: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    matches: re.Pattern[str] | None = None
    schema: Mapping[str, Any] | None = None  # of the answer as JSON


@dataclass(frozen=True, slots=True)
class ExpectedCalls:
    """Which tools must be called, as ``{server}__{tool}``, by the agent or by those that it asks.

    ``arguments`` are values by JSON path, which one call of that tool must have together; of several, each
    must be had by another call.
    """

    order: tuple[str, ...] = ()  # others may be between them
    any_order: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    arguments: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that a run may take, with all that it leads to; None for no limit."""

    steps: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    cost: int | None = None  # nano-US-dollars


@dataclass(frozen=True, slots=True)
class Expectations:
    """What is expected of one run. ``fails`` expects that it fails, with a fault that has this text."""

    answer: ExpectedAnswer = field(default_factory=ExpectedAnswer)
    calls: ExpectedCalls = field(default_factory=ExpectedCalls)
    agents: tuple[str, ...] = ()  # asked by it, or by those that it asks
    most: Budget = field(default_factory=Budget)
    fails: str | None = None


@dataclass(frozen=True, slots=True)
class Unmet:
    """One expectation that was not met. ``what`` is its name in the file, ``why`` one line.

    ``turn`` is the number of the turn in a test with several.
    """

    what: str
    why: str
    turn: int = 0

    def __str__(self) -> str:
        """One line."""
        return f"{f'turn {self.turn}: ' if self.turn else ''}{self.what}: {self.why}"


def failures(recording: Recording, expected: Expectations) -> list[Unmet]:
    """The expectations that a run does not meet, in the order of the file."""
    first = recording.first
    if expected.fails is not None:
        return list(_of_fault(first, expected.fails))
    if first.status != "ok":
        return [Unmet("fails", f"the run failed: {one_line(first.fault, _SHOWN)}")]
    calls = calls_of(recording)
    return [
        *_of_answer(first.answer, expected.answer),
        *_of_calls(calls, expected.calls),
        *_of_agents(recording, expected.agents),
        *_of_budget(recording, expected.most),
    ]


def timeless(expected: Expectations) -> Expectations:
    """The same without the limit on seconds: a replay takes none."""
    return replace(expected, most=replace(expected.most, seconds=None))


def tokens_of(recording: Recording) -> int:
    """The tokens of a run and of all that it led to, as far as they were counted."""
    return sum((run.tokens_in or 0) + (run.tokens_out or 0) for run in recording.runs)


def cost_of(recording: Recording) -> Cost:
    """What a run and all that it led to cost."""
    return Cost.sum(recording.runs)


def calls_of(recording: Recording) -> list[StepDetail]:
    """All calls of tools in a run and in those that it led to, in the order in which they began."""
    found = [each for run in recording.runs for each in run.steps if each.step.kind == "tool"]
    return sorted(found, key=lambda each: each.step.started_at)


def arguments_of(call: StepDetail) -> dict[str, Any]:
    """The arguments of a call."""
    try:
        document = loads(call.request)
    except Undecodable:
        return {}
    found = document.get("arguments") if isinstance(document, dict) else None
    return found if isinstance(found, dict) else {}


def _of_fault(run: RecordedRun, text: str) -> Iterator[Unmet]:
    if run.status == "ok":
        yield Unmet("fails", f"the run must fail, but answered {_shown(run.answer)}")
    elif text not in run.fault:
        yield Unmet("fails", f"the run failed with {_shown(run.fault)}, which has no {_shown(text)}")


def _of_answer(answer: str, expected: ExpectedAnswer) -> Iterator[Unmet]:
    for text in expected.contains:
        if text not in answer:
            yield Unmet("answer.contains", f"{_shown(text)} is not in {_shown(answer)}")
    for text in expected.lacks:
        if text in answer:
            yield Unmet("answer.lacks", f"{_shown(text)} is in {_shown(answer)}")
    if expected.matches is not None and not expected.matches.search(answer):
        yield Unmet("answer.matches", f"{_shown(answer)} does not match {expected.matches.pattern}")
    if expected.schema is not None:
        yield from _of_schema(answer, expected.schema)


def _of_schema(answer: str, schema: Mapping[str, Any]) -> Iterator[Unmet]:
    try:
        document = loads(answer)
    except Undecodable:
        yield Unmet("answer.schema", f"the answer is not JSON: {_shown(answer)}")
        return
    # Without the default registry, which fetches what a $ref names.
    validator = jsonschema.validators.validator_for(schema)(schema, registry=Registry())
    try:
        error = best_match(validator.iter_errors(document))
    except Unresolvable as why:
        yield Unmet("answer.schema", f"{one_line(str(why), _SHOWN)}; write into the schema what $ref names")
        return
    if error is not None:
        yield Unmet("answer.schema", f"{error.json_path}: {one_line(error.message, _SHOWN)}")


def _of_calls(calls: Sequence[StepDetail], expected: ExpectedCalls) -> Iterator[Unmet]:
    names = [each.step.name for each in calls]
    made = ", ".join(names) or "none"
    rest = iter(names)
    for wanted in expected.order:
        if wanted not in rest:
            yield Unmet("calls.order", f"{wanted} was not called in this position; calls: {made}")
            break
    for wanted in dict.fromkeys(expected.any_order):
        times, most = names.count(wanted), expected.any_order.count(wanted)
        if times < most:
            yield Unmet("calls.any_order", f"{wanted} was called {times} of {most} times; calls: {made}")
    for refused in expected.never:
        if refused in names:
            yield Unmet("calls.never", f"{refused} was called")
    for name, values in expected.arguments.items():
        yield from _of_arguments(name, values, [each for each in calls if each.step.name == name])


def _of_arguments(
    name: str, wanted: Sequence[Mapping[str, Any]], calls: Sequence[StepDetail]
) -> Iterator[Unmet]:
    given = [arguments_of(each) for each in calls]
    fitting = [[number for number, each in enumerate(given) if _has_all(each, values)] for values in wanted]
    taken: dict[int, int] = {}  # by the number of the call, which of ``wanted`` it meets
    for number, values in enumerate(wanted):
        if _finds_call(number, fitting, taken, set()):
            continue
        shown = _shown(json.dumps(dict(values), ensure_ascii=False))
        made = "; ".join(json.dumps(each, ensure_ascii=False) for each in given) or "none"
        call = "no other call" if fitting[number] else "no call"
        yield Unmet(f"calls.arguments.{name}", f"{call} has {shown}; arguments: {_shown(made)}")


def _has_all(arguments: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    return all(value in jsonpath.findall(path, arguments) for path, value in values.items())


def _finds_call(
    number: int, fitting: Sequence[Sequence[int]], taken: dict[int, int], tried: set[int]
) -> bool:
    """Give one of ``fitting`` a call of its own, by moving others to another call where that is needed."""
    for call in fitting[number]:
        if call not in tried:
            tried.add(call)
            if call not in taken or _finds_call(taken[call], fitting, taken, tried):
                taken[call] = number
                return True
    return False


def _of_agents(recording: Recording, expected: Iterable[str]) -> Iterator[Unmet]:
    asked = {run.agent for run in recording.runs[1:]} | {
        each.step.name for run in recording.runs for each in run.steps if each.step.kind == "agent"
    }
    for agent in expected:
        if agent not in asked:
            yield Unmet("agents", f"{agent} was not asked; asked: {', '.join(sorted(asked)) or 'none'}")


def _of_budget(recording: Recording, most: Budget) -> Iterator[Unmet]:
    steps = sum(len(run.steps) for run in recording.runs)
    found = (
        ("steps", steps, most.steps),
        ("tokens", tokens_of(recording), most.tokens),
        ("seconds", round(recording.first.seconds, 3), most.seconds),
    )
    for name, taken, limit in found:
        if limit is not None and taken > limit:
            yield Unmet(f"most.{name}", f"it took {taken:g} {name}, but at most {limit:g} are allowed")
    if most.cost is not None:
        yield from _of_cost(recording, most.cost)


def _of_cost(recording: Recording, most: int) -> Iterator[Unmet]:
    """What it cost. An answer that broke off, and was asked for again, counts nothing."""
    cost = cost_of(recording)
    steps = [each.step for run in recording.runs for each in run.steps]
    parts: list[Priced] = [*recording.runs, *steps]
    is_unknown = any(each.cost is None and each.unpriced for each in parts)
    if (cost.cost or 0) > most:
        yield Unmet("most.usd", f"it cost {cost.text}; the limit is {usd_text(most)}")
    elif is_unknown or (cost.is_empty and tokens_of(recording)):
        yield Unmet("most.usd", "its cost is not known; add its models under prices: in agents.yaml")


def _shown(text: str) -> str:
    return repr(one_line(text, _SHOWN))
