"""The use of limits, as REST, the command line, metrics and MCP show it: the same sums everywhere."""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import httpx2
import pytest
from support.offline import offline_project
from support.served import Served, served

from pallas.cli.app import run

SCRIPT = """
rules:
  - when: {last: user, text: ask}
    say: Let me see.
    call: [{tool: writer, arguments: {message: "page"}}]
  - when: {last: user, text: page}
    say: "a page"
  - when: {last: user}
    say: "just {{ last }}"
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("limits") / "project"
    limits = {
        "per_run": {"steps": 2},
        "per_caller": {"usd_per_day": 1, "tokens_per_day": "5k"},
        "per_agent": {"tokens_per_day": 4_000},
    }
    top = {"bind": "127.0.0.1", "limits": limits, "prices": {"*": {"input": 1, "output": 10}}}
    offline_project(
        root, {"desk": None, "writer": None}, SCRIPT, keys={"desk": {"peers": ["writer"]}}, top=top
    )
    with served(root) as fleet:
        assert run(["ready", str(root), "--wait", "90"]) == 0, fleet.err
        yield fleet


def rest(fleet: Served, path: str, body: Any = None) -> Any:
    url = f"{fleet.registry}/api/v1{path}"
    if body is None:
        return httpx2.get(url, trust_env=False, timeout=30).json()
    return httpx2.post(url, json=body, trust_env=False, timeout=30).json()


def metrics(fleet: Served) -> str:
    return httpx2.get(f"{fleet.registry}/metrics", trust_env=False, timeout=30).text


def ended_by_a_limit(agent: str) -> str:
    """The line of one run of the agent that a limit ended."""
    return f'pallas_agent_loop_aborted_total{{agent="{agent}",reason="limit"}} 1.0'


def test_every_surface_shows_the_same_sums(fleet: Served, capsys: pytest.CaptureFixture[str]) -> None:
    answer = rest(fleet, "/agents/desk/chat", {"message": "ask", "stream": False})
    assert answer["stopReason"] == "limit", answer
    assert "[Stopped: the limit limits.per_run.steps (agents.yaml:" in answer["text"]
    runs = rest(fleet, "/runs")["items"]
    assert {each["agent"] for each in runs} == {"desk", "writer"}
    tokens = {each["agent"]: sum(each["usage"].values()) for each in runs}
    accounts = rest(fleet, "/limits")["items"]
    used = {(each["scope"], each["limit"]): each["used"] for each in accounts}
    assert used["caller:anonymous", "per_caller.tokens_per_day"] == sum(tokens.values())
    assert used["agent:desk", "per_agent.tokens_per_day"] == tokens["desk"]
    assert used["agent:writer", "per_agent.tokens_per_day"] == tokens["writer"]
    dollars = next(each for each in accounts if each["limit"] == "per_caller.usd_per_day")
    assert float(dollars["used"]) + float(dollars["left"]) == pytest.approx(1) and float(dollars["used"]) > 0
    cost = sum(Decimal(each["cost"]) for each in runs)
    assert Decimal(dollars["used"]) == cost == Decimal(answer["treeCost"])
    assert all(each["held"] in (0, "0") and each["where"].startswith("agents.yaml:") for each in accounts)

    (desk,) = (each["id"] for each in runs if each["agent"] == "desk")
    of_run = {each["limit"]: each for each in rest(fleet, f"/runs/{desk}")["limits"]}
    assert (of_run["per_run.steps"]["used"], of_run["per_run.steps"]["left"]) == (2, 0)
    assert of_run["per_run.steps"]["resetsAt"] is None

    capsys.readouterr()
    project = ["--project", str(fleet.root)]
    assert run([*project, "get", "limits", "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)["items"]
    assert {(each["scope"], each["limit"]): each["used"] for each in listed} == used
    assert run([*project, "get", "limits"]) == 0
    table = capsys.readouterr().out
    assert "agent:desk" in table and "per_agent.tokens_per_day" in table and "RESETS" in table
    assert run([*project, "describe", "run", desk]) == 0
    described = capsys.readouterr().out
    assert "per_run.steps (agents.yaml:" in described and "used 2 of 2, 0 left" in described
    assert run([*project, "get", "limit", "desk"]) == 2
    assert "limits have no names; write `pallas get limits`" in capsys.readouterr().err
    assert ended_by_a_limit("desk") in metrics(fleet)


@pytest.mark.slow
def test_a_question_without_room_is_a_fault_with_the_time_to_come_back(fleet: Served) -> None:
    for _ in range(100):
        answer = rest(fleet, "/agents/writer/chat", {"message": "page " * 100, "stream": False})
        if "error" in answer:
            break
    data = answer["data"]
    assert data["type"] == "UPSTREAM" and data["retryable"] and data["limitReached"]
    assert data["limit"] in ("per_caller.tokens_per_day", "per_agent.tokens_per_day")
    assert 0 < data["retry_after"] <= 86_400
    assert "try again after midnight UTC" in answer["error"]
    assert ended_by_a_limit("writer") in metrics(fleet)
