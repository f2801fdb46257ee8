"""What the descriptions of the code name exists: rooms, modules, and the places where things are added."""

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

from pallas.config.agent_entries import ENTRIES
from pallas.model.discovery import AGENT_KINDS, AgentKind

ROOT = Path(__file__).parents[2]
PACKAGES = {"pallas": ROOT / "runtime" / "pallas", "pallas_tui": ROOT / "pallas_tui"}
ROOMS = sorted(path for package in PACKAGES.values() for path in package.rglob("__init__.py"))


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.parent.relative_to(ROOT)))
def test_a_room_names_modules_that_it_has(room: Path) -> None:
    text = ast.get_docstring(ast.parse(room.read_text("utf-8"))) or ""
    named = set(re.findall(r"``([a-z][a-z0-9]*_[a-z0-9_]*)``", text))
    modules = {each.stem for each in (*room.parent.iterdir(), *PACKAGES["pallas"].iterdir())}
    defined = {
        node.name
        for module in room.parent.glob("*.py")
        for node in ast.walk(ast.parse(module.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert named - modules - defined == set()


def test_the_places_where_things_are_added_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    table = page.partition("## Where to add things")[2].partition("\n## ")[0]
    places = re.findall(r"`([a-z_/]+(?:\.py|/))`", table)
    assert len(places) > 20
    missing = [
        place for place in places if not (ROOT / place).exists() and not (PACKAGES["pallas"] / place).exists()
    ]
    assert missing == []


def test_what_is_usual_to_add_takes_four_places_at_most() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    table = page.partition("## Where to add things")[2].partition("\n## ")[0]
    rows = [line.split(" | ", 1) for line in table.splitlines() if line.startswith("| ")][1:]
    places = {
        what.removeprefix("| "): len(re.findall(r"`[a-z_/]+(?:\.py|/)`", where)) for what, where in rows
    }
    assert len(places) > 10
    assert {what for what, count in places.items() if count > 4} == {"a kind of agent"}


def test_each_kind_of_agent_has_its_executor_and_its_keys() -> None:
    assert set(AGENT_KINDS) == set(get_args(AgentKind)) == set(ENTRIES)
    for facts in AGENT_KINDS.values():
        module, _, name = facts.executor.partition(":")
        source = PACKAGES["pallas"] / "executors" / f"{module.replace('.', '/')}.py"
        assert f"\nclass {name}" in source.read_text("utf-8")


def test_every_room_is_in_the_picture() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    picture = page.partition("```text\n")[2].partition("```")[0]
    of_runtime, _, of_workbench = picture.partition("\npallas_tui ")
    for name, drawn in (("pallas", of_runtime), ("pallas_tui", of_workbench)):
        rooms = {each.parent.name for each in PACKAGES[name].glob("*/__init__.py")}
        assert rooms - set(re.findall(r"[a-z_]+", drawn)) == set()
