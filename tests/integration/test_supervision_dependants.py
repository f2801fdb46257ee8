"""Agents that need others which fail: degraded with the reason, and nothing worse."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.live import MODERN_FIRST, ask, client, control, write_project
from support.mortal import Fates, mortals, reaches, shown
from support.offline import offline_project
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.fleet.health_monitor import CheckIntervals
from pallas.health.probe import Lack, health_of
from pallas.model import (
    AgentState,
    CallOutcome,
    Downstream,
    Fault,
    FaultType,
    HealthChanged,
    HealthStatus,
    ProbeResult,
)

ERA = pytest.mark.parametrize("era", MODERN_FIRST)
QUICK = {"restart": {"backoff": 0.05, "crashes": 3}}
OFTEN = CheckIntervals(health=0.1, confirm=0.05)
SLOW = {"restart": {"backoff": 600, "backoff_max": 600, "crashes": 2}}


def project(root: Path, restart: dict[str, Any]) -> Path:
    """The agent ``one`` needs ``two``, and nobody needs ``three``."""
    keys = {"one": {"depends_on": ["two"]}, "two": restart}
    return write_project(root, {"one": None, "two": None, "three": None}, keys=keys)


def messages(fleet: Fleet, name: str = "one", after: int = 0) -> list[str]:
    """What the agent's health said, each time it changed."""
    events = fleet.hub.since(after).events
    return [each.health.message for each in events if isinstance(each, HealthChanged) and each.agent == name]


@ERA
async def test_who_needs_a_failed_agent_is_degraded_with_the_reason_and_goes_on(
    tmp_path: Path, era: str
) -> None:
    two = Fates()
    async with mortals(project(tmp_path, SLOW), {"two": two}) as fleet, client(fleet, "one", era=era) as one:
        mark = fleet.hub.seq
        two.made[0].die("out of memory")
        await until(lambda: shown(fleet).health.status is HealthStatus.DEGRADED)
        assert shown(fleet).health.message == "needs two: backoff (out of memory)"
        result = await one.call_tool("get_health", {})
        found = json.loads(result.content[0].text)  # type: ignore[union-attr]
        assert (found["status"], found["message"]) == ("degraded", "needs two: backoff (out of memory)")
        agent = shown(fleet)
        assert (agent.state, agent.ready, agent.healthy, agent.restarts) == (AgentState.READY, True, False, 0)
        assert await ask(one, "hello") == "0:hello"
        assert shown(fleet, "three").health.status is HealthStatus.OK
        fleet.control("two", "start")
        await until(lambda: shown(fleet).healthy)
        assert messages(fleet, after=mark) == ["needs two: backoff (out of memory)", ""]


async def test_a_crash_loop_is_told_to_dependants_once_and_attempts_are_not(tmp_path: Path) -> None:
    two = Fates()
    async with mortals(project(tmp_path, QUICK), {"two": two}) as fleet:
        mark = fleet.hub.seq
        two.starts = [
            Fault(FaultType.TRANSPORT, "out of memory"),
            Fault(FaultType.TRANSPORT, "out of memory"),
        ]
        two.made[0].die("out of memory")
        await reaches(fleet, AgentState.CRASH_LOOP, "two")
        await until(lambda: "crash-loop" in shown(fleet).health.message)
        reason = "3 failures within 300 s, the last: out of memory; correct that and start it again"
        assert messages(fleet, after=mark) == [
            "needs two: backoff (out of memory)",
            f"needs two: crash-loop ({reason})",
        ]
        assert shown(fleet).state is AgentState.READY


async def test_an_agent_that_cannot_be_made_degrades_who_needs_it(tmp_path: Path) -> None:
    # PR-7
    two = Fates(loads=[Fault(FaultType.CONFIG, "agents/two.py:3: NameError")])
    async with mortals(project(tmp_path, QUICK), {"two": two}) as fleet:
        await until(lambda: shown(fleet).health.message)
        assert shown(fleet).health.message == "needs two: error (agents/two.py:3: NameError)"
        assert shown(fleet).health.status is HealthStatus.DEGRADED


async def test_an_agent_stopped_by_hand_is_missed_one_that_is_restarted_is_not(tmp_path: Path) -> None:
    async with mortals(project(tmp_path, QUICK), {}) as fleet:
        mark = fleet.hub.seq
        await control(fleet, "two", "restart")
        assert shown(fleet, "two").state is AgentState.READY
        assert messages(fleet, after=mark) == []
        fleet.control("two", "stop")
        await until(lambda: shown(fleet).health.message)
        assert shown(fleet).health.message == "needs two: stopped by hand"
        fleet.control("two", "start")
        await until(lambda: shown(fleet).healthy)


@ERA
async def test_who_calls_a_failed_agent_over_mcp_says_so_though_its_port_answers(
    tmp_path: Path, era: str
) -> None:
    two = Fates()
    fates = {"one": Fates(servers=("two",) if era != "legacy" else ("elder_two",)), "two": two}
    where: dict[str, Any] = {"peers": ("two",)} if era != "legacy" else {"elders": ("two",)}
    script = "rules:\n  - say: hello\n"
    root = offline_project(tmp_path, {"one": None, "two": None}, script, keys={"two": SLOW}, **where)
    async with mortals(root, fates, pace=OFTEN) as fleet:
        await until(lambda: shown(fleet).healthy)
        two.made[0].die("out of memory")
        await until(lambda: shown(fleet).health.message)
        await fleet.agents[0].check_health()
        assert shown(fleet).health.message == "needs two: backoff (out of memory)"
        assert [each.reach for each in shown(fleet).downstreams] == [
            ProbeResult.OK
        ]  # its port tells its health


def test_one_cause_is_told_once() -> None:
    calls = CallOutcome(ok=False, at=10**12, detail="HTTP 503", reach=ProbeResult.UNREACHABLE)
    downstreams = (
        Downstream("two", "http", "http://127.0.0.1:1/mcp", ProbeResult.UNREACHABLE),
        Downstream("also_two", "http", "http://127.0.0.1:1/mcp", ProbeResult.OK, last_call=calls),
        Downstream("other", "http", "http://127.0.0.1:2/mcp", ProbeResult.UNREACHABLE),
    )
    lack = Lack("two", "crash-loop (out of memory)", frozenset({"two", "also_two"}))
    health = health_of(AgentState.READY, downstreams, "openai: no key", lacks=(lack,))
    assert health.message == "needs two: crash-loop (out of memory); Unreachable: other; LLM: openai: no key"
    assert health.status is HealthStatus.DEGRADED
