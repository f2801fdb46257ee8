"""A console whose run fails, and one whose fleet stops."""

import asyncio
from pathlib import Path

import pytest
from support.consoles import Scripted, held, project
from support.live import running
from support.waiting import until

from pallas.model import Fault, RunFinished


async def test_a_run_that_is_used_up_does_not_end_the_console(tmp_path: Path) -> None:
    # HC-26
    async with running(project(tmp_path / "p", messages={"per_run": 9})) as fleet:
        desk = Scripted(*['@add {"a": 1, "b": 1}'] * 5, None)
        heard = await held(fleet, desk)
        assert fleet.messaging.open_frames == 0
    assert desk.lines == []
    said = [output for _, output in desk.shown[1:]]
    assert said.count('{"value": 2}') >= 3
    assert "upstream: More than 9 messages in one run: it was ended" in said
    ended = [
        each.outcome for each in heard if isinstance(each, RunFinished) and each.agent.endswith("console")
    ]
    assert ended[0] == "error"
    assert ended[-1] == "ok"


async def test_a_fleet_that_stops_ends_its_consoles(tmp_path: Path) -> None:
    async with running(project(tmp_path / "p")) as fleet:
        desk = Scripted('@add {"a": 1, "b": 777}', "never")
        holding = asyncio.create_task(held(fleet, desk))
        await until((tmp_path / "p" / "waits").exists)
        await fleet.messaging.close()
        with pytest.raises(Fault, match="stopping"):
            await holding
    assert desk.lines == ["never"]
