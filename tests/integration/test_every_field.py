"""Each key of agents.yaml, changed while its fleet runs: what callers and its status see afterwards."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
import pytest_asyncio
from support.granted import TOKENS, auth
from support.live import (
    ECHO,
    ERAS,
    IN_A_FILE,
    agent_module,
    all_ready,
    ask,
    client,
    running,
    tool_call,
    write_project,
)
from support.offline import offline_model
from support.ports import free_ports
from support.reloading import Saves
from support.remotes import Other, other
from support.served import fault_in, text_of
from support.virtual import virtual
from support.waiting import until

from pallas.config import AgentConfig, Project
from pallas.config.change_effects import effects_of
from pallas.model import AgentSnapshot, AgentState
from pallas.surfaces.auth.static_tokens import sha256_of

pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]
TESTS = Path(__file__).parents[1]

ANSWERS = """
import asyncio
from dataclasses import dataclass

from pallas.contract import HandlerResponse, Text

@dataclass
class Note:
    text: str

async def noted(payload, metadata):
    return HandlerResponse.respond(Text(str(len(payload.text))))

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


COVERED_OF_PROJECT = {
    "drain": "integration/test_drain.py::test_how_it_drains_is_what_the_files_said_last",
    "drain_timeout": "integration/test_drain.py::test_how_it_drains_is_what_the_files_said_last",
    "agents": (
        "integration/test_hot_reload_agents.py::test_an_agent_that_is_added_answers_and_one_that_is_removed_is_gone"
    ),
    "downstreams": "integration/test_hot_reload.py::test_a_downstream_concerns_the_agents_that_declare_it",
    "llm": "integration/test_llm_fleet.py",
    "log_level": "integration/test_hot_reload_settings.py::test_the_level_of_the_log_is_another_one_at_once",
    "prices": "integration/test_prices_reload.py::test_a_question_costs_what_the_file_says_when_it_is_asked",
    "verdict": "integration/test_verdict_hold.py::test_the_gate_opens_and_closes_with_a_save",
    "servers": (
        "integration/test_hot_reload_mending.py::"
        "test_programs_that_are_down_start_again_when_their_file_or_entry_is_saved"
    ),
    "settings": (
        "integration/test_hot_reload_settings.py::"
        "test_a_providers_block_concerns_exactly_the_agents_that_ask_it"
    ),
}
"""Fields of the project that a test of their own changes in a live fleet."""

NO_CASE = {
    "registry_port": "is not read where the project has one ``port``, as here; test_hot_reload.py changes it",
    "tls": "comes from the environment of the process, which no saved file changes",
}
"""Fields of the project without a case, and why."""


@dataclass(frozen=True)
class Case:
    """A key of one agent, or of the project where that is empty, changed, and what is seen afterwards.

    That is ``after``, or anything new. Without ``before`` it is not looked at before the change, since a call
    would not end.
    """

    agent: str
    change: dict[str, Any]
    seen: Callable[[Saves], Awaitable[Any]]
    after: Any
    before: bool = True


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

HOLDS = """
import asyncio
from pathlib import Path

from fast_agent import FastAgent

fast = FastAgent("few")
here = Path("HERE")


async def hold() -> str:
    with (here / "entered").open("a") as file:
        file.write("x")
    while not (here / "gate").exists():
        await asyncio.sleep(0.01)
    return "held"


@fast.agent(name="few", instruction="You are few.", function_tools=[hold])
async def few() -> None: ...
"""
LOOPS = """
from itertools import count

from fast_agent import FastAgent

fast = FastAgent("NAME")
numbers = count(1)


async def same() -> str:
    return "nothing found"


async def other() -> str:
    return f"number {next(numbers)}"


@fast.agent(name="NAME", instruction="You loop.", model="generic.scripted", function_tools=[same, other])
async def main() -> None: ...
"""
SCRIPT = """
rules:
  - when: {user: repeat}
    call: [{tool: same, arguments: {}}]
  - when: {user: endless}
    call: [{tool: other, arguments: {}}]
"""
STUCK = """
import time
from pathlib import Path

while not (Path("HERE") / "imported").exists():
    time.sleep(0.01)
"""
THERE: list[Other] = []
"""What the remote agent is."""


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


