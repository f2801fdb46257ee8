"""Each key of an agent, changed while its fleet runs: what callers and the fleet's status see afterwards."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
import pytest_asyncio
from support.granted import TOKENS, auth
from support.live import ECHO, agent_module, all_ready, ask, client, running, write_project
from support.reloading import Saves
from support.remotes import other
from support.served import fault_in
from support.waiting import until

from pallas.config import AgentConfig
from pallas.config.change_effects import effects_of
from pallas.model import AgentSnapshot, AgentState

pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]
TESTS = Path(__file__).parents[1]

ANSWERS = """
import asyncio

async def one(request):
    return "one"

async def two(request):
    return "two"

async def three(request):
    return "three"

async def slow(request):
    await asyncio.sleep(3600)
"""
WORKER = """
import json, os, sys

for line in sys.stdin:
    asked = json.loads(line)
    text = os.environ.get("GREETING", "none")
    result = {"sessionId": "s", "text": text, "stopReason": "end_turn"}
    print(json.dumps({"jsonrpc": "2.0", "id": asked.get("id"), "result": result}), flush=True)
"""

COVERED = {
    "definition": "integration/test_catalog_live.py",
    "instance_scope": (
        "integration/test_hot_reload_settings.py::"
        "test_the_history_prompt_goes_and_comes_with_the_scope_of_instances"
    ),
    "isolation": (
        "integration/test_hot_reload_process.py::test_an_agent_in_its_own_process_is_reloaded_kept_and_moved_out_and_in"
    ),
    "kind": "integration/test_hot_reload_kinds.py::test_an_agent_may_become_another_kind",
    "peers": "integration/test_peer_tools_reload.py",
    "port": (
        "integration/test_hot_reload_agents.py::test_a_port_that_moves_answers_at_the_new_one_before_the_old_one_closes"
    ),
    "shadows": "integration/test_catalog_reload.py",
}
"""Fields that a test of their own changes in a live fleet."""


@dataclass(frozen=True)
class Case:
    """A key of one agent of the fleet, changed, and what is seen afterwards: ``after``, or anything new."""

    agent: str
    change: dict[str, Any]
    seen: Callable[[Saves], Awaitable[Any]]
    after: Any


NEWER = object()
PAIR = f"""{agent_module("first")}

@fast.agent(name="second", instruction="You are second.")
async def second() -> None: ...
"""
TOLD = "***CALL_TOOL greeting {}"
GREETS = f'''
import os


async def greeting() -> str:
    """What the environment says."""
    return os.environ.get("GREETING", "none")

{agent_module("apart", function_tools="KEEP").replace("'KEEP'", "[greeting]")}
'''


def snapshot(saves: Saves, agent: str) -> AgentSnapshot:
    """The agent in the fleet's status."""
    found = saves.fleet.snapshot().agent(agent)
    assert found is not None
    return found


def status(agent: str, key: str) -> Callable[[Saves], Awaitable[Any]]:
    """Sees one value of the agent in the fleet's status."""

    async def seen(saves: Saves) -> Any:
        return getattr(snapshot(saves, agent), key)

    return seen


def version(agent: str) -> Callable[[Saves], Awaitable[int]]:
    """Sees which version answers."""

    async def seen(saves: Saves) -> int:
        return snapshot(saves, agent).version

    return seen


def answers(agent: str, message: str = "hello") -> Callable[[Saves], Awaitable[str]]:
    """Sees what the agent answers over MCP."""

    async def seen(saves: Saves) -> str:
        async with client(saves.fleet, agent) as connected:
            return await ask(connected, message)

    return seen


def failure(agent: str) -> Callable[[Saves], Awaitable[str]]:
    """Sees the first words of the error that a call ends in; a call that does not end is cancelled."""

    async def seen(saves: Saves) -> str:
        async with client(saves.fleet, agent) as connected:
            result = await connected.call_tool("send_message", {"message": "hello"})
        return str(fault_in(result)["error"]).partition(" and ")[0]

    return seen


def instruction(agent: str) -> Callable[[Saves], Awaitable[str]]:
    """Sees what the version that answers is instructed with."""

    async def seen(saves: Saves) -> str:
        return saves.instruction(agent)

    return seen


