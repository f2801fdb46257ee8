"""Tasks in the ledger, on both databases: kept until their time is over, whatever becomes of a fleet."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from alembic import command
from support.turns import run, turn

from pallas.ledger import Ledger, open_ledger
from pallas.ledger.ledger_address import address_of
from pallas.ledger.migrate import configuration
from pallas.ledger.postgres import PostgresDatabase
from pallas.ledger.sqlite import SqliteDatabase
from pallas.ledger.task_store import forget_old
from pallas.model import Fault, Message, TaskRecord

NOW = 1_750_000_000.0


class Clock:
    """What time a test says it is."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def task(id: str, **fields: Any) -> TaskRecord:  # noqa: A002 - the word of the record
    """A task that begins now."""
    begun = TaskRecord(id, "jarvis", "me", "working", NOW, NOW, preview="do it", ttl=1e9)
    return replace(begun, **fields)


def over(begun: TaskRecord, **fields: Any) -> TaskRecord:
    """The task as answered."""
    result = {"content": [{"type": "text", "text": "done\x00"}], "isError": False}
    done = replace(begun, status="completed", text="done\x00", result=result, updated_at=NOW + 5)
    return replace(done, **fields)


async def test_a_task_is_kept_as_it_goes_and_its_end_is_the_last_word(ledger: Ledger) -> None:
    tasks = ledger.tasks
    begun = task("t1", run_id="r1")
    await tasks.begin(begun)
    assert await tasks.get("t1") == begun
    asked = {"question-1": {"method": "elicitation/create", "params": {"message": "Sure?\x00"}}}
    await tasks.move(replace(begun, status="input_required", request=asked, progress="step 2"))
    waiting = await tasks.get("t1")
    assert waiting is not None
    assert (waiting.status, waiting.progress) == ("input_required", "step 2")
    assert waiting.request is not None
    assert waiting.request["question-1"]["params"]["message"] == "Sure?\\x00"
    await tasks.finish(over(begun, progress="step 3"))
    await tasks.move(replace(begun, status="working", progress="late"))
    await tasks.finish(replace(begun, status="cancelled"))
    found = await tasks.get("t1")
    assert found is not None
    assert (found.status, found.progress, found.text, found.request) == (
        "completed",
        "step 3",
        "done\\x00",
        None,
    )
    assert found.result == {"content": [{"type": "text", "text": "done\\x00"}], "isError": False}
    assert await tasks.get("nothing") is None
    await tasks.begin(task("t2"))
    await tasks.forget("t2")
    assert await tasks.get("t2") is None


async def test_lists_come_in_pages_the_newest_first_and_hold_no_answers(ledger: Ledger) -> None:
    tasks = ledger.tasks
    for number in range(5):
        begun = task(f"t{number}", created_at=NOW + number, owner="me" if number % 2 else "you")
        await tasks.begin(begun)
        if number == 3:
            await tasks.finish(over(begun, ttl=None))
    first = await tasks.list(limit=2)
    second = await tasks.list(limit=2, cursor=first.next)
    third = await tasks.list(limit=2, cursor=second.next)
    assert [each.id for page in (first, second, third) for each in page.items] == [
        "t4",
        "t3",
        "t2",
        "t1",
        "t0",
    ]
    assert third.next == ""
    assert all(each.text == "" and each.result is None for each in first.items)
    assert [each.id for each in (await tasks.list(owner="me")).items] == ["t3", "t1"]
    assert [each.id for each in (await tasks.list(status="completed")).items] == ["t3"]
    assert (await tasks.list(agent="nobody")).items == ()
    with pytest.raises(Fault):
        await tasks.list(cursor="nonsense")


async def test_what_is_over_is_forgotten_after_its_time_and_what_is_under_way_never(
    database_url: str,
) -> None:
    clock = Clock()
    ledger = await open_ledger(database_url, clock=clock)
    tasks = ledger.tasks
    for name in ("short", "ever", "working"):
        await tasks.begin(task(name))
    await tasks.finish(over(task("short"), ttl=100.0))
    await tasks.finish(over(task("ever"), ttl=None))
    clock.now = NOW + 104
    assert (await tasks.get("short")) is not None
    clock.now = NOW + 106
    assert (await tasks.get("short")) is None
    assert {each.id for each in (await tasks.list()).items} == {"ever", "working"}
    clock.now = NOW + 10_000_000
    gone: Callable[[Any], bool] = lambda connection: forget_old(connection, clock.now, limit=1)  # noqa: E731
    assert await ledger.database.write(gone) is True
    assert await ledger.database.write(gone) is False
    assert {each.id for each in (await tasks.list()).items} == {"ever", "working"}
    await ledger.close()


async def test_tasks_of_a_dead_life_have_failed_with_their_threads_and_those_of_a_living_one_go_on(
    database_url: str,
) -> None:
    first, second = await open_ledger(database_url), await open_ledger(database_url)
    thread = (await first.threads.create("jarvis", "me")).id
    await first.threads.begin(thread, run("r1", thread), Message("user", "hello"))
    await first.tasks.begin(task("mine", run_id="r1"))
    await second.tasks.begin(task("theirs"))
    assert (await second.tasks.get("mine")) is not None
    await first.close()
    found = await second.tasks.get("mine")
    assert found is not None
    assert (found.status, found.thread) == ("failed", thread)
    assert found.fault is not None
    assert found.fault["error"].startswith("the fleet stopped in the middle of this task (found ")
    assert found.fault["data"] == {"type": "UPSTREAM", "retryable": False, "stopped": True}
    theirs = await second.tasks.get("theirs")
    assert theirs is not None
    assert theirs.status == "working"
    await second.close()


async def test_what_came_of_a_task_goes_with_its_thread(ledger: Ledger) -> None:
    thread = (await ledger.threads.create("jarvis", "me")).id
    await turn(ledger, thread, "r1")
    await ledger.tasks.begin(task("t1", run_id="r1"))
    begun = await ledger.tasks.get("t1")
    assert begun is not None
    assert begun.thread == thread
    await ledger.tasks.finish(over(begun))
    await ledger.threads.delete(thread)
    assert await ledger.tasks.get("t1") is None
    # One whose thread went meanwhile is kept without it.
    await ledger.tasks.begin(task("t2", run_id="r1"))
    await ledger.tasks.finish(over(task("t2"), thread=thread))
    found = await ledger.tasks.get("t2")
    assert found is not None
    assert (found.status, found.thread) == ("completed", "")


async def test_a_ledger_of_the_release_before_tasks_keeps_what_it_has(empty_database_url: str) -> None:
    address = address_of(empty_database_url)
    database: SqliteDatabase | PostgresDatabase
    if address.path is not None:
        database = await SqliteDatabase.open(address.path, address.shown)
    else:
        database = await PostgresDatabase.open(address.dsn, address.shown)

    def before(connection: Any) -> None:
        config = configuration()
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")

    await database.write(before)
    # What that release wrote.
    text = "INSERT INTO meta (key, value) VALUES ('salt', '{}')".format("ab" * 32)
    await database.write(lambda connection: connection.exec_driver_sql(text).rowcount)
    await database.close()
    ledger = await open_ledger(empty_database_url)
    assert ledger.salt == bytes.fromhex("ab" * 32)
    await ledger.tasks.begin(task("t1"))
    assert (await ledger.tasks.get("t1")) == task("t1")
    await ledger.close()
