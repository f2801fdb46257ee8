"""Evaluators of pydantic-evals as scorers of a test."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pallas.agent_tests.agent_test import AgentTest
from pallas.agent_tests.scorers import Scorers
from pallas.config import Where
from pallas.model import RecordedRun, Recording, Step, StepDetail, StepKind

CHECKS = """
from dataclasses import dataclass
from pydantic_evals.evaluators import (
    ArgumentCorrectness, Contains, EvaluationReason, Evaluator, MaxDuration, MaxModelRequests, MaxToolCalls,
    ToolCorrectness,
)

seven = Contains(value="seven")
eight = Contains(value="eight")
quick = MaxDuration(seconds=1)
few = MaxToolCalls(max_calls=1)
asks = MaxModelRequests(max_requests=2)
tools = ToolCorrectness(expected_tools=["shelf__find", "clerk"])
others = ToolCorrectness(expected_tools=["shelf__look"])
lamps = ArgumentCorrectness(tool_name="shelf__find", expected_arguments={"what": "lamps"})


@dataclass
class Several(Evaluator):
    async def evaluate(self, ctx):
        assert ctx.attributes["recording"].first.answer == ctx.output
        return {
            "kind": "a label",
            "known": ctx.inputs == "How many?" and ctx.metadata == {"agent": "lead"},
            "score": EvaluationReason(value=ctx.metrics["steps"] / 100, reason="too few steps"),
        }


@dataclass
class Broken(Evaluator):
    def evaluate(self, ctx):
        raise ValueError("no idea")


several, broken = Several(), Broken()
"""


def step(number: int, kind: StepKind, name: str, parent: int = 0, **arguments: Any) -> StepDetail:
    value = Step("r1", number, kind, name, float(number), state="done", seconds=1.0, parent=parent)
    return StepDetail(value, json.dumps({"name": name, "arguments": arguments}), "{}")


def recording() -> Recording:
    steps = (
        step(1, "model", "m"),
        step(2, "tool", "shelf__find", 1, what="lamps"),
        step(3, "agent", "clerk", 1),
        step(4, "model", "m"),
    )
    lead = RecordedRun("r1", "lead", "How many?", "It is seven.", seconds=0.5, steps=steps)
    clerk = RecordedRun("r2", "clerk", "find", "found", parent="r1", parent_step=3)
    return Recording("p", (lead, clerk))


@pytest.mark.parametrize(
    ("name", "failures"),
    [
        ("seven", []),
        ("eight", ["checks:eight: it did not pass: Output string 'It is seven.' does not contain"]),
        ("quick", []),
        ("few", ["checks:few: it did not pass: "]),
        ("asks", []),
        ("tools", []),
        ("others", ["checks:others: it did not pass: "]),
        ("lamps", []),
        ("several", ["checks:several score: its score is 0.04; it must be 0.5 to 1: too few steps"]),
        ("broken", ["checks:broken: it raised ValueError: no idea"]),
    ],
)
async def test_an_evaluator_judges_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, failures: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pallas_scorer_checks", ModuleType("replaced"))
    (tmp_path / "checks.py").write_text(CHECKS)
    test = AgentTest("seen", "lead", (), Where("seen.yaml", 1), (f"checks:{name}",))
    found = [str(each) for each in await Scorers(tmp_path).failures(test, recording())]
    assert len(found) == len(failures)
    assert all(one.startswith(expected) for one, expected in zip(found, failures, strict=True)), found
