"""Agents that lose a server in the middle of a call, share it with another agent, or get a new version."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml
from mcp import Client
from support.live import ERAS, agent_module, client, running, tool_call, write_project
from support.offline import model_record, offline_project
from support.outages import Outage, answer_and_missing, outages
from support.waiting import poll, until

from pallas.fleet.fleet import Fleet
from pallas.fleet.health_monitor import CheckIntervals
from pallas.model import AgentSnapshot, HealthStatus

PACE = CheckIntervals(health=0.2, confirm=0.1)
FAMILY = """
from fast_agent import FastAgent

fast = FastAgent("family")


@fast.agent(name="child", instruction="You are a child.", servers=["right"])
async def child() -> None: ...


@fast.agent(name="one", instruction="You are one.", servers=["left"], agents=["child"], default=True)
async def main() -> None: ...
"""


def entries(*servers: Outage) -> dict[str, Any]:
    """The fast-agent configuration of these servers."""
    return {"mcp": {"servers": {each.name: {"url": each.url} for each in servers}}}


async def answer_with(connected: Client, server: str) -> None:
    """Wait until a message is answered with the tool of that server."""
    # It is tried again before each run.
    await poll(
        lambda: answer_and_missing(connected, tool_call(f"{server}__say", text="x")),
        lambda given: f"{server}:x" in given[0],
    )


def shown(fleet: Fleet, name: str = "one") -> AgentSnapshot:
    """An agent as the fleet shows it."""
    return next(each for each in fleet.snapshot().agents if each.name == name)


@pytest.mark.slow
async def test_a_call_in_flight_fails_alone_when_its_server_goes(tmp_path: Path) -> None:
    # PI-12
    async with outages("left", "right") as (left, right):
        write_project(tmp_path, {"one": agent_module("one", ("left", "right"))}, config=entries(left, right))
        async with running(tmp_path) as fleet:
            for era in ERAS:
                async with client(fleet, "one", era=era) as one:
                    await answer_with(one, "right")
                    right.gate = asyncio.Event()
                    before = right.requests
                    call = asyncio.create_task(answer_and_missing(one, tool_call("right__say", text="x")))
                    await until(lambda before=before: right.requests > before)
                    await right.stop()
                    text, _ = await asyncio.wait_for(call, 60)
                    assert "right:x" not in text
                    assert (await answer_and_missing(one, tool_call("right__say", text="x")))[1] == {
                        "right": "cannot be reached"
                    }
                    assert "left:x" in (await answer_and_missing(one, tool_call("left__say", text="x")))[0]
                    right.gate = None
                    await right.start()
                    await answer_with(one, "right")


@pytest.mark.slow
async def test_two_agents_that_share_a_server_lose_and_regain_it_each(tmp_path: Path) -> None:
    # PI-12
    async with outages("left", "right") as (left, right):
        agents = {name: agent_module(name, ("left", "right")) for name in ("one", "two")}
        write_project(tmp_path, agents, config=entries(left, right))
        async with running(tmp_path) as fleet, client(fleet, "one") as one, client(fleet, "two") as two:
            await right.stop()
            for each in (one, two):
                assert (await answer_and_missing(each, tool_call("right__say", text="x")))[1] == {
                    "right": "cannot be reached"
                }
                assert "left:x" in (await answer_and_missing(each, tool_call("left__say", text="x")))[0]
            await right.start()
            for each in (one, two):
                await answer_with(each, "right")
                assert (await answer_and_missing(each, "hi")) == ("hi", {})


@pytest.mark.slow
async def test_a_server_of_an_agent_below_is_missing_like_any_other(tmp_path: Path) -> None:
    # PI-12
    async with outages("left", "right") as (left, right):
        await right.stop()
        write_project(tmp_path, {"one": FAMILY}, config=entries(left, right))
        async with running(tmp_path) as fleet, client(fleet, "one") as one:
            text, missing = await answer_and_missing(one, tool_call("left__say", text="x"))
            assert "left:x" in text
            assert missing == {"right": "cannot be reached"}
            await right.start()
            # It is tried again before each run.
            await poll(lambda: answer_and_missing(one, "hi"), lambda given: not given[1])


@pytest.mark.slow
async def test_a_new_version_of_a_degraded_agent_answers_and_connects_what_returns(tmp_path: Path) -> None:
    # PI-12
    async with outages("left", "right") as (left, right):
        await right.stop()
        write_project(tmp_path, {"one": agent_module("one", ("left", "right"))}, config=entries(left, right))
        async with running(tmp_path, watch=True, pace=PACE) as fleet, client(fleet, "one") as one:
            assert (await answer_and_missing(one, "hi"))[1] == {"right": "cannot be reached"}
            module = tmp_path / "agents" / "one.py"
            module.write_text(module.read_text().replace("You are one.", "You are another."))
            await until(lambda: shown(fleet).version == 2, timeout=60)
            assert (await answer_and_missing(one, "hi")) == ("hi", {"right": "cannot be reached"})
            topology = yaml.safe_load((tmp_path / "agents.yaml").read_text())
            topology["agents"]["one"]["servers"] = {"right": {"required": True}}
            (tmp_path / "agents.yaml").write_text(yaml.safe_dump(topology, sort_keys=False))
            await until(lambda: shown(fleet).version == 3, timeout=60)
            await until(lambda: shown(fleet).health.status is HealthStatus.ERROR)
            refused = await one.call_tool("send_message", {"message": "hi"})
            assert refused.is_error
            await right.start()
            await answer_with(one, "right")
            await until(lambda: shown(fleet).health.status is HealthStatus.OK)


@pytest.mark.slow
async def test_instructions_of_a_server_are_told_to_the_model_when_it_returns(tmp_path: Path) -> None:
    # PI-12
    instructed = """
from fast_agent import FastAgent

fast = FastAgent("one")


@fast.agent(name="one", instruction="You are one. {{serverInstructions}}", servers=["left", "right"])
async def main() -> None: ...
"""
    async with outages("left", "right") as (left, right):
        await right.stop()
        script = "rules: [{say: fine}]"
        offline_project(tmp_path, {"one": instructed}, script, config=entries(left, right))
        async with running(tmp_path) as fleet, client(fleet, "one") as one:
            assert await answer_and_missing(one, "hi") == ("fine", {"right": "cannot be reached"})
            told = str(model_record(fleet).requests[-1])
            assert "Ask left nicely." in told and "Ask right nicely." not in told
            await right.start()
            # It is tried again before each run.
            await poll(lambda: answer_and_missing(one, "hi"), lambda given: not given[1])
            told = str(model_record(fleet).requests[-1])
            assert "Ask left nicely." in told and "Ask right nicely." in told
            assert "right__say" in told
