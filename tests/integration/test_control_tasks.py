"""Tasks over the control API, and through an attached workbench's port."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.control import FULL, READ, Served, serving
from support.fake_fleet import NOON, FakeFleet
from support.waiting import until

from pallas.model import Fault, FaultType, TaskRecord
from pallas_tui.remote.remote_fleet import RemoteFleet
from pallas_tui.remote.token_source import TokenSource

HOSTILE = "\x1b]52;c;cm0gLXJmIC8=\x07\u202egnp.exe"


def record(number: int, **more: Any) -> TaskRecord:
    given = {"agent": "research", "owner": "anonymous", "status": "working", **more}
    return TaskRecord(f"task-{number}", created_at=NOON + number, updated_at=NOON + number, **given)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    fleet = FakeFleet()
    asked = {"question-1": {"method": "elicitation/create", "params": {"message": "Sure?"}}}
    fleet.works = {
        each.id: each
        for each in (
            record(1, status="input_required", request=asked, progress="research step 2 (llm)"),
            record(2, status="completed", text=f"the answer {HOSTILE}", result={"isError": False}),
        )
    }
    async with serving(fleet) as one:
        yield one


async def attached(served: Served, token: str) -> RemoteFleet:
    fleet = RemoteFleet(served.url, TokenSource(served.url, token))
    fleet.start()
    await until(lambda: fleet.snapshot().agents)
    return fleet


async def test_tasks_are_listed_looked_at_and_cancelled_from_elsewhere(served: Served) -> None:
    remote = await attached(served, FULL)
    try:
        await until(lambda: remote.can_control)
        first = await remote.tasks(limit=1)
        assert [each.id for each in first.items] == ["task-2"]
        rest = await remote.tasks(limit=1, cursor=first.next)
        assert rest.items == (served.fleet.works["task-1"],)
        assert (await remote.tasks("engineering")).items == ()
        done = await remote.task("task-2")
        assert (done.status, done.result) == ("completed", {"isError": False})
        assert "\x1b" not in done.text
        assert not set("\x1b\x07") & set(done.text)
        assert (await remote.cancel_task("task-1")).status == "cancelled"
        with pytest.raises(Fault) as caught:
            await remote.task("nothing")
        assert caught.value.type is FaultType.UPSTREAM
    finally:
        remote.stop()


async def test_who_may_only_look_sees_no_tasks_and_cancels_none(served: Served) -> None:
    remote = await attached(served, READ)
    try:
        for work in (remote.tasks(), remote.task("task-1"), remote.cancel_task("task-1")):
            with pytest.raises(Fault) as caught:
                await work
            assert caught.value.type is FaultType.AUTH
        assert served.fleet.works["task-1"].status == "input_required"
    finally:
        remote.stop()
