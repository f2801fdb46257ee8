"""How many messages a typed handler of a fleet takes at a time, by its own ``capacity``."""

import asyncio
from pathlib import Path

import pytest
from support.live import running
from support.project_modules import module_at
from support.reloading import Saves
from support.typed import typed_project
from support.waiting import until

from pallas.config import read_project
from pallas.model import RunRequest

DESK = """
    import asyncio
    from collections import Counter
    from dataclasses import dataclass

    from pallas.contract import HandlerResponse, Text

    inside, most, let_go = Counter(), Counter(), asyncio.Event()

    async def one_of(name):
        inside[name] += 1
        most[name] = max(most[name], inside[name])
        try:
            await let_go.wait()
        finally:
            inside[name] -= 1
        return HandlerResponse.respond(Text(name))

    async def narrow(payload, metadata):
        return await one_of("narrow")

    async def wide(payload, metadata):
        return await one_of("wide")

    async def plain(payload, metadata):
        return await one_of("plain")
"""
TEXT = {"payload": "pallas.contract:Text"}
ENTRIES = {"narrow": {**TEXT, "capacity": 1}, "wide": {**TEXT, "capacity": 8}, "plain": TEXT}


async def test_a_handler_takes_as_many_messages_at_a_time_as_its_capacity_says(tmp_path: Path) -> None:
    # HC-31
    root = typed_project(tmp_path / "project", DESK, ENTRIES)
    async with running(root) as fleet:
        desk = module_at(root, "desk")
        runs = [
            asyncio.create_task(fleet.kernel.run(RunRequest(name, "x")))
            for name in ENTRIES
            for _ in range(10)
        ]
        await until(lambda: desk.inside == {"narrow": 1, "wide": 8, "plain": 5})
        shown = {each.name: each.availability for each in fleet.snapshot().agents}
        assert set(shown.values()) == {"busy"}
        desk.let_go.set()
        assert [run.text for run in await asyncio.gather(*runs)] == [
            name for name in ENTRIES for _ in range(10)
        ]
        assert desk.most == {"narrow": 1, "wide": 8, "plain": 5}


async def test_another_capacity_holds_from_the_moment_it_is_saved(tmp_path: Path) -> None:
    # HC-31
    root = typed_project(tmp_path / "project", DESK, ENTRIES)
    async with running(root, watch=True) as fleet:
        saves = Saves(fleet, root)
        before = saves.versions()["narrow"]
        saves.edit("agents.yaml", lambda document: document["agents"]["narrow"].update(capacity=3))
        await until(lambda: saves.versions()["narrow"] > before and not saves.busy())
        desk = module_at(root, "desk")
        runs = [asyncio.create_task(fleet.kernel.run(RunRequest("narrow", "x"))) for _ in range(7)]
        await until(lambda: desk.inside == {"narrow": 3})
        desk.let_go.set()
        assert [run.text for run in await asyncio.gather(*runs)] == ["narrow"] * 7
        assert desk.most == {"narrow": 3}


@pytest.mark.parametrize("given", ["0", "many"])
async def test_a_capacity_that_is_none_is_refused(tmp_path: Path, given: str) -> None:
    root = typed_project(tmp_path / "project", DESK, {"narrow": {**TEXT, "capacity": given}})
    _, mistakes = read_project(root)
    assert [each.key for each in mistakes] == ["agents.narrow.capacity"]
