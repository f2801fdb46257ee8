"""A handler that asks no named model is refused where a fleet takes it, as `pallas check` refuses it."""

from pathlib import Path
from typing import Any

import pytest
from support import pallas_process
from support.live import all_ready, running
from support.ports import free_ports
from support.reloading import Saves
from support.typed import typed_project
from support.waiting import until

from pallas.fleet.threaded_fleet import ThreadedFleet
from pallas.model import FleetState

QUESTION = """\
from dataclasses import dataclass


@dataclass
class Question:
    text: str
"""
HANDLER = """\
from thinking.words import think

async def answer(payload, metadata):
    return await think(payload)
"""
WORDS = """\
from pallas.llm import complete

async def think(payload):
    payload.text = await complete(messages=[{"role": "user", "content": payload.text}])
    return payload
"""
REFUSED = "thinking/words.py:4: agents.asker.handler: complete() names no model, and default_model is not set"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The handler's question to the model is in a module that it imports."""
    (port,) = free_ports(1)
    (tmp_path / "thinking").mkdir()
    for name, text in (("__init__", ""), ("question", QUESTION), ("asking", HANDLER), ("words", WORDS)):
        (tmp_path / "thinking" / f"{name}.py").write_text(text)
    (tmp_path / "organism.yaml").write_text(
        f"organism: {{name: o, port: {port}}}\n"
        "llm: {backends: [{provider: generic}]}\n"
        "listeners:\n"
        "  - {name: asker, payload_class: thinking.question.Question, handler: thinking.asking.answer,"
        " description: Asks}\n"
    )
    return tmp_path


@pytest.mark.parametrize("command", [("--serve",), ("dev", "--serve"), ("chat", "asker", "-m", "hello")])
def test_no_fleet_starts_where_every_message_would_fail(root: Path, command: tuple[str, ...]) -> None:
    done = pallas_process.run(*command, cwd=root, capture_output=True, text=True, timeout=120)
    assert REFUSED in done.stderr
    assert done.returncode in (1, 2) and not done.stdout


async def test_the_workbench_says_where(root: Path) -> None:
    fleet = ThreadedFleet(root)
    fleet.start()
    try:
        await until(lambda: fleet.snapshot().state is FleetState.FAILED)
        assert REFUSED in fleet.snapshot().error
    finally:
        fleet.stop()


ASKS = "from thinking.words import think\n\nasync def asker(request):\n    return await think(request)\n"
ONCE = """\
from pallas.llm import complete

async def think(request):
    return (await complete(MODELmessages=[{"role": "user", "content": request.text}])).content
"""


async def test_a_save_that_takes_the_name_away_is_refused(tmp_path: Path) -> None:
    named = ONCE.replace("MODEL", 'model="passthrough", ')
    root = typed_project(
        tmp_path / "p",
        ASKS,
        {"asker": {"kind": "handler", "handler": "desk:asker"}},
        files={"thinking/__init__.py": "", "thinking/words.py": ONCE.replace("MODEL", "")},
    )
    async with running(root, watch=True) as fleet:
        await until(lambda: all_ready(fleet))
        saves = Saves(fleet, root)

        def default_model(name: str | None) -> None:
            def change(content: dict[str, Any]) -> None:
                content.pop("default_model", None)
                content |= {"default_model": name} if name else {}

            saves.edit("fastagent.config.yaml", change)

        default_model(None)
        told = await saves.outcome("")
        assert (told.outcome, told.place) == ("failed", "thinking/words.py:4")
        assert REFUSED in told.error
        assert fleet.project.model == "passthrough"
        mark = fleet.hub.seq
        saves.write("thinking/words.py", named)
        assert (await saves.outcome("asker", mark)).outcome == "live"
        await until(lambda: not fleet.project.model)
        mark = fleet.hub.seq
        saves.write("thinking/words.py", ONCE.replace("MODEL", ""))
        told = await saves.outcome("asker", mark)
        assert (told.outcome, told.place) == ("failed", "thinking/words.py:4")
        assert REFUSED in told.error
        assert all_ready(fleet)
