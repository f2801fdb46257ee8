"""An isolated handler is reloaded as all others are: in a new process, beside what runs in the old one."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.live import ask_agent, running
from support.processes import gone
from support.reloading import Saves
from support.typed import typed_project
from support.waiting import until

pytestmark = pytest.mark.usefixtures("forked_children")

DESK = '''
    import asyncio
    import pathlib
    from dataclasses import dataclass

    from words import WORD
    from pallas.contract import HandlerResponse, Text

    @dataclass
    class Order:
        """What to do."""

        what: str

    async def far(payload, metadata):
        while payload.what == "wait" and not pathlib.Path(__file__).with_name("go").exists():
            await asyncio.sleep(0.01)
        return HandlerResponse.respond(Text(WORD))
'''
APART: dict[str, Any] = {"payload": "Order", "isolation": "process"}


@pytest.mark.slow
async def test_a_saved_file_is_a_new_process_and_a_mistake_in_it_is_told(tmp_path: Path) -> None:
    root = typed_project(tmp_path / "project", DESK, {"far": APART}, files={"words.py": "WORD = 'one'\n"})
    async with running(root, watch=True) as fleet:
        saves = Saves(fleet, root)
        agent = next(each for each in fleet.agents if each.name == "far")
        first = agent.executor.pid
        assert first is not None
        assert await ask_agent(fleet, "far", "say") == "one"
        slow = asyncio.create_task(ask_agent(fleet, "far", "wait"))
        await until(lambda: fleet.messaging.open_frames == 1)
        assert await ask_agent(fleet, "far", "say") == "one"  # the other one has begun

        saves.write("words.py", "WORD = 'two'\n")
        await until(lambda: saves.versions() == {"far": 2})
        assert await ask_agent(fleet, "far", "say") == "two"
        assert agent.executor.pid != first
        (root / "go").touch()
        assert await slow == "one"
        await until(lambda: gone(first))

        second, mark = agent.executor.pid, fleet.hub.seq
        saves.write("desk.py", "def nothing(:\n")
        told = await saves.outcome("far", mark)
        assert (told.outcome, told.place) == ("failed", "desk.py:1")
        assert agent.executor.pid == second
        assert await ask_agent(fleet, "far", "say") == "two"
