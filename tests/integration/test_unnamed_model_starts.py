"""An organism whose handler asks no named model is refused at its start, as `pallas check` refuses it."""

from pathlib import Path

import pytest
from support import pallas_process
from support.ports import free_ports
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
