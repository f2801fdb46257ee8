"""Every key of the workbench belongs to an action that has an id, and is declared in one place."""

import ast
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from textual.binding import Binding
from textual.dom import DOMNode

import pallas_tui
from pallas_tui.actions import ACTIONS, BY_ID, bindings

ROOT = Path(pallas_tui.__file__).parent
REPLACED = {"tool.result", "tool.about"}
"""What the form of a tool has on keys that the form of a message uses for its own parts."""


def nodes() -> Iterator[type[DOMNode]]:
    """Every widget, screen and app of the workbench."""
    for module in pkgutil.walk_packages(pallas_tui.__path__, "pallas_tui."):
        import_module(module.name)
    found = [DOMNode]
    for each in found:
        found += [one for one in each.__subclasses__() if one not in found]
    yield from (each for each in found if each.__module__.startswith("pallas_tui."))


def own(node: type[DOMNode]) -> list[Binding]:
    return list(Binding.make_bindings(node.__dict__.get("BINDINGS", ())))


def test_every_binding_of_every_widget_and_screen_has_the_id_of_an_action() -> None:
    found = {node: own(node) for node in nodes()}
    assert sum(map(bool, found.values())) > 40
    without = [
        (node.__name__, each.key) for node, all_ in found.items() for each in all_ if each.id not in BY_ID
    ]
    assert without == []
    bound = {each.id for all_ in found.values() for each in all_}
    assert {action.id for action in ACTIONS if action.keys} - bound == set()


def test_ids_are_unique_and_every_action_has_words() -> None:
    assert len(BY_ID) == len(ACTIONS)
    assert [action.id for action in ACTIONS if not action.title or not action.help] == []


def test_every_action_of_a_scope_is_a_method_of_what_has_it() -> None:
    for node in nodes():
        for each in own(node):
            name = each.action.partition("(")[0]
            if "." not in name:
                assert hasattr(node, f"action_{name}"), (node.__name__, each.id)


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_bindings_are_made_in_actions_only(path: Path) -> None:
    if path.parent.name == "actions":
        return
    made = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Binding"
    ]
    assert made == []


def test_an_action_without_a_key_makes_no_binding() -> None:
    keyless = [action for action in ACTIONS if not action.keys]
    assert keyless
    made = {each.id for action in keyless for each in bindings(action.scope) if isinstance(each, Binding)}
    assert made.isdisjoint(action.id for action in keyless)
