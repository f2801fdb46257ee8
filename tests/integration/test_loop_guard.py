"""A loop that gets nowhere ends in words: seen by clients of both eras and at the model."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.live import ERAS, MODERN_FIRST, agent_module, client, module_fleet
from support.offline import model_record, offline_project
from support.project_modules import module_at

from pallas.fleet.fleet import Fleet
from pallas.model import LoopStopped, RunFinished

SERVER = '''
from itertools import count
from stdio_server import StdioServer

server = StdioServer("counting")
numbers = count(1)

@server.tool()
def same(text: str) -> str:
    """The same each time."""
    return "nothing found for " + text

@server.tool()
def other(text: str) -> str:
    """Another each time."""
    return f"number {next(numbers)}"

server.run()
'''
SCRIPT = """
rules:
  - when: {last: user, user: afterwards}
    say: "afterwards, turn {{ turns }}"
  - when: {user: repeat}
    say: "I try."
    call: [{tool: counting__same, arguments: {text: "lamp"}}]
  - when: {user: endless}
    say: "I go on."
    call: [{tool: counting__other, arguments: {text: "lamp"}}]
  - when: {user: at once, last: user}
    call:
      - {tool: counting__same, arguments: {text: "a"}}
      - {tool: counting__same, arguments: {text: "a"}}
      - {tool: counting__same, arguments: {text: "a"}}
  - when: {user: at once}
    say: "all three are here"
  - when: {last: user, system: parent}
    call: [{tool: agent__child, arguments: {message: "repeat it"}}]
  - when: {last: tool, system: parent}
    say: "child: {{ result }}"
"""
# Its own hooks count what happens in its loop.
HOOKED = """
from fast_agent import FastAgent
from fast_agent.agents.tool_runner import ToolRunnerHooks

fast = FastAgent("hooked")
SEEN: list[str] = []


async def after_tool(runner, message) -> None:
    SEEN.append("tool")


async def after_turn(runner, message) -> None:
    SEEN.append("turn " + message.all_text())


HOOKS = ToolRunnerHooks(after_tool_call=after_tool, after_turn_complete=after_turn)


@fast.agent(name="hooked", instruction="You are hooked.", servers=["counting"])
async def main() -> None: ...
"""
PARENT = """
from fast_agent import FastAgent

fast = FastAgent("parent")


