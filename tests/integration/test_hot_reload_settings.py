"""Settings that are saved while a fleet runs: what they change at once, and for whom."""

import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from support.live import MODERN_FIRST, ask, client
from support.reloading import Saves, module, saying, watched
from support.waiting import until

from pallas.telemetry.log import close_logging, setup_logging

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAIN = """
from fast_agent import FastAgent

fast = FastAgent("chain")


@fast.agent(name="first", model="openai.small", instruction="Apple.")
@fast.chain(name="chain", sequence=["first"], default=True)
async def main() -> None: ...
"""


def _elsewhere(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that names the agents lies beside the project."""
    outside = root.parent / f"{root.name}-elsewhere"
    outside.mkdir()
    (root / "agents.yaml").rename(outside / "agents.yaml")
    monkeypatch.setenv("PALLAS_AGENTS_CONFIG", f"../{outside.name}/agents.yaml")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def saves(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Saves]:
    root = tmp_path_factory.mktemp("settings")
    with pytest.MonkeyPatch.context() as monkeypatch:
        setup_logging("info", path=root.parent / "settings.log")
        try:
            async with watched(
                root,
                {
                    "plain": module("plain", "Apple."),
                    "cloud": module("cloud", "Apple.", model="openai.gpt-4.1"),
                    "short": module("short", "Apple.", model="haiku"),
                    "referred": module("referred", "Apple.", model="$house.big"),
                    "chain": CHAIN,
                },
                saying("Apple.", "Birch."),
                config={
                    "openai": {"api_key": "none"},
                    "anthropic": {"api_key": "none"},
                    "groq": {"api_key": "none"},
                    "model_references": {"house": {"big": "anthropic.claude-sonnet-4-5"}},
                },
                before=lambda root: _elsewhere(root, monkeypatch),
            ) as saves:
                yield saves
        finally:
            close_logging()


def set_key(block: str, key: str, value: str) -> Any:
    def change(content: dict[str, Any]) -> None:
        content.setdefault(block, {})[key] = value

    return change


@pytest.mark.parametrize(
    ("provider", "concerned"),
    [
        ("openai", {"cloud", "chain"}),
        ("anthropic", {"short", "referred"}),
        ("groq", set[str]()),
    ],
)
async def test_a_providers_block_concerns_exactly_the_agents_that_ask_it(
    saves: Saves, provider: str, concerned: set[str]
) -> None:
    change = set_key(provider, "base_url", "http://127.0.0.1:9/v1")
    assert await saves.concerned(lambda: saves.edit("fastagent.config.yaml", change)) == concerned


async def test_the_default_providers_block_concerns_who_names_no_model(saves: Saves) -> None:
    change = set_key("generic", "api_key", "another")
    found = await saves.concerned(lambda: saves.edit("fastagent.config.yaml", change))
    assert found == {"plain", "chain"}  # a chain is no model's, but it may ask the default one


async def test_the_level_of_the_log_is_another_one_at_once(saves: Saves) -> None:
    async def level(name: str | None) -> set[str]:
        def change(content: dict[str, Any]) -> None:
            content["logger"].pop("level", None)
            content["logger"] |= {"level": name} if name else {}

        return await saves.concerned(lambda: saves.edit("fastagent.config.yaml", change))

    ours = logging.getLogger("pallas")
    assert ours.level == logging.INFO
    mark = saves.fleet.hub.seq
    assert await level("debug") == set()
    assert ours.level == logging.DEBUG
    told = await saves.outcome("", mark)
    assert [(each.name, each.after) for each in told.changes] == [("logger.level", "debug")]
    assert not [text for text in saves.notices() if "takes effect when" in text]
    assert await level("error") == set()
    assert ours.level == logging.ERROR
    assert await level(None) == set()
    assert ours.level == logging.INFO


async def test_a_file_of_agents_outside_the_project_is_followed(saves: Saves) -> None:
    file = saves.fleet.project.agents_file
    assert not file.resolve().is_relative_to(saves.root.resolve())

    def retitle(content: dict[str, Any]) -> None:
        content["agents"]["plain"]["title"] = "Elsewhere"

    content = yaml.safe_load(file.read_text("utf-8"))
    retitle(content)
    mark = saves.fleet.hub.seq
    beside = file.with_name("agents.yaml.new")
    beside.write_text(yaml.safe_dump(content, sort_keys=False), "utf-8")
    beside.replace(file)
    told = await saves.outcome("", mark)
    assert (told.outcome, told.changes[0].after) == ("live", "Elsewhere")
    mark = saves.fleet.hub.seq
    file.write_text(file.read_text("utf-8") + "nonsense: 1\n", "utf-8")
    told = await saves.outcome("", mark)
    assert (told.outcome, "nonsense" in told.error) == ("failed", True)
    file.write_text(yaml.safe_dump(content, sort_keys=False), "utf-8")
    await saves.settled()


@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_the_history_prompt_goes_and_comes_with_the_scope_of_instances(  # PR-15
    saves: Saves, era: str
) -> None:
    file = saves.fleet.project.agents_file

    async def scope(value: str) -> set[str]:
        content = yaml.safe_load(file.read_text("utf-8"))
        content["agents"]["plain"]["instance_scope"] = value
        text = yaml.safe_dump(content, sort_keys=False)
        return await saves.concerned(lambda: saves.write(str(file), text))

    async with client(saves.fleet, "plain", era=era) as caller:

        async def prompts() -> list[str]:
            return [each.name for each in (await caller.list_prompts(cache_mode="bypass")).prompts]

        assert await prompts() == ["plain_history"]
        await ask(caller, "one", conversation_id=f"scope {era}")
        assert await scope("request") == {"plain"}
        assert await prompts() == []
        assert await ask(caller, "two", conversation_id=f"scope {era}") == "Apple. 1"
        saves.fleet.control("plain", "rollback")
        await until(lambda: saves.fleet.project.agents["plain"].instance_scope != "request")
        assert await prompts() == ["plain_history"]
        assert await scope("shared") == set()  # as it is since then
        answer = await caller.get_prompt("plain_history", {"conversation_id": f"scope {era}"})
        assert "one" in json.dumps([each.model_dump(mode="json") for each in answer.messages])
