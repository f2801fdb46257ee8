"""What the descriptions of the code name exists: rooms, modules, and the places where things are added."""

import ast
import re
from pathlib import Path

import pytest

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


def test_every_room_is_in_the_picture() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    for name, package in PACKAGES.items():
        table = page.partition(f"### Rooms of {name}, ")[2].partition("\n#")[0]
        named = set(re.findall(r"`([a-z_]+)/?`", table))
        rooms = {each.parent.name for each in package.glob("*/__init__.py")}
        assert rooms - named == set()
