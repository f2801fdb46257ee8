"""The first message of a fleet."""

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.project_modules import module_at
from support.typed import typed_project
from support.waiting import until

from pallas.config import load_project
from pallas.fleet.fleet import Fleet
from pallas.model import AgentState, MessagePassed, RunRequest

DESK = """
    from dataclasses import dataclass

    from pallas.contract import Boot, HandlerResponse, Text

    heard = []

    @dataclass
    class Question:
        text: str

    async def first(payload, metadata):
        heard.append((type(payload).__name__, metadata.from_id, payload))
        if isinstance(payload, Boot):
            return HandlerResponse(Question("ready?"), to="echo")

    async def echo(payload, metadata):
        heard.append(("echo", metadata.from_id, payload))
        return HandlerResponse.respond(Text(payload.text))

    async def broken(payload, metadata):
        raise ValueError("swordfish")
"""
SLOW = """
    import typed_start

    typed_start.go.wait(60)  # imported in a thread of its own

    async def slow(payload, metadata): ...
"""


@pytest.fixture
def go(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The handler that starts slowly goes on when this is set."""
    start = ModuleType("typed_start")
    start.go = event = threading.Event()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "typed_start", start)
    yield event
    event.set()


async def test_boot_comes_before_any_message_from_outside_however_early_that_is(
    tmp_path: Path, go: threading.Event
) -> None:
    # HC-25
    boot = {"payload": "pallas.contract:Boot"}
    entries: dict[str, dict[str, Any]] = {
        "first": {**boot, "peers": ["echo"]},
        "echo": {"payload": "Question"},
        "broken": boot,
        # After the others: one is imported at a time.
        "slow": {
            "handler": "slow:slow",
            "payload": "desk:Question",
            "depends_on": ["first", "echo", "broken"],
        },
    }
    root = typed_project(tmp_path / "p", DESK, entries, files={"slow.py": SLOW})
    folder = Path.cwd()
    fleet = Fleet(load_project(root, {**os.environ}), dev=True)
    starting = asyncio.create_task(fleet.start())
    try:
        agents = {each.name: each for each in await until(lambda: fleet.agents)}
        await until(lambda: agents["echo"].state is AgentState.READY)
        asked = asyncio.create_task(fleet.kernel.run(RunRequest("echo", "hello")))
        await until(lambda: fleet.kernel.stats("echo").active)
        assert agents["slow"].state is not AgentState.READY
        go.set()
        assert (await asked).text == "hello"
        await starting
        assert agents["slow"].state is AgentState.READY
        heard = module_at(root, "desk").heard
        await until(lambda: len(heard) == 4)
        assert heard[0][:2] == ("Boot", "system")
        assert (heard[0][2].project, heard[0][2].agents) == ("desk", 4)
        passed = [each for each in fleet.hub.since(0).events if isinstance(each, MessagePassed)]
        assert {each.route for each in passed[:2]} == {"boot"}
        outside = next(each for each in passed if each.sender == "system.caller")
        assert {each.parent for each in (*passed[:2], outside)} == {fleet.messaging.root}
    finally:
        await fleet.stop()
        os.chdir(folder)
