"""Two projects one after the other in a process: the code of each imports the modules of its own root."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.live import agent_module, running
from support.project_modules import own_modules
from support.typed import typed_project
from support.waiting import until

from pallas.model import AgentState

CODE = """
import helper
from gate_of_two import heard

heard(helper.WORD)
"""
HANDLER = """
async def answer(request):
    return "yes"
"""
TYPED = """
from dataclasses import dataclass

@dataclass
class Word:
    text: str

async def answer(payload, metadata):
    return None
"""
KINDS: dict[str, tuple[str, dict[str, str]]] = {
    "handler": (HANDLER, {"kind": "handler", "handler": "desk:answer"}),
    "typed": (TYPED, {"kind": "handler", "handler": "desk:answer", "payload": "desk:Word"}),
    "fast-agent": (agent_module("one"), {"module": "desk"}),
}


class Gate:
    """What projects' code tells; the code of the project ``held`` waits where it tells it."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.held = ""
        self.go = threading.Event()

    def heard(self, word: str) -> None:
        self.words.append(word)
        if word == self.held:
            self.go.wait(60)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made: Any = Gate()
    monkeypatch.setitem(sys.modules, "gate_of_two", made)
    yield made
    made.go.set()


def project(root: Path, kind: str) -> Path:
    source, entry = KINDS[kind]
    files = {"helper.py": f"WORD = {root.name!r}\n"}
    return typed_project(root, CODE + source, {"one": entry}, files=files)


@pytest.mark.parametrize("kind", KINDS)
async def test_the_second_project_has_its_own_modules(tmp_path: Path, gate: Gate, kind: str) -> None:
    for name in ("first", "second"):
        async with running(project(tmp_path / name, kind)) as fleet:
            assert {each.state for each in fleet.agents} == {AgentState.READY}
    assert gate.words == ["first", "second"]


@pytest.mark.parametrize("kind", KINDS)
async def test_it_has_them_though_a_reload_of_the_first_ends_after_its_fleet(
    tmp_path: Path, gate: Gate, kind: str
) -> None:
    root, folder = project(tmp_path / "first", kind), Path.cwd()
    async with running(root, watch=True):
        gate.held = "first"
        (root / "desk.py").write_text(f"# Changed.\n{(root / 'desk.py').read_text()}")
        await until(lambda: len(gate.words) == 2)
    gate.go.set()
    with own_modules(root):  # that reload imports them again
        async with running(project(tmp_path / "second", kind)) as fleet:
            assert {each.state for each in fleet.agents} == {AgentState.READY}
            assert gate.words == ["first", "first", "second"]
            assert str(root) not in sys.path
            assert Path.cwd() == fleet.project.root
    assert Path.cwd() == folder
