"""Agents of kind ``worker`` in a fleet: asked over MCP, cancelled, killed and started again."""

import asyncio
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.asked import accepting, asked_client, url_of
from support.clocks import expire
from support.live import MODERN_FIRST, ask, client, module_fleet, running, write_project
from support.offline import offline_project
from support.processes import gone
from support.waiting import poll, until
from support.workers import ACP, SIMPLE

from pallas.executors import Executor
from pallas.executors.worker.worker_executor import WorkerExecutor
from pallas.fleet.fleet import Fleet
from pallas.model import (
    ANONYMOUS,
    AgentState,
    Event,
    Fault,
    FaultType,
    Notice,
    Principal,
    RunFinished,
    TextDelta,
    ToolEvent,
)

SCRIPT = """
rules:
  - when: {last: user, text: use the tool}
    call: [{tool: echo__echo, arguments: {text: "hi"}}]
  - when: {last: user, text: count}
    say: "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    pace: 1.0
  - when: {last: user}
    say: "turn {{ turns }}: {{ last }}"
  - when: {last: tool}
    say: "tool said {{ result }}"
"""

pytestmark = pytest.mark.asyncio(loop_scope="module")
both_eras = pytest.mark.parametrize("era", MODERN_FIRST)


@module_fleet()
def fleet(folder: Path) -> Path:
    plain = {"module": None, "kind": "worker"}
    simple = {
        **plain,
        "command": ["python", str(SIMPLE)],
        "env": {"PYTHONUNBUFFERED": "1", "GREETING": "servus"},
        "restart": {"backoff": 0.05, "backoff_max": 0.1},
    }
    keys: dict[str, dict[str, Any]] = {
        "simple": simple,
        "crashing": simple,
        "real": {
            **plain,
            "command": [
                "fast-agent-acp",
                "--servers",
                "echo",
                "--no-permissions",
                "--model",
                "generic.scripted",
            ],
            "cwd": ".",
            "permissions": "allow",
        },
    }
    asking = {**plain, "command": ["python", str(ACP)]}
    keys |= {"asking": asking, "trusted": {**asking, "permissions": "allow"}}
    keys |= {"refusing": {**asking, "permissions": "reject"}}
    return offline_project(folder, dict.fromkeys(keys), SCRIPT, keys=keys)


@pytest.mark.slow
@both_eras
async def test_a_fleet_serves_workers_of_both_dialects(fleet: Fleet, era: str) -> None:
    # DR-28 DR-30 X20
    seen = fleet.hub.seq
    async with client(fleet, "simple", era=era) as simple, client(fleet, "real", era=era) as real:
        assert await ask(simple, "hello") == "1:hello"
        assert await ask(simple, "env GREETING") == "servus"
        assert await ask(real, "hello") == "turn 1: hello"
        assert "echo:hi" in await ask(real, "use the tool")
    events = fleet.hub.since(seen, 10_000).events
    tools = [(event.server, event.tool, event.phase) for event in events if isinstance(event, ToolEvent)]
    assert ("echo", "echo", "started") in tools
    assert ("echo", "echo", "completed") in tools
    steps = [
        await fleet.kernel.step_reader.get(each.run_id, 1) for each in events if isinstance(each, RunFinished)
    ]
    (call,) = [each for each in steps if each is not None]
    assert (call.step.kind, call.step.name, call.step.state) == ("tool", "echo__echo", "done")
    assert json.loads(call.request)["arguments"] == {"text": "hi"}
    assert "echo:hi" in call.response
    texts = "".join(each.text for each in events if isinstance(each, TextDelta) and each.agent == "real")
    assert "turn 1: hello" in texts


@both_eras
async def test_what_a_worker_asks_leave_for_is_refused_unless_its_entry_allows_it(
    fleet: Fleet, era: str
) -> None:
    # DR-30
    chosen, cancelled = '{{"optionId":"{}","outcome":"selected"}}', '{"outcome":"cancelled"}'
    seen = fleet.hub.seq
    async with client(fleet, "refusing", era=era) as refusing, client(fleet, "trusted", era=era) as trusted:
        assert await ask(refusing, "permit") == chosen.format("no")
        assert await ask(refusing, "permit allow_always reject_always") == chosen.format("reject_always")
        assert await ask(refusing, "permit allow_once allow_always") == cancelled
        assert await ask(trusted, "permit") == chosen.format("yes")
        assert await ask(trusted, "permit reject_once reject_always") == cancelled
    notices = [each for each in fleet.hub.since(seen, 10_000).events if isinstance(each, Notice)]
    told = [each.agent for each in notices if "asked for permission for" in each.text]
    assert told == ["refusing"] * 3


