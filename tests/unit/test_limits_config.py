"""What ``limits:`` may say, and how mistakes in it are reported."""

from pathlib import Path

import pytest
from support.config_folder import AGENTS, Folder

from pallas.model.spend_limits import NO_LIMITS, LimitsConfig, SpendLimits


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_a_project_and_an_agent_say_what_may_be_spent(folder: Folder) -> None:
    top = (
        "limits:\n  per_run: {usd: 0.5, tokens: 200k, steps: 40}\n  per_caller:\n    usd_per_day: 5\n"
        "  per_agent: {tokens_per_day: 1.5M}\n  unpriced: refuse\n"
    )
    project = folder.agents(top + AGENTS + "    limits: {per_run: {tokens: 5000}}\n").load()
    assert project.limits == LimitsConfig(
        per_run=SpendLimits(usd=500_000_000, tokens=200_000, steps=40),
        per_caller=SpendLimits(usd=5_000_000_000),
        per_agent=SpendLimits(tokens=1_500_000),
        unpriced="refuse",
    )
    assert project.limits.per_run.places["tokens"] == "agents.yaml:2"
    assert project.limits.per_caller.places == {"usd": "agents.yaml:4"}
    assert project.agents["jarvis"].limits == LimitsConfig(per_run=SpendLimits(tokens=5_000))


def test_nothing_is_limited_unless_the_files_say_so(folder: Folder) -> None:
    project = folder.agents(AGENTS).load()
    assert project.limits == project.agents["jarvis"].limits == NO_LIMITS
    assert not project.limits


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (
            "per_run: {tokens: many}",
            "agents.yaml:1: limits.per_run.tokens: is not a number of tokens; allowed: 200000, 200k or 1.5M",
        ),
        (
            "per_run: {tokens: 0}",
            "agents.yaml:1: limits.per_run.tokens: is out of range; allowed: 1 or more, such as 200k",
        ),
        (
            "per_run: {tokens: 1.5}",
            "agents.yaml:1: limits.per_run.tokens: is out of range; allowed: 1 or more, such as 200k",
        ),
        (
            "per_run: {usd: 0}",
            "agents.yaml:1: limits.per_run.usd: 0 is out of range; allowed: 1e-06 to 1000000",
        ),
        (
            "per_caller: {steps: 3}",
            "agents.yaml:1: limits.per_caller.steps: unknown key; allowed: usd_per_day, tokens_per_day",
        ),
        (
            "unpriced: maybe",
            "agents.yaml:1: limits.unpriced: unknown value maybe; allowed: allow, refuse",
        ),
    ],
)
def test_a_mistake_says_where_it_is_and_what_is_allowed(folder: Folder, body: str, line: str) -> None:
    assert folder.agents(f"limits: {{{body}}}\n{AGENTS}").lines()[:1] == [line]


def test_the_smaller_of_two_limits_holds_with_its_place() -> None:
    project = SpendLimits(tokens=10, steps=5, places={"tokens": "agents.yaml:1", "steps": "agents.yaml:2"})
    own = SpendLimits(tokens=20, usd=7, places={"tokens": "agents.yaml:8", "usd": "agents.yaml:9"})
    assert own.lowered(project) == SpendLimits(usd=7, tokens=10, steps=5)
    assert own.lowered(project).places == {
        "tokens": "agents.yaml:1",
        "usd": "agents.yaml:9",
        "steps": "agents.yaml:2",
    }
