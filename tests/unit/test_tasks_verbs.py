"""Tasks when something goes wrong beside the work: the database, the caller, the fleet."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.waiting import until

from pallas.access.grants import Grants
from pallas.ledger import Ledger, open_ledger
from pallas.model import Fault, FaultType, Principal, StepStarted, TaskRecord
from pallas.runs.kernel import Kernel
from pallas.runs.run import Listener
from pallas.tasks import TaskOutcome, Tasks
from pallas.tasks import tasks as module
from pallas.telemetry.event_hub import EventHub

ME = Principal("token:me")


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Ledger]:
    ledger = await open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite3")
    yield ledger
    await ledger.close()


def tasks_on(ledger: Ledger, **more: Any) -> Tasks:
    return Tasks(ledger.tasks, Kernel(EventHub()), EventHub(), Grants(), **more)


async def at_once(hear: Listener) -> TaskOutcome:
    return TaskOutcome({"content": []}, "done")


async def for_ever(hear: Listener) -> TaskOutcome:
    await asyncio.Event().wait()
    return TaskOutcome({})


async def test_an_end_that_could_not_be_written_down_is_tried_again(
    kept: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TRIES", (0.0, 0.0))
    finish, refusals = kept.tasks.finish, [Fault(FaultType.TRANSPORT, "locked")] * 2

    async def unsure(task: TaskRecord) -> None:
        if refusals:
            raise refusals.pop()
        await finish(task)

    monkeypatch.setattr(kept.tasks, "finish", unsure)
    tasks = tasks_on(kept)
    made = await tasks.begin("echo", ME, at_once)
    over = await tasks.wait(made.id, ME, 60)
    assert (over.status, over.text) == ("completed", "done")
    found = await kept.tasks.get(made.id)
    assert found is not None
    assert found.status == "completed"
    await tasks.close()


async def test_a_task_that_was_not_written_down_does_not_begin(
    kept: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[int] = []

    async def run(hear: Listener) -> TaskOutcome:
        began.append(1)
        return TaskOutcome({})

    async def refuse(task: TaskRecord) -> None:
        raise Fault(FaultType.TRANSPORT, "the disk is full")

    monkeypatch.setattr(kept.tasks, "begin", refuse)
    tasks = tasks_on(kept)
    with pytest.raises(Fault) as caught:
        await tasks.begin("echo", ME, run)
    assert caught.value.message == "the disk is full"
    assert (tasks.under_way, began) == (0, [])
    await tasks.close()


async def test_work_that_breaks_has_failed_and_says_no_more_than_its_kind(kept: Ledger) -> None:
    async def breaks(hear: Listener) -> TaskOutcome:
        raise RuntimeError("a secret path")

    tasks = tasks_on(kept)
    over = await tasks.wait((await tasks.begin("echo", ME, breaks)).id, ME, 60)
    assert over.status == "failed"
    assert over.fault is not None
    assert over.fault["data"]["type"] == "INTERNAL"
    assert "secret" not in str(over)
    await tasks.close()


async def test_what_a_fleet_that_stops_leaves_has_failed_and_no_more_begin(kept: Ledger) -> None:
    stopping: list[bool] = []
    tasks = tasks_on(kept, stopping=lambda: bool(stopping))
    left = await tasks.begin("echo", ME, for_ever)
    chosen = await tasks.begin("echo", ME, for_ever)
    await tasks.cancel(chosen.id, ME)
    assert (await tasks.wait(chosen.id, ME, 60)).status == "cancelled"
    stopping.append(True)
    with pytest.raises(Fault) as caught:
        await tasks.begin("echo", ME, at_once)
    assert caught.value.retryable
    await tasks.close()
    found = await kept.tasks.get(left.id)
    assert found is not None
    assert found.status == "failed"
    assert found.fault is not None
    assert found.fault["error"].startswith("the fleet stopped in the middle of this task")
    await tasks.close()


async def test_who_follows_hears_every_change_and_the_end(kept: Ledger) -> None:
    heard: list[Listener] = []
    go = asyncio.Event()

    async def run(hear: Listener) -> TaskOutcome:
        heard.append(hear)
        await go.wait()
        return TaskOutcome({}, "done")

    tasks = tasks_on(kept)
    made = await tasks.begin("echo", ME, run)
    told: list[TaskRecord] = []

    async def follow() -> None:
        async for each in tasks.follow(made.id, ME):
            told.append(each)  # noqa: PERF401 - one by one, as they come

    follower = asyncio.create_task(follow())
    await until(lambda: told and heard)
    heard[0](StepStarted(run_id="r", agent="echo", actor="echo", step=2, kind="tool"))
    await until(lambda: told[-1].progress == "echo step 2 (tool)")
    go.set()
    async with asyncio.timeout(60):
        await follower
    assert (told[-1].status, told[-1].text) == ("completed", "done")
    # What is over is told once.
    again = [each async for each in tasks.follow(made.id, ME)]
    assert [each.status for each in again] == ["completed"]
    await tasks.close()


async def test_a_task_of_another_fleet_on_the_same_ledger_is_seen_and_not_cancelled_here(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite3"
    first, second = await open_ledger(url), await open_ledger(url)
    here, there = tasks_on(first), tasks_on(second)
    made = await there.begin("echo", ME, for_ever)
    assert (await here.find(made.id, ME)).status == "working"
    with pytest.raises(Fault) as caught:
        await here.cancel(made.id, ME)
    assert caught.value.data["reason"] == "conflict"
    assert (await here.wait(made.id, ME, 0.0)).status == "working"
    await there.close()
    await second.close()
    assert (await here.find(made.id, ME)).status in ("failed", "cancelled")
    await here.close()
    await first.close()
