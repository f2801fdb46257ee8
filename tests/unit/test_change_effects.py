"""How a change of a key takes effect: every field says so, and what an executor reads makes a new version."""

import ast
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import pytest

import pallas
from pallas.config import AgentConfig, Project, ServerConfig
from pallas.config.change_effects import AT_ONCE, NEW_VERSION, changed_fields, effects_of, needs_new_version
from pallas.model import AgentKind

EXECUTORS = Path(pallas.__file__).parent / "executors"
KINDS: dict[str, AgentKind] = {
    "fastagent": "llm",
    "process": "llm",
    "typed": "handler",
    "handler": "handler",
    "remote": "remote",
    "router": "router",
    "worker": "worker",
}
NAMES = {"name", "where"}
FROM_THE_FLEET = {("typed", "description"), ("typed", "peers"), ("process", "peers"), ("fastagent", "peers")}
"""The fleet answers with the current value: ``message_peers``, ``DelegatedCalls``, ``plan_reload``."""


@pytest.mark.parametrize("config", [AgentConfig, ServerConfig, Project], ids=lambda each: each.__name__)
def test_every_field_declares_how_a_change_of_it_takes_effect(config: type) -> None:
    assert effects_of(config)


def test_a_field_that_declares_nothing_is_an_error_that_names_it() -> None:
    @dataclass(frozen=True)
    class Settings:
        known: Annotated[int, AT_ONCE] = 1
        forgotten: int = 2

    with pytest.raises(TypeError, match=r"Settings\.forgotten does not say how"):
        effects_of(Settings)


def test_changes_are_told_apart_by_their_effect() -> None:
    @dataclass(frozen=True)
    class Settings:
        title: Annotated[str, AT_ONCE] = ""
        module: Annotated[str, NEW_VERSION] = ""

    agent, before = AgentConfig("a", 1, "A", "A"), Settings()
    assert changed_fields(before, Settings("b", "b"), "at once") == ("title",)
    assert needs_new_version(agent, before, replace(before, module="b"))
    assert not needs_new_version(agent, before, replace(before, title="b"))


@pytest.mark.parametrize("folder", KINDS)
def test_what_an_executor_reads_of_its_agent_makes_a_new_version_when_it_changes(folder: str) -> None:
    agent, effects = AgentConfig("a", 1, "A", "A", kind=KINDS[folder]), effects_of(AgentConfig)
    stale = {
        f"{path.name}:{node.lineno}: {node.attr}"
        for path in (EXECUTORS / folder).glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute)
        and _is_a_config(node.value)
        and node.attr in effects.keys() - NAMES
        and (folder, node.attr) not in FROM_THE_FLEET
        and not effects[node.attr].new_version_if(agent)
    }
    assert not stale


def _is_a_config(node: ast.expr) -> bool:
    """Whether it is called ``config``, ``_config`` or ``self._config``."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name in ("config", "_config")
