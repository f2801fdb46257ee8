"""Progress and figures of a run use the agent's name in agents.yaml, whatever its code calls it."""

from pathlib import Path

import pytest
from support.live import ERAS, MODERN_FIRST, client, module_fleet
from support.offline import offline_project

from pallas.fleet.fleet import Fleet
from pallas.model import RunFinished
from pallas_tui.frame import FleetFrame
from pallas_tui.runs.run_feed import Feed
from pallas_tui.runs.run_tree import HEAD, rows_of

SCRIPT = """
rules:
  - when: {last: user, system: concierge}
    call: [{tool: research__send_message, arguments: {message: "look it up"}}]
  - when: {last: user}
    call: [{tool: echo__echo, arguments: {text: "hi"}}]
  - when: {last: tool}
    say: "done"
"""
# Without name= fast-agent calls it "default".
UNNAMED = """
from fast_agent import FastAgent

fast = FastAgent("desk")


@fast.agent(instruction="You are {name}.", servers=["{server}"])
async def main() -> None: ...
"""
LINES = [
    "{name} step 1 (llm)",
    "{name} step 2 (tool)",
    "echo/echo: started",
    "echo/echo: completed",
    "{name} step 3 (llm)",
]

pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]


@module_fleet()
def fleet(folder: Path) -> Path:
    servers = {"concierge": "research", "research": "echo", "apart": "echo"}
    return offline_project(
        folder,
        {name: UNNAMED.format(name=name, server=server) for name, server in servers.items()},
        SCRIPT,
        peers=("research",),
        keys={"concierge": {"depends_on": ["research"]}, "apart": {"isolation": "process"}},
    )


async def _heard(fleet: Fleet, agent: str, era: str) -> tuple[list[str | None], dict[str, tuple[int, int]]]:
    """The lines of progress of one message, and steps and calls of each run by its agent."""
    seen: list[str | None] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        seen.append(message)

    seq = fleet.hub.seq
    async with client(fleet, agent, era=era) as connected:
        result = await connected.call_tool("send_message", {"message": "go"}, progress_callback=progress)
    assert not result.is_error
    events = fleet.hub.since(seq, 20_000).events
    ended = [each for each in events if isinstance(each, RunFinished)]
    return seen, {each.agent: (each.steps, each.tools) for each in ended}


@pytest.mark.parametrize("era", MODERN_FIRST)
@pytest.mark.parametrize("agent", ["research", "apart"])
async def test_an_agent_whose_code_gives_no_name_is_called_as_in_agents_yaml(
    fleet: Fleet, agent: str, era: str
) -> None:
    # PI-20
    seen, figures = await _heard(fleet, agent, era)
    assert seen == [line.format(name=agent) for line in LINES]
    assert figures == {agent: (3, 1)}


async def test_steps_of_an_agent_that_another_one_asks_are_shown_once(fleet: Fleet) -> None:
    # PI-20
    seq = fleet.hub.seq
    seen, figures = await _heard(fleet, "concierge", ERAS[0])
    assert [line for line in seen if line and "step" in line] == [
        "concierge step 1 (llm)",
        "concierge step 2 (tool)",
        "research step 1 (llm)",
        "research step 2 (tool)",
        "research step 3 (llm)",
        "concierge step 3 (llm)",
    ]
    assert figures == {"concierge": (3, 1), "research": (3, 1)}
    feed = Feed()
    feed.absorb(FleetFrame(fleet.snapshot(), fleet.hub.since(seq, 20_000).events, 0.0))
    (root,) = feed.roots
    shown = [
        (row.run.agent, row.level, row.run.steps[row.place].title)
        for row in rows_of(root, lambda run: True)
        if row.place != HEAD
    ]
    assert shown == [
        ("concierge", 1, "1. scripted"),
        ("concierge", 2, "2. research/send_message"),
        ("research", 4, "1. scripted"),
        ("research", 5, "2. echo/echo"),
        ("research", 4, "3. scripted"),
        ("concierge", 1, "3. scripted"),
    ]