@both_eras
async def test_what_a_worker_asks_leave_for_a_person_allows_or_refuses(fleet: Fleet, era: str) -> None:
    chosen, seen = '{{"optionId":"{}","outcome":"selected"}}', list[Any]()
    decisions = ["allow once", "refuse", "nonsense", "allow once"]

    async def decide(params: Any) -> Any:
        seen.append(params)
        return accepting({"decision": decisions.pop(0)})

    async with asked_client(url_of(fleet, "asking"), era, decide) as asking:
        assert await ask(asking, "permit") == chosen.format("yes")
        assert await ask(asking, "permit") == chosen.format("no")
        assert await ask(asking, "permit") == chosen.format("no")
        # Once is not always.
        assert await ask(asking, "permit allow_always reject_once") == chosen.format("no")
    assert "asking wants to call worker__Delete" in seen[0].message
    assert "\x1b" not in seen[0].message
    assert seen[0].requested_schema["properties"]["decision"]["enum"] == ["allow once", "refuse"]


@both_eras
async def test_a_turn_that_is_cancelled_withdraws_what_its_worker_asks(fleet: Fleet, era: str) -> None:
    async with client(fleet, "asking", era=era) as asking:
        call = asyncio.create_task(ask(asking, "permit"))
        (question,) = await until(lambda: fleet.kernel.questions.open_here)
        call.cancel()
        await asyncio.wait({call})
        await poll(
            lambda: fleet.kernel.questions.get(question.id, Principal()),
            lambda found: found.state == "withdrawn",
        )


async def test_a_conversation_goes_on_with_a_worker_that_was_killed(fleet: Fleet) -> None:
    # DR-17 DR-29
    agent = next(each for each in fleet.agents if each.name == "simple")
    async with client(fleet, "simple") as simple:
        assert await ask(simple, "one", conversation_id="mine") == "1:one"
        assert await ask(simple, "two", conversation_id="mine") == "2:two"
        held = asyncio.create_task(simple.call_tool("send_message", {"message": "hold"}))
        assert agent.executor is not None
        await until(lambda: _worker(agent.executor).running_calls)
        pid = agent.executor.pid
        assert pid is not None
        psutil.Process(pid).kill()
        body = json.loads("".join(getattr(block, "text", "") for block in (await held).content))
        assert body["data"]["type"] == "TRANSPORT"
        assert body["data"]["retryable"]
        assert "its worker ended by SIGKILL" in body["error"]
        await until(lambda: gone(pid) and agent.state is AgentState.READY)
        three = await ask(simple, "three", conversation_id="mine")
        assert three.startswith("1:[Conversation so far: 4 messages, one JSON object per line]")
        assert three.endswith("three")


async def test_a_leased_worker_says_that_it_is_busy_and_lets_itself_be_cancelled(fleet: Fleet) -> None:
    # DR-11 DR-15 DR-16 X19
    sessions = fleet.surfaces.sessions
    session = (await sessions.create("simple", ANONYMOUS)).id
    first = asyncio.create_task(sessions.prompt(session, "hold", ANONYMOUS))
    agent = next(each for each in fleet.agents if each.name == "simple")
    await until(lambda: _worker(agent.executor).running_calls)
    with pytest.raises(Fault) as caught:
        await sessions.prompt(session, "me too", ANONYMOUS)
    assert caught.value.message == f"Session {session} is busy — concurrent prompts not allowed"
    assert not first.done()
    assert await sessions.cancel(session, ANONYMOUS)
    with suppress(Fault):
        await first
    assert (await sessions.prompt(session, "and now", ANONYMOUS)).text.endswith("and now")
    late = asyncio.create_task(sessions.prompt(session, "hold", ANONYMOUS, timeout=600))
    await until(lambda: _worker(agent.executor).running_calls)
    expire(fleet.kernel.in_flight)
    with pytest.raises(Fault) as caught:
        await late
    assert caught.value.type is FaultType.TIMEOUT
    heard = (await sessions.delegate("heard", ANONYMOUS, agent="simple")).result
    assert heard is not None
    assert heard.text.count("session/cancel:") >= 2
    await sessions.close(session, ANONYMOUS)


