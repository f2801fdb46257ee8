"""A fleet looks after an agent in a process of its own as after any other: restarts, reloads, going back."""

import asyncio
import json
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import pallas_process
from support.live import ERAS, agent_module, ask, client, control, running
from support.mortal import moves
from support.offline import model_record, offline_project
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.model import ANONYMOUS, AgentSnapshot, AgentState, ToolEvent

pytestmark = pytest.mark.usefixtures("forked_children")

SCRIPT = """
rules:
  - when: {last: user, text: use the tool}
    call: [{tool: echo__echo, arguments: {text: "{{ last }}"}}]
  - when: {last: user, text: slow tool}
    call: [{tool: echo__slow, arguments: {text: "x"}}]
  - when: {last: user}
    say: "turn {{ turns }}: {{ last }}"
  - when: {last: tool}
    say: "{{ result }}"
"""


def project(root: Path, **more: Any) -> Path:
    return offline_project(
        root,
        {"one": agent_module("one", ("echo",)), "other": None},
        SCRIPT,
        keys={"one": {"isolation": "process", **more}},
    )


def one(fleet: Fleet) -> AgentSnapshot:
    agent = fleet.snapshot().agent("one")
    assert agent is not None
    return agent


def instruction(fleet: Fleet) -> str:
    executor = next(each.executor for each in fleet.agents if each.name == "one")
    return executor.info.instruction if executor is not None else ""


def saying(text: str) -> str:
    return agent_module("one", ("echo",)).replace("You are one.", text)


def processes() -> set[int]:
    """Interpreters that answer for an agent."""
    children = pallas_process.below()
    return {
        each.pid
        for each in children
        if "pallas.executors.process.agent_child" in (line := each.cmdline())
        and not any("keeper" in w for w in line)
    }


@pytest.mark.slow
async def test_one_that_is_killed_is_started_again_and_its_conversation_goes_on(tmp_path: Path) -> None:
    root = project(tmp_path, restart={"backoff": 0.1})
    async with running(root) as fleet, AsyncExitStack() as stack:
        callers, elsewhere = [
            {era: await stack.enter_async_context(client(fleet, name, era=era)) for era in ERAS}
            for name in ("one", "other")
        ]
        for era, caller in callers.items():
            await ask(caller, "use the tool", conversation_id=f"c-{era}")
        before = one(fleet)
        seen = fleet.hub.seq
        calls = [
            asyncio.create_task(caller.call_tool("send_message", {"message": "slow tool"}))
            for caller in callers.values()
        ]
        await until(lambda: len(started_tools(fleet, seen)) == len(calls))
        assert before.pid is not None
        os.kill(before.pid, signal.SIGKILL)
        for era, call in zip(callers, calls, strict=True):
            result = await call
            assert result.is_error, era
            body = json.loads(getattr(result.content[0], "text", ""))
            assert (body["data"]["type"], body["data"]["retryable"]) == ("TRANSPORT", True)
            assert "one" in body["error"]
            assert "ended by SIGKILL" in body["error"]
        await until(lambda: AgentState.BACKOFF in moves(fleet, after=seen))
        await until(lambda: one(fleet).state is AgentState.READY and one(fleet).pid not in (None, before.pid))
        assert (one(fleet).started_again, one(fleet).crashes) == (1, 1)
        for era, caller in callers.items():
            assert "turn 2: again" in await ask(caller, "again", conversation_id=f"c-{era}"), era
            roles = [message["role"] for message in model_record(fleet).requests[-1]["messages"]]
            assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
            assert "turn 1: hello" in await ask(elsewhere[era], "hello"), era
            said = await fleet.kernel.open("one", f"c-{era}", None, ANONYMOUS)
            assert [message.text for message in said if message.role == "user"] == ["use the tool", "again"]
        assert one(fleet).version == before.version
    assert processes() == set()


def started_tools(fleet: Fleet, since: int) -> list[ToolEvent]:
    """The calls of tools that began after an event."""
    return [e for e in fleet.hub.since(since).events if isinstance(e, ToolEvent) and e.phase == "started"]


@pytest.mark.slow
async def test_a_reload_goes_to_a_new_process_and_a_rollback_to_the_one_before(tmp_path: Path) -> None:
    root = project(tmp_path)
    module = root / "agents" / "one.py"
    async with running(root) as fleet, client(fleet, "one") as caller:
        await ask(caller, "use the tool", conversation_id="c")
        first = one(fleet).pid
        # Same size and within the same second: compiled files would look current.
        module.write_text(saying("You are two."))
        await control(fleet, "one", "reload")
        second = one(fleet).pid
        assert instruction(fleet) == "You are two."
        assert second not in (None, first)
        assert "turn 2: again" in await ask(caller, "again", conversation_id="c")
        module.write_text("import ctypes\nctypes.string_at(0)\n")
        await control(fleet, "one", "reload")
        assert (one(fleet).state, one(fleet).pid) == (AgentState.READY, second)
        assert "turn 3: still" in await ask(caller, "still", conversation_id="c")
        await control(fleet, "one", "rollback")
        assert (instruction(fleet), one(fleet).pid) == ("You are one.", first)
        assert "turn 4: back" in await ask(caller, "back", conversation_id="c")
        assert await until(lambda: processes() == {first, second})
    assert processes() == set()


@pytest.mark.slow
async def test_no_call_fails_while_it_is_reloaded(tmp_path: Path) -> None:
    root = project(tmp_path)
    async with running(root) as fleet:
        over, turns = asyncio.Event(), dict.fromkeys(ERAS, 0)

        async def calling(era: str) -> None:
            async with client(fleet, "one", era=era) as caller:
                while not over.is_set():
                    said = await ask(caller, "on", conversation_id=f"c-{era}")
                    turns[era] += 1
                    assert f"turn {turns[era]}: on" in said

        callers = [asyncio.create_task(calling(era)) for era in ERAS]
        for number in range(3):
            (root / "agents" / "one.py").write_text(saying(f"You are {number}."))
            await control(fleet, "one", "reload")
            assert instruction(fleet) == f"You are {number}."
            before = dict(turns)
            await until(lambda before=before: all(turns[era] > before[era] for era in ERAS))
        over.set()
        await asyncio.gather(*callers)
        assert min(turns.values()) >= 3


@pytest.mark.slow
async def test_a_conversation_goes_on_when_its_agent_moves_out_and_in_again(tmp_path: Path) -> None:
    root = project(tmp_path)
    async with running(root) as fleet, client(fleet, "one") as caller:
        await ask(caller, "use the tool", conversation_id="c")
        topology = yaml.safe_load((root / "agents.yaml").read_text("utf-8"))
        for turn, isolation in enumerate(("none", "process", "none"), 2):
            topology["agents"]["one"]["isolation"] = isolation
            (root / "agents.yaml").write_text(yaml.safe_dump(topology, sort_keys=False), "utf-8")
            await control(fleet, "one", "reload")
            assert one(fleet).isolation == isolation
            assert (one(fleet).pid is None) == (isolation == "none")
            assert f"turn {turn}: on" in await ask(caller, "on", conversation_id="c")
            messages = model_record(fleet).requests[-1]["messages"]
            assert messages[2]["tool_calls"][0]["function"]["name"] == "echo__echo"
            assert messages[3]["role"] == "tool"
