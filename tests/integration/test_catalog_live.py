"""Agents made over the API, in a fleet that lives: served, changed, deleted, and there after a restart."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from cryptography.fernet import Fernet
from starlette.types import ASGIApp, Receive, Scope, Send
from support.live import ERAS, MODERN_FIRST, ask, client, running
from support.offline import model_record, offline_project
from support.providers import Reply, in_turn
from support.providers import provider as llm_provider
from support.scripted import script
from support.waiting import until

from pallas.catalog import Catalog
from pallas.fleet.agent import FleetAgent
from pallas.fleet.fleet import Fleet
from pallas.model import AgentState, Fault, Notice
from pallas.scripted.scripted_server import RequestRecord, record_of, scripted_app
from pallas.surfaces.listener import Listener, bind

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCRIPT = """
rules:
  - when: {last: user, text: use the tool}
    call: [{tool: echo__echo, arguments: {text: hello}}]
  - when: {last: user, text: slowly}
    say: "it took its time"
    delay: 1.0
  - when: {last: user}
    say: "turn {{ turns }}"
  - say: "it said {{ result }}"
"""
FLEETS_KEY = "sk-the-fleets-own-key"


@dataclass
class Provider:
    """A model server elsewhere: ``keys`` are what it was shown, in order."""

    url: str
    record: RequestRecord
    keys: list[str] = field(default_factory=list)


@asynccontextmanager
async def provider(folder: Path, say: str) -> AsyncIterator[Provider]:
    """A model server that says that, and refuses the key ``sk-wrong`` where it is asked for its models."""
    app = scripted_app(script(folder, f"rules: [{{say: '{say}'}}]"))
    seen: list[str] = []

    async def listening(scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode(): value.decode() for name, value in scope.get("headers", [])}
        key = headers.get("authorization", "").removeprefix("Bearer ")
        if scope["type"] == "http" and scope["path"].endswith("/models") and key == "sk-wrong-key":
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"{}"})
            return
        if scope["type"] == "http" and scope["method"] == "POST":
            seen.append(key)
        await app(scope, receive, send)

    guarded: ASGIApp = listening
    listener = Listener(guarded, bind("127.0.0.1", 0, "provider"))
    await listener.start()
    try:
        yield Provider(f"http://127.0.0.1:{listener.port}/v1", record_of(app), seen)
    finally:
        await listener.stop()


def catalog_of(fleet: Fleet) -> Catalog:
    """The fleet's catalog."""
    assert fleet.catalog is not None
    return fleet.catalog


def project(root: Path, **more: Any) -> Path:
    """A project with one agent, on a port of its own."""
    return offline_project(root, {"helper": None}, SCRIPT, **more)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    """One fleet for all tests that take it: each makes agents of its own."""
    root = project(tmp_path_factory.mktemp("fleet") / "project")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", FLEETS_KEY)
        async with running(root, database="memory") as made:
            yield made


def at_least(answers: list[str], number: int) -> bool:
    return len(answers) >= number


def asked_by(fleet: Fleet, instruction: str) -> bool:
    return instruction in str(model_record(fleet).requests[-1])


def told(agent: FleetAgent, instruction: str) -> bool:
    return agent.executor is not None and agent.executor.info.instruction == instruction


async def said(fleet: Fleet, agent: str, text: str = "hi", era: str = ERAS[0], **arguments: Any) -> str:
    """What an agent answers a caller."""
    async with client(fleet, agent, era=era) as connected:
        return await ask(connected, text, **arguments)


@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_an_agent_is_served_at_its_url_as_soon_as_it_is_made(fleet: Fleet, era: str) -> None:
    catalog, name = catalog_of(fleet), f"reviewer-{era[:4]}"
    literal = "You review {{file:agents.yaml}} {{currentDate}} \\{{env}} {{{x}}} {1: 2}"
    made = await catalog.create("agent", name, {"systemPrompt": literal, "description": "R"}, "ann")
    assert made.status["state"] == "ready" and made.status["source"] == "api"
    origin = f"http://localhost:{fleet.project.registry_port}"
    assert made.status["url"] == f"{origin}/agents/{name}/mcp"
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        listed = (await http.get(fleet.registry_url)).json()["servers"]
        assert (await http.get(f"{origin}/healthz")).status_code == 200
        assert (await http.post(f"{origin}/agents/nobody/mcp")).status_code == 404
    entry = next(each["server"] for each in listed if each["server"]["name"].endswith(f"/{name}"))
    assert entry["remotes"] == [{"type": "streamable-http", "url": made.status["url"]}]
    assert (entry["title"], entry["description"]) == (name.title(), "R")
    # AG-31: without a project there are no tools, and proxyModelName has no effect
    await catalog.update("agent", name, {"proxyModelName": "gpt-99"})
    async with client(fleet, name, era=era) as connected:
        assert await ask(connected, "hi") == "turn 1"
        assert {tool.name for tool in (await connected.list_tools()).tools} == {"send_message", "get_health"}
    asked = model_record(fleet).requests[-1]
    assert "tools" not in asked and asked["model"] == "scripted"
    # Nothing of what is written is put in by the library: no file of the fleet's is read for it.
    assert asked["messages"][0] == {"role": "system", "content": literal}
    described = await fleet.describe(name)
    assert described.instruction == literal


