"""Providers of an agent as clients meet them: found, bound to a session, standing in for each other."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import pytest
import pytest_asyncio
from mcp import Client
from support.bridged import kind_of, refused, tell
from support.live import ERAS, MODERN_FIRST, client, running, write_project
from support.ports import free_ports
from support.scripted import Model, model
from support.virtual import virtual

from pallas.fleet.fleet import Fleet
from pallas.model import Event, Rerouted

pytestmark = pytest.mark.asyncio(loop_scope="module")
both_eras = pytest.mark.parametrize("era", MODERN_FIRST)

NEAR = """
rules:
  - {when: {text: refuse}, error: {status: 401, message: "bad key sk-abcdefghijklmnopqrstuvwx"}}
  - {when: {text: hurry}, error: {status: 429, message: "slow down"}}
  - {when: {text: break}, error: {status: 503, message: "oops"}}
  - {when: {last: user}, say: "near, turn {{ turns }}"}
"""
FAR = """
rules:
  - {when: {last: user}, say: "far, turn {{ turns }}, first {{ first }}"}
"""


@dataclass
class _Place:
    """A fleet whose agents have two providers, each on a port of its own."""

    fleet: Fleet
    near: Model
    far: Model

    @contextmanager
    def rerouted(self) -> Iterator[list[tuple[str, str]]]:
        """Who answered in place of whom meanwhile, as the fleet's events have it."""
        found: list[tuple[str, str]] = []

        def hear(event: Event) -> None:
            if isinstance(event, Rerouted):
                found.append((event.asked, event.to))

        stop = self.fleet.hub.listen(hear)
        try:
            yield found
        finally:
            stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[_Place]:
    root = tmp_path_factory.mktemp("providers")
    (root / "near").mkdir()
    (root / "far").mkdir()
    near = {"id": "near", "models": ["generic.scripted", "generic.other"], "params": {"temperature": 0.1}}
    far = {"id": "far", "models": ["openai.scripted"], "displayName": "Far away"}
    vectors = {"id": "vectors", "models": ["openai.embeds"], "kind": "embedding"}
    async with model(root / "near", NEAR) as close, model(root / "far", FAR) as away:
        write_project(
            root / "p",
            {"one": None, "safe": None, "plain": None},
            keys={
                "one": {"providers": [near, far, vectors], "params": {"top_p": 0.5}},
                "safe": {"providers": [near, {**far, "failover": True}]},
            },
            top={"port": free_ports(1)[0]},
            config={
                "default_model": "passthrough",
                "generic": {"base_url": close.url, "api_key": "offline"},
                "openai": {"base_url": away.url, "api_key": "offline"},
                "llm_retries": 0,
            },
        )
        async with running(root / "p", database="memory") as fleet:
            yield _Place(fleet, close, away)


@asynccontextmanager
async def bridge(place: _Place, era: str = ERAS[0]) -> AsyncIterator[Client]:
    """A real client of the bridge."""
    async with virtual(place.fleet, "/mcp", era=era) as connected:
        yield connected


@both_eras
async def test_providers_are_found_where_an_agent_has_some(place: _Place, era: str) -> None:
    # DR-23
    async with bridge(place, era) as door:
        found = {each["id"]: each for each in (await tell(door, "agents_discover"))["agents"]}
    assert found["one"]["providers"] == [
        {"id": "near", "models": ["generic.scripted", "generic.other"], "kind": "llm"},
        {"id": "far", "models": ["openai.scripted"], "kind": "llm", "displayName": "Far away"},
        {"id": "vectors", "models": ["openai.embeds"], "kind": "embedding"},
    ]
    assert "providers" not in found["plain"]


@both_eras
async def test_a_session_has_the_provider_that_it_was_opened_with(place: _Place, era: str) -> None:
    # DR-24
    async with bridge(place, era) as door:
        far = await tell(door, "sessions_create", agentId="one", metadata={"provider": "far"})
        near = await tell(door, "sessions_create", agentId="one")
        said = [
            (await tell(door, "sessions_prompt", sessionId=each["sessionId"], prompt=f"hi {number}"))["text"]
            for number, each in enumerate((far, near, far))
        ]
        before = (await tell(door, "bridge_health"))["sessions"]["active"]
        body = await refused(door, "sessions_create", agentId="one", metadata={"provider": "vectors"})
        assert body["error"] == 'Provider "vectors" is of kind embedding and cannot answer; choose an llm'
        body = await refused(door, "sessions_create", agentId="one", metadata={"provider": "nobody"})
        after = (await tell(door, "bridge_health"))["sessions"]["active"]
    assert said == ["far, turn 1, first hi 0", "near, turn 1", "far, turn 2, first hi 0"]
    assert body["error"] == 'Provider "nobody" is not registered in the ProviderRegistry'
    assert kind_of(body) == ("CONFIG", -32004, False)
    assert before == after


