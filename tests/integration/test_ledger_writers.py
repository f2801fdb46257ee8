"""Many who write at a time: nobody gets another's place, and nobody waits for somebody's tool."""

import asyncio
import os
import signal
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event
from support import mortal_writer
from support.turns import FOUND, LOOKING, asked, ok, run, said, tool_turn, turn

from pallas.ledger import Ledger, open_ledger
from pallas.ledger import database as bounds
from pallas.ledger.hot_statement import driver_of
from pallas.ledger.sqlite import SqliteDatabase
from pallas.model import Fault, FaultType, Message


async def test_twenty_writers_in_one_thread_each_get_a_place_of_their_own(database_url: str) -> None:
    # AG-4
    first, second = await open_ledger(database_url), await open_ledger(database_url)
    try:
        thread = (await first.threads.create("jarvis", "me")).id
        each = 3

        async def write(number: int) -> list[int]:
            mine = (first, second)[number % 2]
            return [await tool_turn(mine, thread, f"r{number}-{again}") for again in range(each)]

        answers = await asyncio.gather(*(write(number) for number in range(20)))
        rows = []
        cursor = ""
        while True:
            page = await second.threads.messages(thread, limit=200, cursor=cursor)
            rows += page.items
            if not (cursor := page.next):
                break
        assert [row.turn_index for row in rows] == list(range(20 * each * 5))
        assert {row.status for row in rows} == {"complete"}
        places = {row.turn_index: (row.run, row.content) for row in rows}
        for number, mine in enumerate(answers):
            assert mine == sorted(mine)
            assert [places[index] for index in mine] == [(f"r{number}-{n}", "there") for n in range(each)]
        # AG-7: their rows lie among each other, and a model is told run after run all the same.
        messages = (await first.threads.history(thread))[0]
        assert messages == (asked("find it"), LOOKING, FOUND, said("there")) * 20 * each
    finally:
        await first.close()
        await second.close()