async def test_an_agent_of_the_folders_project_has_its_tools(fleet: Fleet) -> None:
    catalog = catalog_of(fleet)
    await catalog.create("project", "team", {"servers": ["echo"], "prompts": ["Be brief."]}, "ann")
    for group in ("test", "team"):
        await catalog.create("agent", f"of-{group}", {"project": group, "systemPrompt": "Own."}, "ann")
        assert await said(fleet, f"of-{group}", "use the tool") == 'it said {"result":"echo:hello"}'
    assert model_record(fleet).requests[-1]["messages"][0]["content"] == "Own.\n\nBe brief."
    await catalog.delete("project", "team")
    await said(fleet, "of-team")
    asked = model_record(fleet).requests[-1]
    assert "tools" not in asked and asked["messages"][0]["content"] == "Own."


@pytest.mark.slow
async def test_a_key_goes_to_its_llm_alone_and_none_of_the_fleets_goes_there(
    fleet: Fleet, tmp_path: Path
) -> None:
    catalog = catalog_of(fleet)
    async with provider(tmp_path, "from one") as one, provider(tmp_path, "from two") as two:
        await catalog.create("secret", "keys", {"data": {"ONE": "sk-key-of-one"}}, "ann")
        first = {"type": "openai", "model": "qwen3-thinking", "url": one.url, "apiKeyRef": "keys/ONE"}
        await catalog.create("llm", "one", {**first, "probe": False}, "ann")
        await catalog.create("llm", "two", {"type": "generic", "model": "other/m-1", "url": two.url}, "ann")
        for name in ("one", "two"):
            await catalog.create("agent", name, {"llm": name}, "ann")
        await catalog.create("agent", "own", {}, "ann")
        answers = await asyncio.gather(*(said(fleet, name) for name in ("one", "two", "own", "helper")))
        assert answers == ["from one", "from two", "turn 1", "turn 1"]
        # AG-29: the key is used, and never shown to anybody else
        assert set(one.keys) == {"sk-key-of-one"} and set(two.keys) == {"not-needed"}
        assert [each["model"] for each in (*one.record.requests, *two.record.requests)] == [
            "qwen3-thinking",
            "other/m-1",
        ]
        await catalog.update("secret", "keys", {"data": {"ONE": "sk-another-key"}})
        assert await said(fleet, "one") == "from one"
        assert one.keys[-1] == "sk-another-key"
        shown = repr(list(fleet.hub.since(0).events)) + repr(fleet.snapshot())
        assert "sk-another-key" not in shown and "sk-key-of-one" not in shown and FLEETS_KEY not in shown


async def test_an_agent_changes_while_it_is_called_and_no_call_fails(fleet: Fleet) -> None:
    catalog = catalog_of(fleet)
    await catalog.create("agent", "busy", {"systemPrompt": "Version 0."}, "ann")
    over = asyncio.Event()
    answers: list[str] = []

    async def calling(era: str) -> None:
        async with client(fleet, "busy", era=era) as connected:
            while not over.is_set():
                answers.append(await ask(connected, "hi"))

    callers = [asyncio.create_task(calling(era)) for era in ERAS]
    for number in range(1, 4):
        await until(partial(at_least, answers, 4 * number))
        spec = {"systemPrompt": f"Version {number}.", "defaultParams": {"temperature": number / 10}}
        changed = await catalog.update("agent", "busy", spec)
        assert changed.version == number + 1 and changed.status["state"] == "ready"
        await until(partial(asked_by, fleet, f"Version {number}."))
    over.set()
    await asyncio.gather(*callers)
    assert answers and all(each.startswith("turn ") for each in answers)
    assert model_record(fleet).requests[-1]["temperature"] == 0.3
    (agent,) = [each for each in fleet.snapshot().agents if each.name == "busy"]
    assert agent.version >= 4