def answers(agent: str, message: str = "hello") -> Callable[[Saves], Awaitable[str]]:
    """Sees what the agent answers over MCP."""

    async def seen(saves: Saves) -> str:
        async with client(saves.fleet, agent) as connected:
            return await ask(connected, message)

    return seen


def failure(agent: str, message: str = "hello") -> Callable[[Saves], Awaitable[str]]:
    """Sees the first words of the error that a call ends in; a call that does not end is cancelled."""

    async def seen(saves: Saves) -> str:
        async with client(saves.fleet, agent) as connected:
            result = await connected.call_tool("send_message", {"message": message})
        if not result.is_error:
            return text_of(result)
        return re.split(";| and ", str(fault_in(result)["error"]))[0]

    return seen


def says(agent: str, message: str, words: str) -> Callable[[Saves], Awaitable[bool]]:
    """Sees whether the agent's answer contains ``words``."""

    async def seen(saves: Saves) -> bool:
        return words in await answers(agent, message)(saves)

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


def allowed(agent: str) -> Callable[[Saves], Awaitable[list[float]]]:
    """Sees the limits of a run."""

    async def seen(saves: Saves) -> list[float]:
        run = (await rest(saves, f"/api/v1/agents/{agent}/chat", {"message": "hello"}))["runId"]
        return [each["allowed"] for each in (await rest(saves, f"/api/v1/runs/{run}"))["limits"]]

    return seen


async def policy(saves: Saves) -> str:
    """Sees what becomes of a call whose answer was lost."""
    agent = next(each for each in saves.fleet.agents if each.name == "plain")
    return agent.unfinished.policy("echo__echo", server="echo")


async def at_once(saves: Saves) -> int:
    """Sees how many of two runs are in the agent's code at a time."""
    gate, entered = saves.root / "gate", saves.root / "entered"
    gate.unlink(missing_ok=True)
    entered.write_text("")

    def settled() -> int:
        inside = len(entered.read_text())
        return inside if inside + snapshot(saves, "few").runs_waiting == 2 else 0

    async with client(saves.fleet, "few") as connected:
        calls = [asyncio.create_task(ask(connected, tool_call("hold"))) for _ in range(2)]
        try:
            return await until(settled)
        finally:
            gate.touch()
            await asyncio.gather(*calls)


async def not_ready(saves: Saves) -> str:
    """Sees why the last version of an agent was not taken."""
    try:
        told = await until(lambda: [each for each in saves.told() if each.agent == "late"])
        return told[-1].error.partition(" s")[0]
    finally:
        (saves.root / "imported").touch()


async def team(saves: Saves) -> str:
    """Sees what a header says that the remote agent gets."""
    async with client(saves.fleet, "far") as connected:
        await ask(connected, "hello")
    return THERE[-1].teams[-1]


async def offered(saves: Saves) -> list[str]:
    """Sees the providers among which callers may choose."""
    async with virtual(saves.fleet, "/mcp", era=ERAS[0], bearer=TOKENS["ada"]) as bridge:
        found = (await bridge.call_tool("agents_discover", {})).structured_content or {}
        (each,) = [each for each in found["agents"] if each["id"] == "choosing"]
        known = [provider["id"] for provider in each["providers"]]
        made = await bridge.call_tool(
            "sessions_create", {"agentId": "choosing", "metadata": {"provider": known[-1]}}
        )
        session = (made.structured_content or {})["sessionId"]
        said = await bridge.call_tool("sessions_prompt", {"sessionId": session, "prompt": "hello"})
        await bridge.call_tool("sessions_close", {"sessionId": session})
    return [*known, text_of(said) and (said.structured_content or {})["text"]]


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
    "max_instances": Case("few", {"max_instances": 2}, at_once, 2),
    "max_iterations": Case(
        "endless", {"max_iterations": 2}, says("endless", "endless", "the agent took 2 steps"), True
    ),
    "loop_repeat_threshold": Case(
        "repeating",
        {"loop_repeat_threshold": 5},
        says("repeating", "repeat", "same was called 5 times"),
        True,
    ),
    "start_timeout": Case(
        "late", {"start_timeout": 1, "module": "agents.stuck"}, not_ready, "it was not ready within 1", False
    ),
    "run_timeout of a remote agent": Case(
        "far", {"run_timeout": 1}, failure("far", "wait"), "the run took longer than 1 s", False
    ),
    "run_timeout": Case("slow", {"run_timeout": 1}, failure("slow"), "the run took longer than 1 s", False),
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
    "remote": Case("far", {"headers": {"x-team": "blue"}}, team, "blue"),
    "handler": Case("hand", {"handler": "answers:two"}, answers("hand"), "two"),
    "router": Case("front", {"agents": ["third"], "fallback": "third"}, answers("front"), "three"),
    "providers": Case("choosing", {"providers": [*MODELS, THIRD]}, offered, ["a", "b", "c", "hello"]),
    "default_provider": Case("choosing", {"default_provider": "b"}, answers("choosing"), NEWER),
    "required": Case(
        "needing",
        {"servers": {"gone": {"required": True}}},
        failure("needing"),
        "downstream gone cannot be reached",
    ),
    "limits": Case("plain", {"limits": {"per_run": {"steps": 7}}}, allowed("plain"), [7]),
}


