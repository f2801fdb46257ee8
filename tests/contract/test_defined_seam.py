"""What making an agent out of a definition needs of fast-agent."""

import json
from pathlib import Path
from typing import Any, get_args

import fast_agent.config
import pytest
from fast_agent.config import Settings
from fast_agent.llm.model_factory import ModelFactory
from fast_agent.llm.provider_types import Provider
from support.live import write_project

from pallas.catalog.specs import LlmType
from pallas.config import load_project
from pallas.config.models import AgentConfig, Definition, DownstreamConfig, LlmConfig
from pallas.executors.fastagent.agent_definition import NO_KEY, define, literal, model_of
from pallas.model import Fault

TYPES: tuple[Any, ...] = get_args(LlmType)


@pytest.mark.parametrize("kind", TYPES)
def test_each_type_is_a_provider_whose_block_takes_a_key_and_an_address(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write_project(tmp_path / "project", {"helper": None}))
    llm = LlmConfig("x", kind, "some-model", "http://127.0.0.1:9/v1", "sk-of-its-own")
    server = DownstreamConfig("far", "http", "http://x.example/mcp", headers={"X-Key": "sk-of-the-server"})
    definition = Definition("Hi.", llm, own_servers=(server,))
    fast = define(load_project(Path.cwd()), AgentConfig("x", 0, "X", "X", definition=definition))
    settings: Any = fast._settings
    block = getattr(settings, kind)
    assert block.api_key == "sk-of-its-own" and block.base_url.startswith("http://127.0.0.1:9")
    assert not getattr(block, "default_headers", None)
    assert settings.mcp.servers["far"].headers == {"X-Key": "sk-of-the-server"}
    assert fast.app._config_or_path is settings
    # The process's settings, which any other agent may look at, have nothing of it.
    everybodys = json.dumps(fast_agent.config.get_settings().model_dump(mode="json"), default=str)
    assert "sk-of" not in everybodys
    parsed = ModelFactory.parse_model_string(model_of(llm) or "")
    assert (parsed.provider, parsed.model_name) == (Provider(kind), "some-model")  # type: ignore[no-untyped-call]
    assert kind in Settings.model_fields


def test_an_address_without_a_key_is_shown_none_of_the_projects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"openai": {"api_key": "sk-project", "base_url": "http://own.example/v1"}}
    monkeypatch.chdir(write_project(tmp_path / "project", {"helper": None}, config=config))
    project = load_project(Path.cwd())

    def block_of(llm: LlmConfig) -> Any:
        fast = define(project, AgentConfig("x", 0, "X", "X", definition=Definition("", llm)))
        return fast._settings.openai

    theirs = block_of(LlmConfig("x", "openai", "m", "http://elsewhere.example/v1"))
    assert (theirs.api_key, theirs.base_url) == (NO_KEY, "http://elsewhere.example/v1")
    own_key = block_of(LlmConfig("x", "openai", "m", "", "sk-of-its-own"))
    assert (own_key.api_key, own_key.base_url) == ("sk-of-its-own", None)
    projects = block_of(LlmConfig("x", "openai", "m"))
    assert (projects.api_key, projects.base_url) == ("sk-project", "http://own.example/v1")


@pytest.mark.parametrize("text", ["{{file:x}}", "{{{x}}}", "{{{{a}}}}", "}}{{", "a {b} c", r"\{{env}}", "{{"])
async def test_an_instruction_is_told_as_it_is_written(text: str) -> None:
    from fast_agent.core.direct_decorators import _apply_templates
    from fast_agent.core.instruction import InstructionBuilder

    builder = InstructionBuilder(_apply_templates(literal(text)))
    builder.set("env", "LEAK").set("a", "LEAK").set("x", "LEAK").set("workspaceRoot", "/")
    assert await builder.build() == text


def test_a_server_that_is_not_there_any_more_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write_project(tmp_path / "project", {"helper": None}))
    definition = Definition("", servers=("gone",))
    with pytest.raises(Fault, match=r"fastagent\.config\.yaml has no server gone under mcp\.servers"):
        define(load_project(Path.cwd()), AgentConfig("x", 0, "X", "X", definition=definition))
    with pytest.raises(Fault, match="a reason"):
        broken = Definition("", problem="a reason")
        define(load_project(Path.cwd()), AgentConfig("x", 0, "X", "X", definition=broken))