async def test_two_processes_write_to_one_database_at_a_time(database_url: str) -> None:
    # AG-4
    here = await open_ledger(database_url)
    thread = (await here.threads.create("jarvis", "me")).id
    writer = await asyncio.create_subprocess_exec(
        sys.executable,
        mortal_writer.__file__,
        thread,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdin.write(f"{database_url}\n".encode())
        there = int((await writer.stdout.readline()).split()[1])
        kept = {}
        for number in range(30):
            # Each waits for the other's: neither is kept from writing for long.
            word, _, name, index = (await asyncio.wait_for(writer.stdout.readline(), 30)).decode().split()
            assert word == "kept"
            kept[int(index)] = f"answer of {name}"
            async with asyncio.timeout(30):
                kept[await turn(here, thread, f"r{number}", answer=f"mine {number}")] = f"mine {number}"
        os.kill(there, signal.SIGKILL)
        rows = [
            row for row in (await here.threads.messages(thread, limit=200)).items if row.turn_index in kept
        ]
        assert {row.turn_index: row.content for row in rows}.items() <= kept.items()
        assert len(kept) == 60
    finally:
        writer.kill()
        await writer.wait()
        await here.close()


async def test_while_a_run_is_in_its_tools_others_commit(ledger: Ledger, database_url: str) -> None:
    # AG-19: between two messages of a run nothing is held, by this fleet or towards another one.
    thread = (await ledger.threads.create("jarvis", "me")).id
    other = (await ledger.threads.create("jarvis", "me")).id
    begun = run("slow", thread)
    await ledger.threads.begin(thread, begun, asked())
    await ledger.threads.add_message(thread, "slow", LOOKING)
    replica = await open_ledger(database_url)
    try:
        for number, each in enumerate((ledger, replica)):
            async with asyncio.timeout(30):
                await turn(each, other, f"quick{number}")
                await turn(each, thread, f"same{number}")
        found = await replica.runs.get("quick1")
        assert found is not None
        assert found.status == "ok"
        slow = await replica.runs.get("slow")
        assert slow is not None
        assert slow.status == "running"
    finally:
        await replica.close()
    await ledger.threads.add_message(thread, "slow", FOUND)
    await ledger.threads.finish(thread, ok(begun), [asked(), LOOKING, FOUND, said()])
    assert len((await ledger.threads.history(thread))[0]) == 8


async def test_sixty_four_threads_at_a_time(ledger: Ledger) -> None:
    threads = [(await ledger.threads.create("jarvis", "me")).id for _ in range(64)]

    async def talk(number: int) -> None:
        for again in range(3):
            await turn(ledger, threads[number], f"{number}-{again}")

    await asyncio.gather(*(talk(number) for number in range(64)))
    for thread in threads:
        assert len((await ledger.threads.history(thread))[0]) == 6


async def test_work_that_fails_undoes_itself_alone(ledger: Ledger) -> None:
    thread = (await ledger.threads.create("jarvis", "me")).id
    await ledger.threads.begin(thread, run("r0", thread), asked())

    async def one(number: int) -> object:
        if number % 3 == 0:
            return await ledger.threads.add_message("none", "r0", said())
        if number % 3 == 1:
            return await ledger.threads.create("jarvis", "me", handle="the same")
        return await ledger.threads.add_message(thread, "r0", said(str(number)))

    outcomes = await asyncio.gather(*(one(number) for number in range(30)), return_exceptions=True)
    faults = [each for each in outcomes if isinstance(each, Fault)]
    assert [each for each in outcomes if isinstance(each, Exception) and not isinstance(each, Fault)] == []
    assert sorted(fault.data["reason"] for fault in faults) == ["conflict"] * 9 + ["not_found"] * 10
    contents = [row.content for row in (await ledger.threads.messages(thread)).items[1:]]
    assert sorted(map(int, contents)) == list(range(2, 30, 3))


async def test_what_nobody_waits_for_any_more_leaves_the_rest_as_it_is(ledger: Ledger) -> None:
    thread = (await ledger.threads.create("jarvis", "me")).id
    tasks = [asyncio.create_task(turn(ledger, thread, f"r{number}")) for number in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await turn(ledger, thread, "last")
    finished = {run.id for run in (await ledger.runs.list(status="ok")).items}
    assert finished >= {f"r{number}" for number in range(1, 20, 2)} | {"last"}
    for run_id in finished:
        found = await ledger.runs.get(run_id)
        assert found is not None
        assert found.turn_index is not None


async def test_another_process_that_holds_the_file_is_waited_for_and_then_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pallas.ledger.sqlite._BUSY", 100)
    path = tmp_path / "ledger.sqlite3"
    ledger = await open_ledger(f"sqlite:///{path}")
    holder = sqlite3.connect(path, isolation_level=None)
    try:
        thread = (await ledger.threads.create("jarvis", "me")).id
        holder.execute("BEGIN IMMEDIATE")
        with monkeypatch.context() as impatient, pytest.raises(Fault) as caught:
            impatient.setattr("pallas.ledger.sqlite.DEADLINE", 0.5)
            await turn(ledger, thread, "r1")
        assert caught.value.type is FaultType.TRANSPORT
        # The operator reads which database it is; a caller does not.
        assert str(path) not in caught.value.message
        assert str(path) in caplog.text
        assert "locked" in caplog.text
        # Whoever reads is not kept waiting.
        assert (await ledger.threads.messages(thread)).items == ()
        waiting = asyncio.create_task(turn(ledger, thread, "r2"))
        await asyncio.sleep(0)
        holder.execute("ROLLBACK")
        await waiting
    finally:
        holder.close()
        await ledger.close()


async def test_a_database_that_does_not_keep_up_takes_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pallas.ledger.sqlite.MAX_WAITING", 3)
    database = await SqliteDatabase.open(tmp_path / "l.sqlite3", "shown")
    gate = threading.Event()
    first = asyncio.create_task(database.write(lambda connection: gate.wait(30)))
    try:
        others = [asyncio.create_task(database.write(lambda connection: 1)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Fault) as caught:
            await database.write(lambda connection: 2)
        assert caught.value.type is FaultType.TRANSPORT
        assert str(bounds.MAX_WAITING) in caught.value.message
        gate.set()
        assert await asyncio.gather(first, *others) == [True, 1, 1]
        assert await database.write(lambda connection: 2) == 2
    finally:
        gate.set()
        await database.close()
    with pytest.raises(Fault) as caught:
        await database.write(lambda connection: 3)
    assert "closed" in caught.value.message
    with pytest.raises(Fault):
        await database.read(lambda connection: 3)


async def test_writes_that_wait_together_are_committed_together(tmp_path: Path) -> None:
    database = await SqliteDatabase.open(tmp_path / "l.sqlite3", "shown", full=True)
    statements: list[str] = []

    def trace(connection: Connection) -> None:
        raw = driver_of(connection)
        assert raw is not None
        raw.set_trace_callback(statements.append)

    gate = threading.Event()
    try:
        await database.write(trace)
        first = asyncio.create_task(database.write(lambda connection: gate.wait(30)))
        rest = [asyncio.create_task(database.write(lambda connection: 1)) for _ in range(50)]
        await asyncio.sleep(0)
        gate.set()
        assert await asyncio.gather(first, *rest) == [True] + [1] * 50
        assert 2 <= statements.count("COMMIT") <= 4  # that of the trace, and of one to three groups
    finally:
        gate.set()
        await database.close()


async def test_the_file_is_for_this_user_alone_and_is_all_that_stays(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    ledger = await open_ledger(f"sqlite:///{folder}/l.sqlite3")
    thread = (await ledger.threads.create("jarvis", "me")).id
    await turn(ledger, thread, "r1")
    assert folder.stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert set(modes.values()) == {0o600}
    assert len(modes) == 4
    await ledger.close()
    assert [path.name for path in folder.iterdir()] == ["l.sqlite3"]


async def test_a_long_thread_costs_no_more_than_a_short_one_to_look_into(ledger: Ledger) -> None:
    thread = (await ledger.threads.create("jarvis", "me")).id
    other = (await ledger.threads.create("jarvis", "me")).id
    many = [Message("user" if n % 2 == 0 else "assistant", str(n)) for n in range(4_000)]
    await ledger.threads.finish(thread, ok(run("l")), many)
    await ledger.threads.finish(other, ok(run("m")), many[:100])
    await ledger.database.write(lambda connection: connection.exec_driver_sql("ANALYZE") and None)

    asked_for: list[tuple[str, Any]] = []

    def hear(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        asked_for.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", hear)
    try:
        page = await ledger.threads.messages(thread, limit=2, newest_first=True)
        page = await ledger.threads.messages(thread, limit=2, newest_first=True, cursor=page.next)
        assert [row.turn_index for row in page.items] == [3997, 3996]
    finally:
        event.remove(Engine, "before_cursor_execute", hear)
    statement, parameters = next(each for each in reversed(asked_for) if "ORDER BY" in each[0])

    def explain(connection: Connection) -> str:
        how = "EXPLAIN QUERY PLAN" if connection.dialect.name == "sqlite" else "EXPLAIN (COSTS OFF)"
        rows = connection.exec_driver_sql(f"{how} {statement}", parameters)
        return "\n".join(str(row[-1]) for row in rows)

    plan = await ledger.database.read(explain)
    # Along the index of a thread's places: what comes before is never looked at, and nothing is sorted.
    assert "messages_thread_id_turn_index_key" in plan or "sqlite_autoindex_messages" in plan, plan
    assert "Sort" not in plan, plan
    assert "TEMP B-TREE" not in plan, plan
    assert "SCAN messages" not in plan, plan
