"""A served fleet whose model has peers and a process of its own: how it drains, and how it dies."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.live import ERAS
from support.peered import peered_project
from support.processes import below, gone
from support.served import Served, served, text_of
from support.waiting import poll, until


async def until_in_flight(fleet: Served, agent: str, *calls: asyncio.Task[Any]) -> None:
    """Until that agent answers something because of each of these calls."""

    async def in_flight() -> bool:
        answer = await fleet.get("/api/v1/runs?status=running")
        assert answer.status_code == 200, answer.text
        if [each["agent"] for each in answer.json()["items"]].count(agent) == len(calls):
            return True
        for call in calls:
            assert not call.done(), text_of(call.result())
        return False

    await poll(in_flight)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_a_fleet_that_ends_lets_its_models_ask_and_one_that_dies_takes_them_along(
    tmp_path: Path, how: signal.Signals
) -> None:
    root = peered_project(tmp_path / "p", isolation="process", top={"bind": "127.0.0.1"})
    with served(root, PALLAS_DATABASE_URL=f"sqlite:///{tmp_path}/ledger.sqlite3") as fleet:
        await fleet.says("] running")
        await poll(lambda: fleet.get("/readyz"), lambda answer: answer.status_code == 200)
        if how is signal.SIGTERM:
            async with fleet.client("desk", ERAS[0]) as one, fleet.client("desk", ERAS[1]) as two:
                calls = [
                    asyncio.create_task(each.call_tool("send_message", {"message": f"slowly {number}"}))
                    for number, each in enumerate((one, two), 4)
                ]
                await until_in_flight(fleet, "desk", *calls)
                fleet.send(how)
                line = await fleet.says("draining: ")
                # Those two, and what the first of them may be asking its peers already.
                assert int(line.partition("draining: ")[2].split()[0]) >= 2, line
                for number, result in enumerate(await asyncio.gather(*calls), 4):
                    assert f'\\"total\\": {number}' in text_of(result)
            assert await fleet.ended() == 0
            return
        (child,) = _interpreters(fleet)
        asking = asyncio.create_task(_asked(fleet, "hold it"))
        await until_in_flight(fleet, "holder", asking)
        fleet.send(how)
        await until(lambda: gone(child), timeout=30)
        assert isinstance((await asyncio.gather(asking, return_exceptions=True))[0], BaseException)
        await fleet.ended()


async def _asked(fleet: Served, message: str) -> Any:
    async with fleet.client("desk", ERAS[0]) as desk:
        return await desk.call_tool("send_message", {"message": message})


def _interpreters(fleet: Served) -> list[int]:
    """The processes in which agents answer: those below a keeper."""
    keepers = [each.pid for each in below(fleet.process.pid, "keeper")]
    return [child.pid for pid in keepers for child in psutil.Process(pid).children()]
