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
from support.executors import FakeAgent, FakeExecutor, echo
from support.turns import FOUND, LOOKING, all_rows, asked, ok, refused, run, said, turn

from pallas.ledger import Ledger, open_ledger
from pallas.ledger import database as bounds
from pallas.ledger.database import Database
from pallas.ledger.hot_statement import driver_of
from pallas.ledger.sqlite import SqliteDatabase
from pallas.model import Fault, FaultType, Message, RunRequest
from pallas.runs.kernel import Kernel
from pallas.telemetry.event_hub import EventHub


@pytest.mark.slow
async def test_of_twenty_that_begin_in_one_thread_one_gets_it_and_then_the_next(database_url: str) -> None:
    # AG-4
    first, second = await open_ledger(database_url), await open_ledger(database_url)
    try:
        thread = (await first.threads.create("jarvis", "me")).id
        waiting = {number: run(f"r{number}", thread) for number in range(20)}
        order: list[str] = []
        while waiting:
            begins = (
                refused((first, second)[number % 2].threads.begin(thread, each, asked("find it")))
                for number, each in waiting.items()
            )
            outcomes = dict(zip(waiting, await asyncio.gather(*begins), strict=True))
            assert sorted(outcomes.values()) == ["", *["busy"] * (len(waiting) - 1)]
            winner = next(number for number, reason in outcomes.items() if not reason)
            mine = waiting.pop(winner)
            # Any fleet may write for it: the thread knows the run and its attempt.
            for message, its in ((LOOKING, first), (FOUND, second)):
                await its.threads.add_message(thread, mine, message)
            whole = [asked("find it"), LOOKING, FOUND, said("there")]
            assert await first.threads.finish(thread, ok(mine), whole) == 5 * len(order) + 4
            order.append(mine.id)
        rows = await all_rows(second, thread)
        assert [row.turn_index for row in rows] == list(range(20 * 5))
        assert {row.status for row in rows} == {"complete"}
        assert [row.run for row in rows] == [each for each in order for _ in range(5)]
        # AG-7
        messages = (await first.threads.history(thread))[0]
        assert messages == (asked("find it"), LOOKING, FOUND, said("there")) * 20
    finally:
        await first.close()
        await second.close()


@pytest.mark.slow
async def test_two_processes_write_to_one_database_at_a_time(database_url: str) -> None:
    # AG-4
    here = await open_ledger(database_url)
    thread = (await here.threads.create("jarvis", "me")).id
    writer = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "support.mortal_writer", thread),
        cwd=Path(__file__).parent.parent,
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
            # Each waits until the thread is free: neither is kept from writing for long.
            word, _, name, index = (await asyncio.wait_for(writer.stdout.readline(), 30)).decode().split()
            assert word == "kept"
            kept[int(index)] = f"answer of {name}"
            begun, answer = run(f"r{number}", thread), said(f"mine {number}")
            async with asyncio.timeout(30):
                while reason := await refused(here.threads.begin(thread, begun, asked())):
                    assert reason == "busy"
                place = await here.threads.finish(thread, ok(begun), [asked(), answer])
            kept[place] = answer.text
        os.kill(there, signal.SIGKILL)
        rows = await all_rows(here, thread)
        assert [row.turn_index for row in rows] == list(range(len(rows)))
        assert {row.turn_index: row.content for row in rows if row.turn_index in kept} == kept
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
    await ledger.threads.add_message(thread, begun, LOOKING)
    replica = await open_ledger(database_url)
    try:
        for number, each in enumerate((ledger, replica)):
            async with asyncio.timeout(30):
                await turn(each, other, f"quick{number}")
                # The thread itself has one run at a time, which is told at once.
                same = run(f"same{number}", thread)
                assert await refused(each.threads.begin(thread, same, asked())) == "busy"
        found = await replica.runs.get("quick1")
        assert found is not None
        assert found.status == "ok"
        slow = await replica.runs.get("slow")
        assert slow is not None
        assert slow.status == "running"
    finally:
        await replica.close()
    await ledger.threads.add_message(thread, begun, FOUND)
    await ledger.threads.finish(thread, ok(begun), [asked(), LOOKING, FOUND, said()])
    assert len((await ledger.threads.history(thread))[0]) == 4
    assert len((await ledger.threads.history(other))[0]) == 4


