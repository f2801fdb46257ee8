"""Limits on what runs spend, where no model of the fleet answers alone: handlers, workers, remote agents."""

from pathlib import Path
from typing import Any

import pytest
from support.live import ERAS, agent_module, all_ready, client, run_agent, running
from support.offline import model_record, offline_project
from support.ports import free_ports
from support.remotes import with_remote
from support.waiting import until
from support.workers import ACP, SIMPLE

from pallas.fleet.fleet import Fleet
from pallas.limits.limit_reached import LimitReached
from pallas.limits.spending import RunMeter
from pallas.model.spend_limits import SpendLimits

HANDS = """
from dataclasses import dataclass

from pallas.contract import HandlerResponse, Text
from pallas.llm import LimitReached, complete


@dataclass
class Ask:
    text: str


async def asker(payload: Ask, metadata) -> HandlerResponse:
    said = []
    for number in range(3):
        try:
            answer = await complete(messages=[{"role": "user", "content": f"{payload.text} {number}"}])
        except LimitReached as reached:
            return HandlerResponse.respond(Text(f"{said} then {reached.data['limit']}: {reached.message}"))
        said.append(answer.content)
    return HandlerResponse.respond(Text(str(said)))
"""
SCRIPT = """
rules:
  - when: {last: user, system: You are desk, text: have it asked}
    say: I have it asked.
    call: [{tool: asker, arguments: {text: "{{ last }}"}}]
  - when: {last: tool}
    say: "{{ result }}"
  - when: {last: user}
    say: "just {{ last }}"
"""


def handlers(root: Path, isolation: str, desk: dict[str, Any], asker: dict[str, Any]) -> Path:
    entry = {"kind": "handler", "module": None, "handler": "hands:asker", "payload": "hands:Ask"}
    keys = {
        "desk": {"peers": ["asker"], **desk},
        "asker": {**entry, "description": "Asks.", "isolation": isolation, **asker},
    }
    return offline_project(root, {"desk": None, "asker": None}, SCRIPT, keys=keys, files={"hands.py": HANDS})


def meter(fleet: Fleet, run_id: str) -> RunMeter:
    assert fleet.kernel.spending is not None
    found = fleet.kernel.spending.of(run_id)
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("forked_children")
@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_a_handler_is_told_which_limit_leaves_no_room_for_its_question(
    tmp_path: Path, isolation: str
) -> None:
    limits = {"limits": {"per_run": {"steps": 2}}}
    async with running(handlers(tmp_path, isolation, {}, limits)) as fleet:
        await until(lambda: all_ready(fleet))
        result = await run_agent(fleet, "asker", '{"text": "why"}')
        assert (
            "['just why 0', 'just why 1'] then per_run.steps: the limit limits.per_run.steps (" in result.text
        )
        assert len(model_record(fleet).requests) == 2


async def test_a_handler_gets_what_remains_of_the_limits_of_the_run_that_asks_it(tmp_path: Path) -> None:
    limits = {"limits": {"per_run": {"steps": 3}}}
    async with running(handlers(tmp_path, "none", limits, {})) as fleet:
        await until(lambda: all_ready(fleet))
        result = await run_agent(fleet, "desk", "have it asked")
        assert result.text.startswith(
            "I have it asked.\n\n[Stopped: the limit limits.per_run.steps (agents.yaml:"
        )
        assert len(model_record(fleet).requests) == 3
        assert meter(fleet, result.run_id).accounts[0].used.steps == 3


@pytest.mark.slow
@pytest.mark.parametrize("program", [SIMPLE, ACP])
async def test_a_worker_is_charged_with_what_it_reports_and_not_asked_without_room(
    tmp_path: Path, program: Path
) -> None:
    command = ["python", str(program)]
    entry = {"kind": "worker", "module": None, "command": command, "limits": {"per_run": {"tokens": 12}}}
    day = {"per_agent": {"tokens_per_day": 18}}
    root = offline_project(tmp_path, {"coder": None}, SCRIPT, keys={"coder": entry}, top={"limits": day})
    async with running(root) as fleet:
        await until(lambda: all_ready(fleet))
        result = await run_agent(fleet, "coder", "hi")
        assert meter(fleet, result.run_id).accounts[0].used.tokens == 9
        assert meter(fleet, result.run_id).accounts[0].used.steps == 1
        await run_agent(fleet, "coder", "hi")
        with pytest.raises(LimitReached, match="this agent today used 18 tokens"):
            await run_agent(fleet, "coder", "hi")
        with pytest.raises(LimitReached, match="this question needs about"):
            await run_agent(fleet, "coder", "a long question " * 20)


async def test_a_remote_fleet_gets_what_remains_and_can_only_lower_it(tmp_path: Path) -> None:
    script = """
rules:
  - when: {last: user, text: look}
    say: I look.
    call: [{tool: echo__echo, arguments: {text: "lamp"}}]
  - when: {last: tool}
    say: "It says {{ result }}"
  - when: {last: user}
    say: "just {{ last }}"
"""
    source = agent_module("scholar", ("echo",))
    keys = {"scholar": {"port": None, "limits": {"per_run": {"steps": 50}}}}
    there = offline_project(
        tmp_path / "there", {"scholar": source}, script, top={"port": free_ports(1)[0]}, keys=keys
    )
    async with running(there) as far:
        await until(lambda: all_ready(far))
        here = with_remote(tmp_path / "here", far.agents[0].url, limits={"per_run": {"steps": 1, "usd": 0.5}})
        async with running(here) as fleet:
            await until(lambda: all_ready(fleet))
            result = await run_agent(fleet, "far", "look")
            assert result.text.startswith(
                "I look.\n\n[Stopped: the limit limits.per_run.steps (given by the caller)"
            )
            assert result.stop_reason == "limit"
            assert len(model_record(far).requests) == 1
            account = meter(fleet, result.run_id).accounts[0]
            assert account.used.steps == 1 and account.used.tokens > 0
        with pytest.raises(LimitReached, match="given by the caller"):
            await run_agent(
                far, "scholar", "look", limits=SpendLimits(tokens=1, places={"tokens": "given by the caller"})
            )


async def test_limits_in_a_call_that_are_none_are_refused(tmp_path: Path) -> None:
    async with running(offline_project(tmp_path, {"desk": None}, SCRIPT)) as fleet:
        await until(lambda: all_ready(fleet))
        for era in ERAS:
            async with client(fleet, "desk", era=era) as connected:
                for given in ("much", {"tokens": -1}, {"cents": 3}):
                    result = await connected.call_tool(
                        "send_message", {"message": "hi"}, meta={"local.pallas/limits": given}
                    )
                    said = "".join(getattr(block, "text", "") for block in result.content)
                    assert result.is_error and "gives no limits" in said and "local.pallas/limits" in said
                result = await connected.call_tool(
                    "send_message", {"message": "hi"}, meta={"local.pallas/limits": {"tokens": 1}}
                )
                said = "".join(getattr(block, "text", "") for block in result.content)
                assert result.is_error and "(given by the caller) of 1 tokens is reached" in said