@fast.agent(name="child", instruction="You are the small one.", servers=["counting"])
@fast.agent(name="parent", instruction="You are the parent.", agents=["child"], default=True)
async def main() -> None: ...
"""

pytestmark = pytest.mark.asyncio(loop_scope="module")
both_eras = pytest.mark.parametrize("era", MODERN_FIRST)


@module_fleet()
def fleet(folder: Path) -> Path:
    agents = {name: agent_module(name, ("counting",)) for name in ("guarded", "free", "short")}
    return offline_project(
        folder,
        {
            **agents,
            "hooked": HOOKED,
            "parent": PARENT,
            "bare": agent_module("bare", ("counting",), use_history=False),
        },
        SCRIPT,
        keys={
            "guarded": {"max_instances": 1},
            "free": {"loop_repeat_threshold": 0, "max_iterations": 5},
            "short": {"max_iterations": 2},
        },
        config={"mcp": {"servers": {"counting": {"command": "python", "args": ["counting.py"]}}}},
        files={"counting.py": SERVER},
    )


async def _send(fleet: Fleet, agent: str, era: str, message: str, **more: Any) -> tuple[str, dict[str, Any]]:
    async with client(fleet, agent, era=era) as connected:
        result = await connected.call_tool("send_message", {"message": message, **more})
    text = "".join(getattr(block, "text", "") for block in result.content)
    assert not result.is_error, text
    return text, dict(result.meta or {})


def _stops(fleet: Fleet, since: int) -> list[LoopStopped]:
    return [event for event in fleet.hub.since(since).events if isinstance(event, LoopStopped)]


def _last_messages(fleet: Fleet) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = model_record(fleet).requests[-1]["messages"]
    return messages


def _unanswered(messages: list[dict[str, Any]]) -> set[str]:
    called = {call["id"] for message in messages for call in message.get("tool_calls") or ()}
    return called - {str(message.get("tool_call_id")) for message in messages}


@both_eras
async def test_the_same_call_with_the_same_result_stops_at_the_third(fleet: Fleet, era: str) -> None:
    # PR-24
    before, calls = fleet.hub.seq, model_record(fleet).calls
    text, meta = await _send(fleet, "guarded", era, "repeat", conversation_id=f"repeat-{era}")
    assert text.startswith("I try.\n\nI try.\n\nI try.\n\n[Stopped: counting/same was called 3 times")
    assert "loop_repeat_threshold" in text
    assert text.count("[Stopped") == 1
    assert meta["local.pallas/stopReason"] == "endTurn"
    assert model_record(fleet).calls - calls == 3
    (stop,) = _stops(fleet, before)
    assert (stop.agent, stop.reason, stop.tool, stop.count) == ("guarded", "repeat", "counting/same", 3)
    ended = [event for event in fleet.hub.since(before).events if isinstance(event, RunFinished)]
    assert [event.outcome for event in ended] == ["ok"]


@both_eras
async def test_after_a_stop_the_next_turn_finds_a_whole_history_and_a_fresh_guard(
    fleet: Fleet, era: str
) -> None:
    # PR-24
    handle = f"next-{era}"
    await _send(fleet, "guarded", era, "repeat", conversation_id=handle)
    text, _ = await _send(fleet, "guarded", era, "afterwards", conversation_id=handle)
    assert text == "afterwards, turn 2"
    messages = _last_messages(fleet)
    assert not _unanswered(messages)
    roles = [message["role"] for message in messages if message["role"] != "system"]
    assert roles == ["user", *["assistant", "tool"] * 3, "assistant", "user"]
    assert "[Stopped" in json.dumps(messages[-2])
    # The only instance was used for all of this: its next run may call three times again.
    before = fleet.hub.seq
    again, _ = await _send(fleet, "guarded", era, "repeat", conversation_id=handle)
    assert again.count("I try.") == 3
    assert len(_stops(fleet, before)) == 1


async def test_calls_made_at_once_count_once(fleet: Fleet) -> None:
    # PR-24
    assert (await _send(fleet, "guarded", ERAS[0], "at once"))[0] == "all three are here"


@both_eras
async def test_a_threshold_of_zero_lets_calls_repeat_up_to_the_cap(fleet: Fleet, era: str) -> None:
    # PR-24
    before, calls = fleet.hub.seq, model_record(fleet).calls
    text, meta = await _send(fleet, "free", era, "repeat")
    assert text.count("I try.") == 5
    assert "took 5 steps" in text
    assert meta["local.pallas/stopReason"] == "maxIterations"
    assert model_record(fleet).calls - calls == 5
    assert [stop.reason for stop in _stops(fleet, before)] == ["iterations"]


@both_eras
async def test_the_cap_returns_the_text_so_far_and_the_conversation_goes_on(fleet: Fleet, era: str) -> None:
    # PR-24
    handle = f"cap-{era}"
    text, _ = await _send(fleet, "short", era, "endless", conversation_id=handle)
    assert text.startswith("I go on.\n\nI go on.\n\n[Stopped: the agent took 2 steps")
    assert "max_iterations" in text
    assert (await _send(fleet, "short", era, "afterwards", conversation_id=handle))[0].startswith("after")
    assert not _unanswered(_last_messages(fleet))


@both_eras
async def test_results_that_differ_are_no_loop_and_the_cap_is_twelve(fleet: Fleet, era: str) -> None:
    # PR-24
    before, calls = fleet.hub.seq, model_record(fleet).calls
    text, _ = await _send(fleet, "guarded", era, "endless")
    assert text.count("I go on.") == 12
    assert "took 12 steps" in text
    assert model_record(fleet).calls - calls == 12
    assert [stop.reason for stop in _stops(fleet, before)] == ["iterations"]


@both_eras
async def test_an_agent_without_memory_says_all_it_said_before_it_was_stopped(fleet: Fleet, era: str) -> None:
    # PR-24, PI-26
    text, meta = await _send(fleet, "bare", era, "repeat")
    assert text.startswith("I try.\n\nI try.\n\nI try.\n[Stopped: counting/same was called 3 times")
    assert meta["local.pallas/stopReason"] == "endTurn"
    again, _ = await _send(fleet, "bare", era, "repeat")
    assert again == text


async def test_hooks_of_the_agents_own_go_on_working(fleet: Fleet) -> None:
    # PR-24
    module = module_at(fleet.project.root, "agents.hooked")
    executor: Any = next(agent for agent in fleet.agents if agent.name == "hooked").executor
    async with executor._pool.lease(None) as instance:
        instance.agent.tool_runner_hooks = module.HOOKS
    await _send(fleet, "hooked", ERAS[0], "repeat")
    assert module.SEEN[:3] == ["tool", "tool", "tool"]
    assert module.SEEN[3].startswith("turn I try.")
    assert "[Stopped" in module.SEEN[3]
    async with executor._pool.lease(None) as instance:
        assert instance.agent.tool_runner_hooks is module.HOOKS


async def test_a_sub_agent_of_the_same_module_is_guarded_too(fleet: Fleet) -> None:
    # PR-24
    before = fleet.hub.seq
    text, _ = await _send(fleet, "parent", ERAS[0], "go")
    assert text.startswith("child: ")
    assert "counting/same was called 3 times" in text
    assert [stop.tool for stop in _stops(fleet, before)] == ["counting/same"]