async def test_the_real_one_streams_and_lets_itself_be_cancelled(fleet: Fleet) -> None:
    # DR-16 DR-30
    sessions, events = fleet.surfaces.sessions, list[Event]()
    session = (await sessions.create("real", ANONYMOUS)).id
    assert (await sessions.prompt(session, "hello", ANONYMOUS)).text == "turn 1: hello"
    run = asyncio.create_task(sessions.prompt(session, "count", ANONYMOUS, listener=events.append))
    await until(lambda: any(isinstance(event, TextDelta) for event in events))
    assert await sessions.cancel(session, ANONYMOUS)
    with suppress(Fault):
        await run
    agent = next(each for each in fleet.agents if each.name == "real")
    await until(lambda: not _worker(agent.executor).running_calls)
    assert "fifteen" not in "".join(event.text for event in events if isinstance(event, TextDelta))
    answer = (await sessions.prompt(session, "and now", ANONYMOUS)).text
    assert answer.endswith(": and now")
    assert "Conversation so far" not in answer  # the same session goes on
    await sessions.close(session, ANONYMOUS)


@pytest.mark.slow
async def test_a_worker_that_crashes_again_and_again_is_unavailable_and_nobody_answers_for_it(
    fleet: Fleet,
) -> None:
    # DR-17 DR-29
    agent = next(each for each in fleet.agents if each.name == "crashing")
    session = (await fleet.surfaces.sessions.create("crashing", ANONYMOUS)).id
    assert agent.config.restart.crashes == 6  # five restarts, and no more
    assert agent.config.restart.within == 60.0
    async with client(fleet, "crashing") as crashing:
        while agent.state is not AgentState.CRASH_LOOP:
            if agent.state is AgentState.READY:
                result = await crashing.call_tool("send_message", {"message": "crash"})
                assert result.is_error
            await until(lambda: agent.state in (AgentState.READY, AgentState.CRASH_LOOP))
        assert "exit status 3" in agent.reason
        assert agent.snapshot().availability == "unavailable"
        with pytest.raises(Fault):
            await fleet.surfaces.sessions.prompt(session, "hello", ANONYMOUS)
    async with client(fleet, "real") as real:
        assert await ask(real, "hello") == "turn 1: hello"


@pytest.mark.slow
async def test_the_worker_of_the_documentation_answers_and_is_exchanged_when_it_is_saved(
    tmp_path: Path,
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "agent-kinds.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    keys = {"coder": {"module": None, "kind": "worker", "command": ["python", "worker.py"]}}
    write_project(tmp_path, {"coder": None}, keys=keys, files={"worker.py": example})
    async with running(tmp_path, watch=True) as fleet, client(fleet, "coder") as coder:
        agent = fleet.agents[0]
        assert agent.snapshot().kind == "worker"
        assert agent.executor is not None
        assert "worker.py" in agent.executor.info.files
        assert await ask(coder, "one", conversation_id="mine") == "That was message 1."
        assert await ask(coder, "two", conversation_id="mine") == "That was message 2."
        before = agent.executor.pid
        (tmp_path / "worker.py").write_text(example.replace("That was", "This is"), "utf-8")
        await until(lambda: agent.executor is not None and agent.executor.pid not in (None, before))
        assert await ask(coder, "three", conversation_id="mine") == "This is message 1."


def _worker(executor: Executor | None) -> "_Peek":
    assert isinstance(executor, WorkerExecutor)
    return _Peek(executor)


@dataclass
class _Peek:
    """What a worker is doing."""

    executor: WorkerExecutor

    @property
    def running_calls(self) -> int:
        connection = self.executor._connection
        return len(connection.outputs) if connection is not None else 0