@pytest.mark.slow
async def test_a_deleted_agent_finishes_its_runs_and_leaves_nothing(fleet: Fleet) -> None:
    catalog, ledger = catalog_of(fleet), fleet.ledger
    assert ledger is not None
    await catalog.create("agent", "gone", {}, "ann")
    url = next(each.url for each in fleet.agents if each.name == "gone")
    async with client(fleet, "gone") as connected:
        await connected.list_tools()  # the client asks for them after its first call
        running_call = asyncio.create_task(ask(connected, "slowly", conversation_id="mine"))
        await until(lambda: model_record(fleet).active)
        await catalog.delete("agent", "gone")
        assert await running_call == "it took its time"
    with pytest.raises(Fault):
        await catalog.get("agent", "gone")
    assert "gone" not in [each.name for each in fleet.agents] and "gone" not in fleet.project.agents
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        assert (await http.post(url)).status_code == 404
        assert "gone" not in (await http.get(fleet.registry_url)).text
    # AG-3
    assert (await ledger.threads.list(agent="gone")).items == ()
    again = await catalog.create("agent", "gone", {}, "ann")
    assert again.status["state"] == "ready" and await said(fleet, "gone") == "turn 1"


async def test_what_cannot_be_made_is_that_agents_error_alone(fleet: Fleet) -> None:
    catalog = catalog_of(fleet)
    away = {"name": "away", "url": "http://127.0.0.1:9/mcp", "headers": {"X-Team": "plain"}}
    await catalog.create("project", "far", {"servers": [away]}, "ann")
    partly = await catalog.create("agent", "partly", {"project": "far"}, "ann")
    assert partly.status["state"] == "ready"  # a downstream that is away is no error of the agent
    await catalog.create("llm", "odd", {"type": "openai", "model": "gpt-5?reasoning=sometimes"}, "ann")
    made = await catalog.create("agent", "odd", {"llm": "odd"}, "ann")
    assert made.status["state"] == "error" and made.status["reason"]
    assert await said(fleet, "helper") == "turn 1"
    async with client(fleet, "odd") as connected:
        health = await connected.call_tool("get_health", {})
        assert "error" in str(health.content)
    mended = await catalog.update("agent", "odd", {"llm": None})
    assert mended.status["state"] == "ready" and await said(fleet, "odd") == "turn 1"
    failed = await catalog.update("agent", "odd", {"llm": "odd"})
    assert (
        failed.status["state"] == "ready" and failed.status["problem"]
    )  # the previous version still answers
    assert await said(fleet, "odd") == "turn 1"


async def test_a_key_that_the_provider_refuses_is_told_when_the_llm_is_made(
    fleet: Fleet, tmp_path: Path
) -> None:
    catalog = catalog_of(fleet)
    async with provider(tmp_path, "hi") as there:
        await catalog.create(
            "secret", "more-keys", {"data": {"BAD": "sk-wrong-key", "GOOD": "sk-good-key"}}, "ann"
        )
        spec = {"type": "openai", "model": "scripted", "url": there.url, "apiKeyRef": "more-keys/BAD"}
        with pytest.raises(Fault) as caught:
            await catalog.create("llm", "there", spec, "ann")
        assert caught.value.data["reason"] == "unprocessable" and caught.value.data["key"] == "apiKeyRef"
        assert "sk-wrong-key" not in caught.value.message
        assert "there" not in [each.name for each in (await catalog.list("llm")).items]
        made = await catalog.create("llm", "there", {**spec, "probe": False}, "ann")
        assert "warning" not in made.status
        assert (await catalog.update("llm", "there", {"apiKeyRef": "more-keys/GOOD"})).version == 2
    moved = await catalog.update("llm", "there", {"url": "http://127.0.0.1:9/v1"})
    assert "cannot connect" in moved.status["warning"]  # which may pass


async def test_defaults_of_a_files_agent_hold_from_its_next_run_on(fleet: Fleet) -> None:
    catalog = catalog_of(fleet)
    before = next(each.version for each in fleet.snapshot().agents if each.name == "helper")
    await catalog.update("agent", "helper", {"defaultParams": {"temperature": 0.7}})
    await said(fleet, "helper")
    assert model_record(fleet).requests[-1]["temperature"] == 0.7
    await catalog.update("agent", "helper", {"defaultParams": None})
    await said(fleet, "helper")
    assert "temperature" not in model_record(fleet).requests[-1]
    assert next(each.version for each in fleet.snapshot().agents if each.name == "helper") == before