async def rest(saves: Saves, path: str, body: Any = None) -> Any:
    """What the port of the registry answers."""
    headers = {"authorization": f"Bearer {TOKENS['ada']}"}
    origin = saves.fleet.ports.origin
    async with httpx2.AsyncClient(base_url=origin, headers=headers, trust_env=False, timeout=60) as http:
        found = await (http.post(path, json=body) if body else http.get(path))
    assert found.status_code == 200, found.text
    return found.json()


def published(agent: str, key: str) -> Callable[[Saves], Awaitable[Any]]:
    """Sees what the registry shows of the agent."""

    async def seen(saves: Saves) -> Any:
        servers = [each["server"] for each in (await rest(saves, "/v0.1/servers"))["servers"]]
        (found,) = [each for each in servers if each["name"].endswith(f"/{agent}")]
        return found.get(key)

    return seen


def resource(agent: str, key: str) -> Callable[[Saves], Awaitable[Any]]:
    """Sees what the REST API shows of the agent."""

    async def seen(saves: Saves) -> Any:
        return (await rest(saves, f"/api/v1/agents/{agent}")).get(key)

    return seen


async def vision(saves: Saves) -> bool | None:
    """Sees whether the registry says that the agent's model takes images."""
    return (await published("plain", "capabilities")(saves) or {}).get("vision")


async def unauthorised(saves: Saves) -> bool:
    """Sees whether a caller without a token is refused."""
    url = snapshot(saves, "guarded").url
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        return (await http.post(url, json={})).status_code == 401


async def allowed(saves: Saves) -> list[float]:
    """Sees the limits of a run."""
    run = (await rest(saves, "/api/v1/agents/plain/chat", {"message": "hello"}))["runId"]
    return [each["allowed"] for each in (await rest(saves, f"/api/v1/runs/{run}"))["limits"]]


async def policy(saves: Saves) -> str:
    """Sees what becomes of a call whose answer was lost."""
    agent = next(each for each in saves.fleet.agents if each.name == "plain")
    return agent.unfinished.policy("echo__echo", server="echo")


async def after_a_crash(saves: Saves) -> str:
    """Sees what becomes of a worker that crashed."""
    agent = next(each for each in saves.fleet.agents if each.name == "crashing")
    if agent.state is not AgentState.READY:
        await agent.start()
    assert agent.executor is not None and agent.executor.pid is not None
    psutil.Process(agent.executor.pid).kill()
    await until(lambda: agent.state in (AgentState.BACKOFF, AgentState.ERROR))
    return agent.state.value


