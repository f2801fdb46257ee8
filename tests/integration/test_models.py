"""Which model a project means, and what is known of models that fast-agent does not know."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from fast_agent.llm.model_database import ModelDatabase
from fast_agent.llm.model_factory import ModelFactory
from fast_agent.llm.usage_tracking import UsageAccumulator
from support.live import MODERN_FIRST, agent_module, ask, client, running, write_project
from support.scripted import model

from pallas.config import Capabilities
from pallas.executors.fastagent.model_registry import apply_declared_window, has_vision, register

# Names that would tell a guesser a lot.
TELLING = ("gpt-4o-vision-ultra", "claude-omni-1m-context", "Qwen3-VL-72B-Instruct-256k", "llava-multimodal")
SCRIPT = "rules:\n  - when: {last: user}\n    say: hello\n"


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    before = set(ModelDatabase.list_runtime_models())
    yield
    for name in set(ModelDatabase.list_runtime_models()) - before:
        ModelDatabase._RUNTIME_MODEL_PARAMS.pop(name, None)


def _facts(name: str) -> tuple[int, int, bool]:
    params = ModelDatabase.get_model_params(name)
    assert params is not None
    return params.context_window, params.max_output_tokens, ModelDatabase.supports_mime(name, "image/png")


@pytest.mark.parametrize("name", TELLING)
def test_an_unknown_model_gets_the_defaults_whatever_its_name_says(name: str) -> None:
    # PR-13
    assert ModelDatabase.get_model_params(name) is None
    register(name, Capabilities())
    assert _facts(name) == (131_072, 16_384, False)
    assert has_vision(name, None) is False
    assert has_vision(name, Capabilities()) is False


def test_an_unknown_model_gets_what_is_declared() -> None:
    # PR-13
    register("plain-text-only", Capabilities(vision=True, context_window=8_000, max_output_tokens=500))
    assert _facts("plain-text-only") == (8_000, 500, False)  # vision is the agent's, not the name's
    assert has_vision("plain-text-only", Capabilities(vision=True))
    assert not has_vision("plain-text-only", Capabilities())  # another agent with the same model


@pytest.mark.parametrize("name", ["gpt-4.1", "claude-sonnet-4-5", "passthrough"])
def test_a_known_model_is_left_alone(name: str) -> None:
    # PR-13
    before = ModelDatabase.get_model_params(name)
    assert before is not None
    sees = has_vision(name, None)
    register(name, Capabilities(vision=not sees, context_window=1, max_output_tokens=1))
    assert ModelDatabase.get_model_params(name) is before
    assert has_vision(name, Capabilities(vision=not sees)) is sees


def test_a_model_is_ours_however_its_name_is_written() -> None:
    register("Mixed-Case-7B", Capabilities(vision=True))
    register("Mixed-Case-7B", Capabilities(context_window=9_000))
    assert _facts("Mixed-Case-7B") == (9_000, 16_384, False)
    assert not has_vision("Mixed-Case-7B", Capabilities())


def test_agents_on_one_model_each_keep_their_own_window() -> None:
    # PR-13
    seen = {}
    for size in (50_000, 900):
        register("shared-1", Capabilities(context_window=size))
        usage = UsageAccumulator()
        apply_declared_window(
            SimpleNamespace(llm=SimpleNamespace(usage_accumulator=usage, model_name="shared-1")),
            Capabilities(context_window=size),
        )
        seen[size] = usage
    assert {size: usage.context_window_size for size, usage in seen.items()} == {50_000: 50_000, 900: 900}


def _project(root: Path, url: str, default: str, **config: Any) -> Path:
    provider = default.partition(".")[0]
    settings = {"default_model": default, provider: {"base_url": url, "api_key": "k"}, **config}
    return write_project(root, {"one": agent_module("one")}, config=settings)


@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_the_provider_is_asked_for_the_model_after_the_first_dot(tmp_path: Path, era: str) -> None:
    # PR-12
    async with model(tmp_path, SCRIPT) as offline:
        async with running(_project(tmp_path, offline.url, "openai.gpt-4.1")) as fleet:
            async with client(fleet, "one", era=era) as one:
                assert await ask(one, "x") == "hello"
            assert fleet.snapshot().agents[0].model == "gpt-4.1"
            assert fleet.project.provider == "openai"
        assert [request["model"] for request in offline.record.requests] == ["gpt-4.1"]


async def test_without_declared_capabilities_an_unknown_model_runs_with_the_defaults(tmp_path: Path) -> None:
    # PR-13, PI-4
    async with (
        model(tmp_path, SCRIPT) as offline,
        running(_project(tmp_path, offline.url, "generic.omni-vision-1.5")) as fleet,
    ):
        assert _facts("omni-vision-1.5") == (131_072, 16_384, False)
        (one,) = fleet.snapshot().agents
        assert (one.model, one.vision) == ("omni-vision-1.5", False)
        async with client(fleet, "one") as connected:
            assert await ask(connected, "x") == "hello"
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            (entry,) = (await http.get(fleet.registry_url)).json()["servers"]
        assert "capabilities" not in entry["server"]  # none were declared: none are published


async def test_declared_capabilities_are_those_of_the_model_that_runs(tmp_path: Path) -> None:
    # PR-13, PI-4
    declared = {"vision": True, "context_window": 32_000, "max_output_tokens": 1_000}
    async with model(tmp_path, SCRIPT) as offline:
        root = _project(tmp_path, offline.url, "generic.plain-1.5", model_capabilities=declared)
        async with running(root) as fleet:
            assert _facts("plain-1.5") == (32_000, 1_000, False)
            assert fleet.snapshot().agents[0].vision
            async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
                (entry,) = (await http.get(fleet.registry_url)).json()["servers"]
            assert entry["server"]["capabilities"] == {"model": "plain-1.5", **declared}


@pytest.mark.slow
async def test_references_and_aliases_are_resolved_before_a_models_name_is_shown(tmp_path: Path) -> None:
    child = """

@fast.agent("below", instruction="x", model="$system.fast")
async def other(): ...
"""
    module = agent_module("one", model="$system.default", agents=["below"], default=True) + child
    config = {
        "default_model": "haiku",
        "model_references": {"system": {"default": "$system.fast", "fast": "generic.small?temperature=0"}},
        "anthropic": {"api_key": "k", "base_url": "http://127.0.0.1:9"},
    }
    write_project(tmp_path, {"one": module, "two": None}, config=config)
    async with running(tmp_path) as fleet:
        shown = {each.name: each.model for each in fleet.snapshot().agents}
        assert shown == {"one": "small", "two": ModelFactory.parse_model_string("haiku").model_name}
        executor = next(each.executor for each in fleet.agents if each.name == "one")
        assert executor is not None
        assert [each.model for each in executor.info.children] == ["generic.small?temperature=0"]