LONG = "x" * 2_000


async def status_of(saves: Saves, path: str, **headers: str) -> int:
    """The status of a page at the project's port, without a token."""
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        return (await http.get(f"{saves.fleet.ports.origin}{path}", headers=headers)).status_code


def page(path: str, **headers: str) -> Callable[[Saves], Awaitable[int]]:
    """Sees the status of a page."""

    async def seen(saves: Saves) -> int:
        return await status_of(saves, path, **headers)

    return seen


async def name(saves: Saves) -> str:
    """Sees what the fleet is called in its status."""
    return saves.fleet.snapshot().name


async def remotes(saves: Saves) -> str:
    """Sees where the registry sends callers of an agent."""
    return (await published("hand", "remotes")(saves))[0]["url"].partition("/agents")[0]


async def trusted(saves: Saves) -> str:
    """Sees what becomes of a lost call of a tool that its server calls safe."""
    agent = next(each for each in saves.fleet.agents if each.name == "other")
    return agent.unfinished.policy("echo__look", server="echo", is_safe=True)


async def project_policy(saves: Saves) -> str:
    """Sees what becomes of a call whose answer was lost."""
    agent = next(each for each in saves.fleet.agents if each.name == "other")
    return agent.unfinished.policy("echo__boom", server="echo")


async def second_session(saves: Saves) -> str:
    """Sees what opening a second session leads to."""
    async with virtual(saves.fleet, "/mcp", era=ERAS[0], bearer=TOKENS["ada"]) as bridge:
        made = [await bridge.call_tool("sessions_create", {"agentId": "hand"}) for _ in range(2)]
        for each in made:
            if not each.is_error:
                session = (each.structured_content or {})["sessionId"]
                await bridge.call_tool("sessions_close", {"sessionId": session})
    return str(fault_in(made[1])["error"]) if made[1].is_error else ""


async def has_task_tools(saves: Saves) -> bool:
    """Sees whether the bridge has tools for tasks, for a client that does not know the extension."""
    async with virtual(saves.fleet, "/mcp", era=ERAS[1], bearer=TOKENS["ada"]) as bridge:
        return any(each.name == "tasks_status" for each in (await bridge.list_tools()).tools)


async def default_agent(saves: Saves) -> str:
    """Sees which agent a session without one is opened with."""
    async with virtual(saves.fleet, "/mcp", era=ERAS[0], bearer=TOKENS["ada"]) as bridge:
        made = (await bridge.call_tool("sessions_create", {})).structured_content or {}
        await bridge.call_tool("sessions_close", {"sessionId": made["sessionId"]})
    return str(made["agentId"])


