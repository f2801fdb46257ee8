"""Judges a run with an evaluator of pydantic-evals, which the extra ``evals`` installs.

It gets the question as inputs, the answer as output, the recording in ``attributes``, and the steps as spans
with the names of OpenTelemetry's conventions for GenAI.
"""

import asyncio
import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from pallas.model import RecordedRun, Recording, StepDetail

from .agent_test import AgentTest

if TYPE_CHECKING:
    from pydantic_evals.evaluators import Evaluator, EvaluatorContext
    from pydantic_evals.otel.span_tree import SpanNode, SpanTree

_LIBRARY: Final = "pydantic_evals"
_TRACE: Final = 1
_OPERATIONS: Final = {"model": "chat", "tool": "execute_tool", "agent": "execute_tool"}


def is_evaluator(value: Any) -> bool:
    """Whether a scorer is an evaluator and no function."""
    if _LIBRARY not in sys.modules:  # then nobody has made one
        return False
    from pydantic_evals.evaluators import Evaluator

    return isinstance(value, Evaluator)


def asks_model(value: Any) -> bool:
    """Whether a scorer is the evaluator that asks a model."""
    if not is_evaluator(value):
        return False
    from pydantic_evals.evaluators import LLMJudge

    return isinstance(value, LLMJudge)


async def evaluate(
    evaluator: "Evaluator[Any, Any, Any]", test: AgentTest, recording: Recording
) -> Iterator[tuple[str, Any, str]]:
    """The results of an evaluator: of each its name (empty for the only one), its value, and the reason.

    A value is a bool, a score, or the text of a label.
    """
    from pydantic_evals.evaluators import EvaluationReason

    context = _context(test, recording)
    evaluate: Any = evaluator.evaluate
    # One that is not asynchronous may take its time.
    waits = inspect.iscoroutinefunction(evaluate)
    output: Any = await (evaluate(context) if waits else asyncio.to_thread(evaluate, context))
    named = output if isinstance(output, Mapping) else {"": output}
    return (
        (name, each.value, each.reason or "") if isinstance(each, EvaluationReason) else (name, each, "")
        for name, each in named.items()
    )


def _context(test: AgentTest, recording: Recording) -> "EvaluatorContext[Any, Any, Any]":
    from pydantic_evals.evaluators import EvaluatorContext

    first = recording.first
    return EvaluatorContext(
        name=test.name,
        inputs=first.question,
        metadata={"agent": test.agent},
        expected_output=None,
        output=first.answer,
        duration=first.seconds,
        _span_tree=_spans(recording),
        attributes={"recording": recording},
        metrics={
            "steps": sum(len(run.steps) for run in recording.runs),
            "input_tokens": first.tokens_in or 0,
            "output_tokens": first.tokens_out or 0,
        },
    )


def _spans(recording: Recording) -> "SpanTree":
    """A span for each run and each step, below what asked for it."""
    from pydantic_evals.otel.span_tree import SpanTree

    tree, ids = SpanTree(), count(1)
    steps: dict[tuple[str, int], int] = {}
    spans: list[SpanNode] = []
    for run in recording.runs:
        root = next(ids)
        above = steps.get((run.parent, run.parent_step))
        name, attributes = f"invoke_agent {run.agent}", {"gen_ai.agent.name": run.agent}
        spans.append(_span(name, root, above, run.started_at, run.seconds, attributes))
        for detail in run.steps:
            number = steps[run.id, detail.step.number] = next(ids)
            spans.append(_of_step(run, detail, number, steps.get((run.id, detail.step.parent), root)))
    tree.add_spans(spans)
    return tree


def _of_step(run: RecordedRun, detail: StepDetail, number: int, above: int) -> "SpanNode":
    step = detail.step
    operation = _OPERATIONS.get(step.kind, step.kind)
    attributes = {"gen_ai.operation.name": operation, "gen_ai.agent.name": run.agent}
    if step.kind == "model":
        attributes["gen_ai.request.model"] = step.name
    else:
        attributes["gen_ai.tool.name"] = step.name
        attributes["gen_ai.tool.call.arguments"] = _arguments(detail.request)
    return _span(f"{operation} {step.name}", number, above, step.started_at, step.seconds, attributes)


def _arguments(request: str) -> str:
    """The arguments of a call, as JSON text."""
    try:
        return json.dumps(json.loads(request)["arguments"])
    except (ValueError, KeyError, TypeError):
        return "{}"


def _span(
    name: str,
    number: int,
    above: int | None,
    started_at: float,
    seconds: float | None,
    attributes: Mapping[str, str],
) -> "SpanNode":
    from pydantic_evals.otel.span_tree import SpanNode

    begin = datetime.fromtimestamp(started_at, UTC)
    return SpanNode(
        name=name,
        trace_id=_TRACE,
        span_id=number,
        parent_span_id=above,
        start_timestamp=begin,
        end_timestamp=begin + timedelta(seconds=seconds or 0.0),
        attributes=dict(attributes),
    )
