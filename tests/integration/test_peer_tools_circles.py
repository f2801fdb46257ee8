"""Agents that ask each other in a circle, more often than they have instances."""

import asyncio
import json
from pathlib import Path

import pytest
from support.live import module_fleet
from support.peered import SCRIPT, peered_project

from pallas.fleet.fleet import Fleet
from pallas.model import RunFinished, RunRequest

pytestmark = pytest.mark.asyncio(loop_scope="module")

AGAIN = """
rules:
  - when: {last: user, system: You are writer, text: write about again}
    call: [{tool: office_clerk, arguments: {about: again}}]
"""


@module_fleet(ready=True)
def fleet(folder: Path) -> Path:
    keys = {
        "desk": {"max_instances": 2},
        "writer": {"max_instances": 2, "peers": ["adder", "desk", "office.clerk"]},
    }
    root: Path = folder / "p"
    peered_project(root, keys=keys, script=AGAIN + SCRIPT.partition("rules:\n")[2])
    return root


@pytest.mark.parametrize(
    ("agent", "text"),
    [("desk", "round and round"), ("office.clerk", json.dumps({"about": "again"}))],
    ids=["models", "a handler and a model"],
)
async def test_a_circle_ends_when_all_instances_of_an_agent_wait_for_one_more(
    fleet: Fleet, agent: str, text: str
) -> None:
    before = fleet.hub.seq
    # A run waits five minutes for an instance: nobody may have to.
    result = await asyncio.wait_for(fleet.kernel.run(RunRequest(agent, text)), 60)
    assert "upstream" in result.text or "asks itself" in result.text
    over = [event for event in fleet.hub.since(before).events if isinstance(event, RunFinished)]
    assert len([event for event in over if event.agent == "writer"]) == 2
    assert not list(fleet.kernel.in_flight)
    assert (await fleet.kernel.run(RunRequest("desk", "add 2 3"))).text