MODELS = [{"id": "a", "models": ["passthrough"]}, {"id": "b", "models": ["playback"]}]
THIRD = {"id": "c", "models": ["passthrough"]}
CASES = {
    "title": Case("hand", {"title": "Hands"}, published("hand", "title"), "Hands"),
    "description": Case("hand", {"description": "Counts"}, resource("hand", "description"), "Counts"),
    "agent": Case("pair", {"agent": "second"}, instruction("pair"), "You are second."),
    "card": Case("carded", {"card": "cards/two.md"}, instruction("carded"), "You are two."),
    "module": Case("other", {"module": "agents.another"}, instruction("other"), "You are another."),
    "params": Case("plain", {"params": {"max_tokens": 77}}, resource("plain", "defaultParams"), NEWER),
    "needs": Case("hand", {"depends_on": ["work"]}, status("hand", "depends_on"), ("work",)),
    "icons": Case("work", {"icons": "picture.png"}, published("work", "icons"), NEWER),
    "max_instances": Case("plain", {"max_instances": 3}, version("plain"), NEWER),
    "max_iterations": Case("plain", {"max_iterations": 3}, version("plain"), NEWER),
    "loop_repeat_threshold": Case("plain", {"loop_repeat_threshold": 5}, version("plain"), NEWER),
    "start_timeout": Case("plain", {"start_timeout": 50}, version("plain"), NEWER),
    "run_timeout of a remote agent": Case("far", {"run_timeout": 3600}, version("far"), NEWER),
    "run_timeout": Case("slow", {"run_timeout": 1}, failure("slow"), "the run took longer than 1 s"),
    "restart": Case("crashing", {"restart": "never"}, after_a_crash, "error"),
    "unfinished_calls": Case("plain", {"unfinished_calls": {"echo__*": "repeat"}}, policy, "repeat"),
    "tools": Case("plain", {"tools": {"deny": ["echo__*"]}}, resource("plain", "toolRules"), NEWER),
    "env": Case("apart", {"env": {"GREETING": "servus"}}, answers("apart", TOLD), f"{TOLD}\n\nservus"),
    "auth": Case("guarded", {"auth": "off"}, unauthorised, False),
    "model_capabilities": Case("plain", {"model_capabilities": {"vision": True}}, vision, True),
    "capabilities": Case("hand", {"capabilities": ["sums"]}, resource("hand", "capabilities"), ["sums"]),
    "examples": Case(
        "third", {"examples": ["Count the apples."]}, answers("sorting", "Count the apples."), "three"
    ),
    "worker": Case("work", {"env": {"GREETING": "servus"}}, answers("work"), "servus"),
    "remote": Case("far", {"headers": {"x-team": "blue"}}, version("far"), NEWER),
    "handler": Case("hand", {"handler": "answers:two"}, answers("hand"), "two"),
    "router": Case("front", {"agents": ["third"], "fallback": "third"}, answers("front"), "three"),
    "providers": Case(
        "choosing",
        {"providers": [*MODELS, THIRD]},
        version("choosing"),
        NEWER,
    ),
    "default_provider": Case("choosing", {"default_provider": "b"}, answers("choosing"), NEWER),
    "required": Case("plain", {"servers": {"echo": {"required": True}}}, version("plain"), NEWER),
    "limits": Case("plain", {"limits": {"per_run": {"steps": 7}}}, allowed, [7]),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def saves(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Saves]:
    root = tmp_path_factory.mktemp("fields")
    program = {"kind": "worker", "command": [sys.executable, "worker.py"], "dialect": "ndjson"}
    async with other() as there:
        keys: dict[str, dict[str, Any]] = {
            "hand": {"kind": "handler", "handler": "answers:one"},
            "slow": {"kind": "handler", "handler": "answers:slow"},
            "work": program,
            "crashing": {**program, "restart": {"backoff": 60}},
            "far": {"kind": "remote", "url": there.url},
            "front": {"kind": "router", "agents": ["hand"], "fallback": "hand"},
            "sorting": {"kind": "router", "agents": ["hand", "third"], "fallback": "hand"},
            "guarded": {"kind": "handler", "handler": "answers:one"},
            "third": {"kind": "handler", "handler": "answers:three"},
        }
        modules = ("plain", "other", "choosing", "apart")
        entries = {name: {"module": None, **entry, "auth": "off"} for name, entry in keys.items()}
        entries |= {name: {"auth": "off"} for name in modules}
        del entries["guarded"]["auth"]
        entries["choosing"]["providers"] = MODELS
        entries["apart"]["isolation"] = "process"
        entries["pair"] = {"auth": "off"}
        entries["carded"] = {"auth": "off", "module": None, "card": "cards/one.md"}
        write_project(
            root,
            {
                **dict.fromkeys(keys),
                **{name: agent_module(name, ("echo",)) for name in modules},
                "apart": GREETS,
                "pair": PAIR,
                "carded": None,
            },
            keys=entries,
            top={"auth": auth()},
            config=dict(ECHO),
            files={
                "answers.py": ANSWERS,
                "worker.py": WORKER,
                "picture.png": "x",
                "cards/one.md": "---\nname: carded\n---\nYou are one.\n",
                "cards/two.md": "---\nname: carded\n---\nYou are two.\n",
                "agents/another.py": agent_module("another"),
            },
        )
        async with running(root, watch=True, database="memory") as fleet:
            await until(lambda: all_ready(fleet))
            yield Saves(fleet, root)


@pytest.mark.parametrize("field", CASES)
async def test_a_changed_key_takes_effect_in_a_fleet_that_runs(saves: Saves, field: str) -> None:
    case = CASES[field]
    before = None if field == "run_timeout" else await case.seen(saves)  # it would not end
    mark = saves.fleet.hub.seq
    saves.edit("agents.yaml", lambda content: content["agents"][case.agent].update(case.change))
    await until(lambda: any(each.seq > mark for each in saves.told()))
    await until(lambda: not saves.busy())
    after = await case.seen(saves)
    assert after != before
    assert case.after in (NEWER, after)


async def test_there_is_a_case_for_every_field() -> None:
    fields = {name for name, effect in effects_of(AgentConfig).items() if effect.word != "none"}
    assert fields == {each.partition(" ")[0] for each in CASES} | COVERED.keys()
    for proof in COVERED.values():
        path, _, test = proof.partition("::")
        assert test in (TESTS / path).read_text("utf-8")