@pytest.mark.slow
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
    begun = run("r0", thread)
    await ledger.threads.begin(thread, begun, asked())

    async def one(number: int) -> object:
        if number % 3 == 0:
            return await ledger.threads.add_message("none", begun, said())
        if number % 3 == 1:
            return await ledger.threads.create("jarvis", "me", handle="the same")
        return await ledger.threads.add_message(thread, begun, said(str(number)))

    outcomes = await asyncio.gather(*(one(number) for number in range(30)), return_exceptions=True)
    faults = [each for each in outcomes if isinstance(each, Fault)]
    assert [each for each in outcomes if isinstance(each, Exception) and not isinstance(each, Fault)] == []
    assert sorted(fault.data["reason"] for fault in faults) == ["conflict"] * 9 + ["not_found"] * 10
    contents = [row.content for row in (await ledger.threads.messages(thread)).items[1:]]
    assert sorted(map(int, contents)) == list(range(2, 30, 3))


async def test_what_nobody_waits_for_any_more_leaves_the_rest_as_it_is(ledger: Ledger) -> None:
    threads = [(await ledger.threads.create("jarvis", "me")).id for _ in range(20)]
    tasks = [asyncio.create_task(turn(ledger, each, f"r{number}")) for number, each in enumerate(threads)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert outcomes[1::2] == [1] * 10
    await turn(ledger, threads[1], "last")
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


async def traced(database: Database) -> list[str]:
    """The statements of the connection that writes, from this one's own commit on."""
    statements: list[str] = []

    def trace(connection: Connection) -> None:
        raw = driver_of(connection)
        assert raw is not None
        raw.set_trace_callback(statements.append)

    await database.write(trace)
    return statements


async def test_a_stored_turn_without_tools_is_three_commits(tmp_path: Path) -> None:
    ledger = await open_ledger(f"sqlite:///{tmp_path}/l.sqlite3")
    kernel = Kernel(EventHub())
    kernel.use_ledger(ledger)
    kernel.attach(FakeAgent(FakeExecutor(echo)))
    try:
        statements = await traced(ledger.database)
        for conversation in ("new", "new", "another"):
            statements.clear()
            await kernel.run(RunRequest("echo", "hi", conversation=conversation))
            # The question, the answer, and a moment later its events and steps with those of other turns.
            assert kernel.recorder is not None
            await kernel.recorder.settle()
            assert statements.count("COMMIT") == 3, statements
        statements.clear()
        turns = (kernel.run(RunRequest("echo", "hi", conversation=f"c{number}")) for number in range(50))
        await asyncio.gather(*turns)
        await kernel.recorder.settle()
        assert statements.count("COMMIT") < 3 * 50  # turns at once share them
    finally:
        await kernel.close(0.1)
        await kernel.close_records()
        await ledger.close()


async def test_a_file_is_read_again_only_after_a_commit_of_any_fleet(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'l.sqlite3'}"
    first, second = await open_ledger(url), await open_ledger(url)
    reads = 0

    def count(connection: Connection) -> int:
        nonlocal reads
        reads += 1
        return int(connection.exec_driver_sql("SELECT count(*) FROM threads").scalar_one())

    try:
        one = await first.database.read_again(count, None)
        assert (one.value, reads) == (0, 1)
        assert await first.database.read_again(count, one) is one
        assert reads == 1
        for number, ledger in enumerate((first, second), 1):  # its own commits too
            await ledger.threads.create("jarvis", "me")
            one = await first.database.read_again(count, one)
            assert one.value == number
        assert await first.database.read_again(count, one) is one
    finally:
        await first.close()
        await second.close()


async def test_writes_that_wait_together_are_committed_together(tmp_path: Path) -> None:
    database = await SqliteDatabase.open(tmp_path / "l.sqlite3", "shown", full=True)
    gate = threading.Event()
    try:
        statements = await traced(database)
        first = asyncio.create_task(database.write(lambda connection: gate.wait(30)))
        rest = [asyncio.create_task(database.write(lambda connection: 1)) for _ in range(50)]
        await asyncio.sleep(0)
        gate.set()
        assert await asyncio.gather(first, *rest) == [True] + [1] * 50
        assert 2 <= statements.count("COMMIT") <= 4  # that of the trace, and of one to three groups
    finally:
        gate.set()
        await database.close()


async def test_writes_that_are_committed_together_wake_the_loop_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await SqliteDatabase.open(tmp_path / "l.sqlite3", "shown")
    gate, loop = threading.Event(), asyncio.get_running_loop()
    wake, woken = loop.call_soon_threadsafe, 0

    def count(*given: Any, **more: Any) -> asyncio.Handle:
        nonlocal woken
        woken += 1
        return wake(*given, **more)

    try:
        first = asyncio.create_task(database.write(lambda connection: gate.wait(30)))
        rest = [asyncio.create_task(database.write(lambda connection, n=n: n)) for n in range(50)]
        await asyncio.sleep(0)
        monkeypatch.setattr(loop, "call_soon_threadsafe", count)
        gate.set()
        assert await asyncio.gather(first, *rest) == [True, *range(50)]
        assert woken <= 3  # one to three groups
    finally:
        gate.set()
        await database.close()


class Busy:
    """A write that takes as long as it is wanted to."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.end = threading.Event()

    def __call__(self, connection: Connection) -> None:
        self.begun.set()
        self.end.wait(30)

    async def at(self, database: Database) -> asyncio.Task[None]:
        """Begin it there."""
        task = asyncio.create_task(database.write(self))
        assert await asyncio.to_thread(self.begun.wait, 30)
        return task


async def test_a_write_that_nobody_waits_for_any_more_is_not_begun(tmp_path: Path) -> None:
    database = await SqliteDatabase.open(tmp_path / "l.sqlite3", "shown")
    busy, done = Busy(), list[int]()
    try:
        first = await busy.at(database)
        late = [asyncio.create_task(database.write(lambda connection, n=n: done.append(n))) for n in (1, 2)]
        await asyncio.sleep(0)
        late[0].cancel()
        await asyncio.wait({late[0]})
        busy.end.set()
        await asyncio.gather(first, late[1])
        assert done == [2]
    finally:
        busy.end.set()
        await database.close()


async def test_a_write_that_is_late_is_told_and_not_begun(tmp_path: Path) -> None:
    database = await SqliteDatabase.open(tmp_path / "l.sqlite3", "shown")
    busy, done = Busy(), list[int]()
    try:
        first = await busy.at(database)
        with pytest.raises(Fault) as caught:
            await database.write(lambda connection: done.append(1), seconds=0.01)
        assert caught.value.type is FaultType.TIMEOUT
        busy.end.set()
        await first
        await database.write(lambda connection: None)
        assert not done
    finally:
        busy.end.set()
        await database.close()


def test_a_loop_that_is_closed_leaves_the_writing_thread_alone(tmp_path: Path) -> None:
    busy = Busy()

    async def left() -> SqliteDatabase:
        database = await SqliteDatabase.open(tmp_path / "l.sqlite3", "shown")
        (await busy.at(database)).cancel()
        return database

    database = asyncio.run(left())
    busy.end.set()
    asyncio.run(database.close())


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
    for name, its, whole in (("l", thread, many), ("m", other, many[:100])):
        await ledger.threads.begin(its, run(name, its), whole[0])
        await ledger.threads.finish(its, ok(run(name, its)), whole)
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