async def test_runtime_parameters_of_prompt_session_and_provider_reach_the_model(place: _Place) -> None:
    # DR-25, C15
    near = {"runtimeParams": {"maxTokens": 90, "providerSpecific": {"min_p": 0.1, "top_a": 1}}}
    async with bridge(place) as door:
        session = (await tell(door, "sessions_create", agentId="one", metadata=near))["sessionId"]
        for params in (
            {},
            {"temperature": 0.9, "maxTokens": 70, "providerSpecific": {"top_a": 2}},
            {"model": "generic.other", "temperature": None, "topP": None},
        ):
            await tell(door, "sessions_prompt", sessionId=session, prompt="x", runtimeParams=params)
        bad = await refused(
            door, "sessions_prompt", sessionId=session, prompt="x", runtimeParams={"model": "openai.gpt-4o"}
        )
    bodies = place.near.record.requests[-3:]
    shown = ("model", "temperature", "top_p", "max_tokens", "min_p", "top_a")
    assert [tuple(body.get(key) for key in shown) for body in bodies] == [
        ("scripted", 0.1, 0.5, 90, 0.1, 1),
        ("scripted", 0.9, 0.5, 70, 0.1, 2),
        ("other", None, None, 90, 0.1, 1),
    ]
    assert "provider near has no openai.gpt-4o; known: generic.scripted, generic.other" in bad["error"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("refuse", ("AUTH", -32003, False)),
        ("hurry", ("UPSTREAM", -32002, True)),
        ("break", ("UPSTREAM", -32002, True)),
    ],
)
async def test_a_failure_names_the_provider(place: _Place, text: str, kind: tuple[str, int, bool]) -> None:
    # DR-22
    async with bridge(place) as door:
        body = await refused(door, "tasks_delegate", agentId="one", prompt=text)
    assert kind_of(body) == kind
    assert body["data"]["providerId"] == "near"
    assert "sk-abc" not in repr(body)


async def test_who_stands_in_is_in_the_documents_of_the_other_tools_that_ask(place: _Place) -> None:
    # DR-32
    async with bridge(place) as door, virtual(place.fleet, "/virtual/agent-safe/mcp", era=ERAS[1]) as tool:
        delegated = await tell(door, "tasks_delegate", agentId="safe", prompt="break it")
        chat = (await tool.call_tool("chat", {"message": "break it"})).structured_content
        plain = await tell(door, "tasks_delegate", agentId="plain", prompt="hello")
    for body in (delegated, chat):
        assert body["backend"] == "far"
        assert [line.partition(": ")[0] for line in body["rerouted"]] == ["near -> far"]
    assert not {"backend", "routed", "rerouted"} & plain.keys()


async def test_who_stands_in_is_told_in_results_and_events(place: _Place) -> None:
    # DR-32, C13
    async with bridge(place) as door, client(place.fleet, "safe") as safe:
        session = (await tell(door, "sessions_create", agentId="safe"))["sessionId"]
        with place.rerouted() as events:
            result = await door.call_tool("sessions_prompt", {"sessionId": session, "prompt": "break it"})
            again = await safe.call_tool("send_message", {"message": "hello"})
    assert events == [("near", "far"), ("near", "far")]
    assert result.structured_content["text"] == "far, turn 1, first break it"
    told = json.loads(result.content[0].text)
    assert (told["backend"], told["rerouted"]) == ("far", result.meta["local.pallas/rerouted"])
    assert told == result.structured_content
    for each in (result, again):
        assert each.meta is not None
        assert each.meta["local.pallas/backend"] == "far"
        (why,) = each.meta["local.pallas/rerouted"]
        assert why.startswith("near -> far: ")
        assert "HTTP 503" in why