NEW_TOKEN = "pal_" + "N" * 43
NEW_TOKENS = {**auth()["tokens"], "new": {"sha256": sha256_of(NEW_TOKEN)}}
PROJECT_CASES = {
    "name": Case("", {"name": "renamed"}, name, "renamed"),
    "version": Case("", {"version": "2.3.4"}, published("hand", "version"), "2.3.4"),
    "host": Case("", {"host": "127.0.0.1"}, remotes, NEWER),
    "namespace": Case("", {"namespace": "org.example"}, published("hand", "name"), "org.example/hand"),
    "public_url": Case("", {"public_url": "https://fleet.example"}, remotes, "https://fleet.example"),
    "unfinished_calls": Case("", {"unfinished_calls": {"echo__boom": "repeat"}}, project_policy, "repeat"),
    "trusted_servers": Case("", {"trusted_servers": ["echo"]}, trusted, "repeat"),
    "tools": Case(
        "",
        {"tools": {"deny": ["echo__echo"]}},
        says("other", tool_call("echo__echo", text="x"), "echo:x"),
        False,
    ),
    "approvals": Case(
        "",
        {"tools": {"ask": ["echo__echo"]}, "approvals": {"timeout": 1}},
        says("other", tool_call("echo__echo", text="x"), "1 s"),
        True,
    ),
    "auth": Case(
        "",
        {"auth": auth(tokens=NEW_TOKENS)},
        page("/api/v1/agents", authorization=f"Bearer {NEW_TOKEN}"),
        200,
    ),
    "rbac": Case(
        "",
        {"rbac": {"grants": [{"to": ["token:ada"], "allow": ["*"]}]}},
        page("/api/v1/agents/hand", authorization=f"Bearer {TOKENS['bob']}"),
        403,
    ),
    "allowed_hosts": Case(
        "", {"allowed_hosts": ["new.example.com"]}, page("/healthz", host="new.example.com"), 200
    ),
    "server_cards": Case("", {"server_cards": True}, page("/.well-known/ai-catalog.json"), 200),
    "sessions": Case("", {"sessions": {"max": 1}}, second_session, "Session capacity reached"),
    "tasks": Case("", {"tasks": {"tools": True}}, has_task_tools, True),
    "default_agent": Case("", {"default_agent": "third"}, default_agent, "third"),
    "messages": Case("", {"messages": {"bytes": 1024}}, failure("noting", LONG), NEWER),
    "limits": Case("", {"limits": {"per_run": {"steps": 9}}}, allowed("other"), [9]),
}
AT_START: dict[str, Any] = {
    "port": 1,
    "loop_lag": 7,
    "tools_lock": "warn",
    "workers": 2,
    "plugins": ["answers"],
    "bind": "127.0.0.2",
    "database_url": "sqlite:////nowhere.sqlite3",
    "step_texts_mib": 1,
    "scripted": {"script": "model.yaml", "port": 1},
}
"""Keys that only another start takes over, with other values."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def saves(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Saves]:
    root = tmp_path_factory.mktemp("fields")
    program = {"kind": "worker", "command": [sys.executable, "worker.py"], "dialect": "ndjson"}
    port, nothing = free_ports(2)
    async with other() as there:
        keys: dict[str, dict[str, Any]] = {
            "hand": {"kind": "handler", "handler": "answers:one"},
            "slow": {"kind": "handler", "handler": "answers:slow"},
            "noting": {"kind": "handler", "handler": "answers:noted", "payload": "answers:Note"},
            "work": program,
            "crashing": {**program, "restart": {"backoff": 60}},
            "far": {"kind": "remote", "url": there.url},
            "front": {"kind": "router", "agents": ["hand"], "fallback": "hand"},
            "sorting": {"kind": "router", "agents": ["hand", "third"], "fallback": "hand"},
            "guarded": {"kind": "handler", "handler": "answers:one"},
            "third": {"kind": "handler", "handler": "answers:three"},
        }
        modules = {
            **{name: agent_module(name, ("echo",)) for name in ("plain", "other")},
            "choosing": agent_module("choosing"),
            "needing": agent_module("needing", ("gone",)),
            "late": agent_module("late"),
            "apart": GREETS,
            "few": HOLDS.replace("HERE", str(root)),
            "endless": LOOPS.replace("NAME", "endless"),
            "repeating": LOOPS.replace("NAME", "repeating"),
            "pair": PAIR,
        }
        entries = {name: {"module": None, **entry, "auth": "off"} for name, entry in keys.items()}
        entries |= {name: {"auth": "off"} for name in modules}
        del entries["guarded"]["auth"]
        entries["choosing"]["providers"] = MODELS
        entries["apart"]["isolation"] = "process"
        entries["few"]["max_instances"] = 1
        entries["carded"] = {"auth": "off", "module": None, "card": "cards/one.md"}
        write_project(
            root,
            {**dict.fromkeys(keys), **modules, "carded": None},
            keys=entries,
            **offline_model(
                SCRIPT,
                top={"port": port, "auth": auth()},
                config={
                    "default_model": "passthrough",
                    "mcp": {
                        "servers": {
                            **ECHO["mcp"]["servers"],
                            "gone": {"url": f"http://127.0.0.1:{nothing}/mcp"},
                        }
                    },
                },
                files={
                    "answers.py": ANSWERS,
                    "worker.py": WORKER,
                    "picture.png": "x",
                    "cards/one.md": "---\nname: carded\n---\nYou are one.\n",
                    "cards/two.md": "---\nname: carded\n---\nYou are two.\n",
                    "agents/another.py": agent_module("another", ("echo",)),
                    "agents/stuck.py": STUCK.replace("HERE", str(root)) + agent_module("late"),
                },
            ),
        )
        THERE.append(there)
        database = IN_A_FILE.format(folder=tmp_path_factory.mktemp("ledger"))
        async with running(root, watch=True, database=database) as fleet:
            await until(lambda: all_ready(fleet))
            yield Saves(fleet, root)


async def saved(saves: Saves, change: Callable[[dict[str, Any]], object]) -> None:
    """Change agents.yaml, and wait until that was acted on."""
    mark = saves.fleet.hub.seq
    saves.edit("agents.yaml", change)
    await until(lambda: any(each.seq > mark for each in saves.told()))
    await until(lambda: not saves.busy())


@pytest.mark.slow
@pytest.mark.parametrize("field", CASES)
async def test_a_changed_key_takes_effect_in_a_fleet_that_runs(saves: Saves, field: str) -> None:
    case = CASES[field]
    before = await case.seen(saves) if case.before else None
    await saved(saves, lambda content: content["agents"][case.agent].update(case.change))
    after = await case.seen(saves)
    assert after != before
    assert case.after in (NEWER, after)


@contextmanager
def restored(path: Path) -> Iterator[None]:
    """The file is as before at the end."""
    before = path.read_text("utf-8")
    try:
        yield
    finally:
        path.write_text(before, "utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("field", PROJECT_CASES)
async def test_a_changed_key_of_the_project_takes_effect_in_a_fleet_that_runs(
    saves: Saves, field: str
) -> None:
    case = PROJECT_CASES[field]
    before, mark = await case.seen(saves), saves.fleet.hub.seq
    with restored(saves.root / "agents.yaml"):
        await saved(saves, lambda content: content.update(case.change))
        after, mark = await case.seen(saves), saves.fleet.hub.seq
    await until(lambda: any(each.seq > mark for each in saves.told()))
    await until(lambda: not saves.busy())
    assert after != before
    assert case.after in (NEWER, after)
    assert await case.seen(saves) == before


@pytest.mark.parametrize("field", AT_START)
async def test_a_key_that_only_another_start_takes_over_is_reported(saves: Saves, field: str) -> None:
    words = f": {field} takes effect when the fleet is started again"
    with restored(saves.root / "agents.yaml"):
        saves.edit("agents.yaml", lambda content: content.update({field: AT_START[field]}))
        await until(lambda: any(words in each for each in saves.notices()))
    await until(lambda: not saves.busy())


async def test_there_is_a_case_for_every_field() -> None:
    fields = {name for name, effect in effects_of(AgentConfig).items() if effect.word != "none"}
    assert fields == {each.partition(" ")[0] for each in CASES} | COVERED.keys()
    of_project = {name for name, effect in effects_of(Project).items() if effect.word != "none"}
    assert of_project == (PROJECT_CASES.keys() | AT_START.keys() | COVERED_OF_PROJECT.keys() | NO_CASE.keys())
    for proof in (*COVERED.values(), *COVERED_OF_PROJECT.values()):
        path, _, test = proof.partition("::")
        assert test in (TESTS / path).read_text("utf-8")
