"""Agents of every kind whose entry, or code, is saved while their fleet runs."""

import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest_asyncio
import yaml
from support.live import all_ready, ask_agent, running
from support.ports import free_ports
from support.reloading import Saves
from support.waiting import until

from pallas.config.kinds import SessionLimits, TasksConfig
from pallas.model import RunRequest

ANSWERS = """
async def one(request):
    return "one"


async def two(request):
    return "two"
"""
WORKER = """
import json, sys

for line in sys.stdin:
    asked = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": asked.get("id"), "result": {"sessionId": "s", "text": "VERSION"}}
    print(json.dumps(answer), flush=True)
"""


@pytest_asyncio.fixture
async def saves(tmp_path: Path) -> AsyncIterator[Saves]:
    (port,) = free_ports(1)
    (tmp_path / "answers.py").write_text(ANSWERS)
    (tmp_path / "worker.py").write_text(WORKER)
    agents: dict[str, Any] = {
        "one": {"kind": "handler", "handler": "answers:one", "examples": ["count to one"]},
        "two": {"kind": "handler", "handler": "answers:two", "examples": ["count to two"]},
        "front": {"kind": "router", "agents": ["one"], "fallback": "one"},
        "either": {"kind": "router", "agents": ["one", "two"]},
        "program": {"kind": "worker", "command": [sys.executable, "worker.py"], "dialect": "ndjson"},
    }
    (tmp_path / "agents.yaml").write_text(yaml.safe_dump({"name": "kinds", "port": port, "agents": agents}))
    async with running(tmp_path, watch=True) as fleet:
        await until(lambda: all_ready(fleet))
        yield Saves(fleet, tmp_path)


async def concerned(saves: Saves, change: Callable[[dict[str, Any]], None], *names: str) -> set[str]:
    """Which agents have another version once ``names`` have, after agents.yaml is changed."""
    before = saves.versions()
    saves.edit("agents.yaml", change)
    await until(lambda: all(saves.versions()[name] > before[name] for name in names))
    await until(lambda: not saves.busy())
    now = saves.versions()
    return {name for name in now if now[name] != before.get(name)}


async def test_a_router_that_names_others_is_exchanged_alone(saves: Saves) -> None:
    assert await ask_agent(saves.fleet, "front", "count to two") == "one"

    def change(entries: dict[str, Any]) -> None:
        entries["agents"]["front"]["agents"] = ["one", "two"]

    assert await concerned(saves, change, "front") == {"front"}
    assert await ask_agent(saves.fleet, "front", "count to two") == "two"


async def test_another_object_for_a_handler_and_other_examples_make_a_version(saves: Saves) -> None:
    def other(entries: dict[str, Any]) -> None:
        entries["agents"]["two"]["handler"] = "answers:one"

    assert await concerned(saves, other, "two") == {"two"}
    assert await ask_agent(saves.fleet, "two", "hello") == "one"

    def examples(entries: dict[str, Any]) -> None:
        entries["agents"]["two"] |= {"examples": ["sing a song"], "capabilities": ["singing"]}

    assert await concerned(saves, examples, "two") == {"two"}
    result = await saves.fleet.kernel.run(RunRequest("either", "sing me another song"))
    assert result.routed == "two"


async def test_code_of_a_handler_and_of_a_worker_concerns_those_that_run_it(saves: Saves) -> None:
    before = saves.versions()
    saves.write("answers.py", ANSWERS.replace('"one"', '"uno"'))
    await until(lambda: all(saves.versions()[name] > before[name] for name in ("one", "two")))
    assert await ask_agent(saves.fleet, "one", "hello") == "uno"
    assert saves.versions()["program"] == before["program"]
    saves.write("worker.py", WORKER.replace("VERSION", "another"))
    await until(lambda: saves.versions()["program"] > before["program"])


async def test_what_a_worker_is_started_with_makes_a_version_and_shows_no_secret(saves: Saves) -> None:
    def change(entries: dict[str, Any]) -> None:
        entries["agents"]["program"]["env"] = {"KEY": "nobody-may-see-this"}

    assert await concerned(saves, change, "program") == {"program"}
    told = [each for each in saves.told() if each.agent == "program"][-1]
    assert [each.name for each in told.changes if each.part == "config"] == ["env"]
    assert "nobody-may-see-this" not in repr(told)


async def test_an_agent_may_become_another_kind(saves: Saves) -> None:
    def change(entries: dict[str, Any]) -> None:
        entries["agents"]["two"] = {"kind": "router", "agents": ["one"], "fallback": "one"}

    assert "two" in await concerned(saves, change, "two")
    result = await saves.fleet.kernel.run(RunRequest("two", "hello"))
    assert result.routed == "one"
    assert (
        saves.fleet.snapshot().agents[[each.name for each in saves.fleet.agents].index("two")].kind
        == "router"
    )


async def test_sessions_tasks_and_the_default_agent_are_taken_over_at_once(saves: Saves) -> None:
    def change(entries: dict[str, Any]) -> None:
        entries |= {"sessions": {"max": 3}, "tasks": {"tools": True}, "default_agent": "two"}

    before = saves.versions()
    saves.edit("agents.yaml", change)
    await until(lambda: saves.fleet.project.default_agent == "two")
    assert saves.fleet.project.sessions == SessionLimits(max=3)
    assert saves.fleet.project.tasks == TasksConfig(tools=True)
    await until(lambda: not saves.busy())
    assert saves.versions() == before