@pytest.mark.slow
async def test_what_was_made_is_there_again_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, url = project(tmp_path / "project"), f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    async with provider(tmp_path, "from afar") as there:
        async with running(root, database=url) as fleet:
            catalog = catalog_of(fleet)
            await catalog.create("secret", "keys", {"data": {"ONE": "sk-key-of-one"}}, "ann")
            llm = {"type": "generic", "model": "m", "url": there.url, "apiKeyRef": "keys/ONE"}
            await catalog.create("llm", "one", llm, "ann")
            made = await catalog.create("agent", "far", {"llm": "one"}, "ann")
            assert await said(fleet, "far", conversation_id="mine") == "from afar"
        async with running(root, database=url) as fleet:
            assert all(agent.state is AgentState.READY for agent in fleet.agents)
            assert await said(fleet, "far", conversation_id="mine") == "from afar"
            assert [each["role"] for each in there.record.requests[-1]["messages"]] == [
                "user",
                "assistant",
                "user",
            ]
            assert there.keys[-1] == "sk-key-of-one"
            found = await catalog_of(fleet).get("agent", "far")
            assert (found.id, found.spec, found.version) == (made.id, made.spec, 1)
        monkeypatch.setenv("PALLAS_SECRET_KEY", Fernet.generate_key().decode())
        async with running(root, database=url) as fleet:  # which opens nothing of what is there
            assert await said(fleet, "helper") == "turn 1"
            found = await catalog_of(fleet).get("agent", "far")
            assert found.status["state"] == "error"
            assert "needs secret keys, which cannot be opened" in found.status["reason"]
            notices = [event.text for event in fleet.hub.since(0).events if isinstance(event, Notice)]
            assert any("secret keys cannot be opened" in text for text in notices)
            await catalog_of(fleet).update("secret", "keys", {"data": {"ONE": "sk-key-anew"}})
            assert await said(fleet, "far") == "from afar" and there.keys[-1] == "sk-key-anew"


async def test_a_verb_by_hand_works_on_an_agent_that_was_made(fleet: Fleet) -> None:
    catalog = catalog_of(fleet)
    await catalog.create("agent", "mine", {"systemPrompt": "One."}, "ann")
    agent = next(each for each in fleet.agents if each.name == "mine")
    fleet.control("mine", "stop")
    await until(lambda: agent.state is AgentState.STOPPED)
    changed = await catalog.update("agent", "mine", {"systemPrompt": "Two."})
    assert changed.status["state"] == "stopped"  # a person stopped it, and a person starts it
    fleet.control("mine", "start")
    await until(lambda: agent.state is AgentState.READY)
    assert await said(fleet, "mine") == "turn 1"
    assert model_record(fleet).requests[-1]["messages"][0]["content"] == "Two."
    fleet.control("mine", "reload")
    await until(lambda: agent.snapshot().version == 2 or agent.snapshot().version == 3)
    assert await said(fleet, "mine") == "turn 1"


@pytest.mark.slow
async def test_many_changes_at_once_end_as_the_last_one_says(fleet: Fleet) -> None:
    catalog = catalog_of(fleet)
    names = [f"a{number}" for number in range(4)]
    await asyncio.gather(*(catalog.create("agent", name, {}, "ann") for name in names))
    await asyncio.gather(
        *(
            catalog.update("agent", name, {"systemPrompt": f"{name} {number}."})
            for name in names
            for number in range(3)
        )
    )
    for name in names:
        spec = (await catalog.get("agent", name)).spec
        agent = next(each for each in fleet.agents if each.name == name)
        await until(partial(told, agent, spec["systemPrompt"]))
    outcomes = await asyncio.gather(
        *(catalog.create("agent", "same", {}, "ann") for _ in range(3)), return_exceptions=True
    )
    assert sum(isinstance(each, Fault) for each in outcomes) == 2
    await asyncio.gather(*(catalog.delete("agent", name) for name in names))
    assert {each.name for each in fleet.agents}.isdisjoint(names)
    assert {each.name for each in fleet.agents} == set(fleet.project.agents)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["anthropic", "responses"])
async def test_other_kinds_of_providers_are_asked_with_the_llms_own_key(
    fleet: Fleet, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = catalog_of(fleet)
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.setenv(name, FLEETS_KEY)
    async with llm_provider(in_turn(Reply("from there"))) as there:
        await catalog.create("secret", f"key-{kind}", {"data": {"KEY": f"sk-own-{kind}"}}, "ann")
        spec = {
            "type": kind,
            "model": "some-model",
            "url": f"{there.base}/v1",
            "apiKeyRef": f"key-{kind}/KEY",
            "probe": False,
        }
        await catalog.create("llm", f"llm-{kind}", spec, "ann")
        await catalog.create("agent", f"of-{kind}", {"llm": f"llm-{kind}", "systemPrompt": "You."}, "ann")
        assert await said(fleet, f"of-{kind}") == "from there"
        (asked,) = there.asked
        assert (asked.kind, asked.body["model"], asked.system) == (kind, "some-model", "You.")
        assert f"sk-own-{kind}" in str(asked.headers) and FLEETS_KEY not in str(asked.headers)
