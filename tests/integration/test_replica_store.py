"""The list of replicas: what each fleet reports, which are dead, and what it costs the ledger."""

import asyncio
import signal
import sys
from collections.abc import Callable
from time import time
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, insert, select, update
from support.databases import Server, fresh_database
from support.turns import asked, ok, run
from support.waiting import poll, until

from pallas import __version__
from pallas.fleet.takeover import Takeover
from pallas.ledger import Ledger, advisory_locks, open_ledger, run_store
from pallas.ledger import lives as ledger_lives
from pallas.ledger.tables import lives
from pallas.model import EndedRun, Fault, LifeReport, Notice, ReplicaRecord, RunTexts
from pallas.runs.kernel import Kernel
from pallas.telemetry.event_hub import EventHub

HOSTILE = "\x1b]52;c;cm0gLXJmIC8=\x07desk\u202e"
DYING = """
import asyncio, sys
from pallas.ledger import open_ledger
from pallas.model import LifeReport

async def main(url):
    ledger = await open_ledger(url, report=lambda: LifeReport("serving", 3, 2))
    print(ledger.replica, flush=True)
    await asyncio.sleep(600)

asyncio.run(main(sys.argv[1]))
"""


class Reporting:
    """A fleet's report, as a test says."""

    def __init__(self, state: str = "serving", runs: int = 0, taken_over: int = 0) -> None:
        self.now = LifeReport(state, runs, taken_over)

    def __call__(self) -> LifeReport:
        return self.now


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports are written soon, and a fleet whose lock is free is dead at once."""
    monkeypatch.setattr(advisory_locks, "BEAT_SECONDS", 0.02)
    monkeypatch.setattr(advisory_locks, "MISSED_SECONDS", 0.0)
    monkeypatch.setattr(advisory_locks, "SETTLED_SECONDS", 0.0)
    monkeypatch.setattr(ledger_lives, "REPORT_SECONDS", 0.02)
    monkeypatch.setattr(ledger_lives, "_LOOK_SECONDS", 0.01)


async def listed(ledger: Ledger, seen: Callable[[tuple[ReplicaRecord, ...]], bool]) -> list[ReplicaRecord]:
    """The replicas, once they are as ``seen`` says."""

    async def replicas() -> tuple[ReplicaRecord, ...]:
        return (await ledger.replicas.list()).items

    return list(await poll(replicas, seen))


async def test_each_fleet_is_listed_as_it_reports_itself(database_url: str) -> None:
    before = time()
    one, two = Reporting("starting"), Reporting("serving", 4, 1)
    first = await open_ledger(database_url, report=one)
    second = await open_ledger(database_url, report=two)
    reader = await open_ledger(database_url)  # no fleet: it is not listed
    found = await listed(reader, lambda all_: len(all_) == 2)
    assert [each.id for each in found] == [first.replica, second.replica]
    assert [each.release for each in found] == [__version__, __version__]
    assert all(before <= each.started_at <= time() for each in found)
    assert [(each.state, each.runs, each.taken_over) for each in found] == [
        ("starting", 0, 0),
        ("serving", 4, 1),
    ]
    one.now, two.now = LifeReport("serving", 2, 0), LifeReport("draining", 3, 1)
    # The one that is asked knows itself without waiting; the other one is read.
    own = await first.replicas.get(first.replica)
    assert (own.state, own.runs, own.is_here) == ("serving", 2, True)
    found = await listed(reader, lambda all_: [each.runs for each in all_] == [2, 3])
    assert [each.state for each in found] == ["serving", "draining"]
    is_server = database_url.startswith("postgresql")
    assert all((each.beat_age is not None) is is_server for each in found)
    with pytest.raises(Fault, match="replica not found"):
        await reader.replicas.get("0" * 8)
    with pytest.raises(Fault, match="replica not found"):
        await reader.replicas.get("%")
    for each in (second, first, reader):
        await each.close()


@pytest.mark.slow
async def test_a_fleet_that_is_killed_is_dead_and_looking_leaves_it_to_who_takes_over(
    database_url: str,
) -> None:
    ledger = await open_ledger(database_url, report=Reporting())
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DYING, database_url, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    name = (await asyncio.wait_for(child.stdout.readline(), 60)).decode().strip()
    found = await listed(ledger, lambda all_: len(all_) == 2)
    assert [(each.id, each.state, each.runs, each.taken_over) for each in found] == [
        (ledger.replica, "serving", 0, 0),
        (name, "serving", 3, 2),
    ]
    assert found[1].pid == child.pid
    child.send_signal(signal.SIGKILL)
    await child.wait()
    await listed(ledger, lambda all_: all_[1].state == "dead")
    await ledger.inherit(lambda agent: True)
    assert [each.id for each in await listed(ledger, lambda all_: len(all_) == 1)] == [ledger.replica]
    await ledger.close()


async def test_runs_that_a_fleet_took_over_are_counted_while_they_run(database_url: str) -> None:
    first = await open_ledger(database_url, report=Reporting())
    thread = await first.threads.create("jarvis", "me")
    begun = run("r1", thread.id)
    await first.threads.begin(thread.id, begun, asked(), request="{}")
    await first.close(hand_over=True)
    second = await open_ledger(database_url, report=Reporting(taken_over=1))
    await poll(lambda: second.inherit(lambda agent: True), lambda estate: estate.claimed)
    found = await second.replicas.get(second.replica)
    assert (found.continued, found.taken_over) == (1, 1)
    await second.close()


async def test_a_beat_is_one_statement(postgres: Server) -> None:
    async with fresh_database(postgres) as url:
        ledger = await open_ledger(url, report=Reporting(runs=7))
        statements: list[str] = []
        event.listen(
            ledger.database._engine.sync_engine,  # type: ignore[attr-defined]
            "before_cursor_execute",
            lambda _, cursor, statement, *rest: statements.append(statement),
        )
        asked_for: list[str] = []
        beats = ledger._locks._connection  # type: ignore[attr-defined]
        beats.add_query_logger(lambda asked: asked_for.append(asked.query))
        await until(lambda: len(asked_for) >= 3)
        assert set(asked_for) == {advisory_locks._BEAT}
        assert statements == []
        await ledger.close()


async def test_on_sqlite_nothing_is_written_while_nothing_changes(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_lives, "REPORT_SECONDS", 3_600.0)
    report = Reporting("starting")
    ledger = await open_ledger(f"sqlite:///{tmp_path}/l.sqlite3", report=report)
    reader = await open_ledger(f"sqlite:///{tmp_path}/l.sqlite3")
    await listed(reader, lambda all_: len(all_) == 1)
    writes: list[object] = []
    write = ledger.database.write

    async def counted(work: object, **more: object) -> object:
        writes.append(work)
        return await write(work, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(ledger.database, "write", counted)
    looks = 0

    def counting() -> LifeReport:
        nonlocal looks
        looks += 1
        return report()

    monkeypatch.setattr(ledger._locks, "_report", counting)
    # Numbers wait for their time, another state does not.
    report.now = LifeReport("starting", 5)
    await until(lambda: looks > 5)
    assert writes == []
    report.now = LifeReport("serving", 5)
    await listed(reader, lambda all_: (all_[0].state, all_[0].runs) == ("serving", 5))
    assert len(writes) == 1
    await ledger.close()
    await reader.close()


async def test_the_list_comes_in_pages_and_shows_foreign_text_safely(database_url: str) -> None:
    ledger = await open_ledger(database_url)

    def more(connection: Connection) -> None:
        rows = [
            {"id": f"{number:016x}", "host": HOSTILE, "pid": 1, "started_at": number, "state": "serving"}
            for number in range(1, 8)
        ]
        connection.execute(insert(lives), rows)
        connection.execute(update(lives).where(lives.c.pid == 1).values(release=HOSTILE))

    await ledger.database.write(more)
    found, cursor = [], ""
    for size in (3, 3, 1):
        page = await ledger.replicas.list(limit=3, cursor=cursor)
        assert len(page.items) == size
        found, cursor = [*found, *page.items], page.next
    assert cursor == ""
    assert [each.started_at for each in found] == list(range(1, 8))
    assert not any(character in each.host + each.release for each in found for character in "\x1b\x07\u202e")
    with pytest.raises(Fault, match="cursor"):
        await ledger.replicas.list(cursor="nonsense")
    with pytest.raises(Fault, match="limit"):
        await ledger.replicas.list(limit=1_000)
    await ledger.close()


async def test_different_releases_are_reported_once_per_change(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await open_ledger(database_url, report=Reporting())
    hub = EventHub()
    kernel = Kernel(hub)
    kernel.use_ledger(ledger)
    takeover = Takeover(ledger, kernel, hub, None)

    async def said(looks: int = 2) -> list[tuple[str, str]]:
        # A look while a heartbeat of our own is late, on a busy machine, judges nothing.
        before = hub.since(0).next
        for _ in range(looks):
            await takeover.look()
        events = hub.since(before).events
        return [(each.level, each.text) for each in events if isinstance(each, Notice)]

    same = await open_ledger(database_url, report=Reporting())
    program = await open_ledger(database_url)  # no fleet: its release does not matter
    assert await said() == []
    await until(lambda: _sees(takeover, ledger, 1))
    monkeypatch.setattr(ledger_lives, "__version__", f"0.0.1{HOSTILE}")
    older = await open_ledger(database_url, report=Reporting())
    ((level, text),) = await until(said)
    assert level == "warning"
    assert "different releases: 1 x 0.0.1" in text
    assert f"2 x {__version__}; update" in text
    assert not any(character in text for character in "\x1b\x07\u202e")
    await same.close()
    assert await said() == []  # the releases are the same two
    await older.close()
    assert await until(said) == [("info", f"all replicas have release {__version__} now")]
    await program.close()
    await ledger.close()


async def _sees(takeover: Takeover, ledger: Ledger, others: int) -> bool:
    await takeover.look()
    return len(ledger.other_releases) == others


@pytest.mark.slow
async def test_the_store_refuses_to_drain_what_cannot_drain_and_says_why(database_url: str) -> None:
    heard: list[str] = []
    one = await open_ledger(database_url, report=Reporting(), drain=heard.append)
    two = await open_ledger(database_url, report=Reporting(), drain=heard.append)
    in_workbench = await open_ledger(database_url, report=Reporting())
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DYING, database_url, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    dead = (await asyncio.wait_for(child.stdout.readline(), 60)).decode().strip()
    child.send_signal(signal.SIGKILL)
    await child.wait()
    await listed(one, lambda all_: all_[-1].state == "dead")
    for name, words in (
        ("0" * 8, "pallas get replicas"),
        ("%", "pallas get replicas"),
        (dead, "is dead"),
        (in_workbench.replica, "runs in a workbench, or has an older release"),
    ):
        with pytest.raises(Fault, match=words):
            await one.replicas.request_drain(name)
    await one.replicas.request_drain(two.replica)
    await until(lambda: bool(heard))
    assert set(heard) == {one.replica}
    with pytest.raises(Fault, match="is draining already"):
        await in_workbench.replicas.request_drain(two.replica)
    # A life that is written again, because others took it for dead, does not forget what it was asked.
    await two.database.write(ledger_lives.enrolling(two.life, time(), Reporting()))
    with pytest.raises(Fault, match="is draining already"):
        await one.replicas.request_drain(two.replica)
    for each in (in_workbench, two, one):
        await each.close()


async def test_a_look_costs_the_same_with_one_life_and_with_a_hundred(postgres: Server) -> None:
    async with fresh_database(postgres) as url:
        ledger = await open_ledger(url, report=Reporting())
        statements: list[str] = []
        event.listen(
            ledger.database._engine.sync_engine,  # type: ignore[attr-defined]
            "before_cursor_execute",
            lambda _, cursor, statement, *rest: statements.append(statement),
        )

        async def costs(lives_there: range) -> int:
            def more(connection: Connection) -> None:
                rows = [
                    {"id": f"{number:016x}", "host": "h", "pid": 1, "started_at": 1.0, "seen": 1e12}
                    for number in lives_there
                ]
                connection.execute(insert(lives), rows)

            await ledger.database.write(more)
            statements.clear()
            await ledger.inherit(lambda agent: True)
            return len(statements)

        one = await costs(range(1, 2))
        hundred = await costs(range(2, 101))
        assert 0 < hundred == one
        assert ledger.has_others
        # One of them dies: that one alone is looked at closely.
        gone = update(lives).where(lives.c.id == f"{7:016x}").values(seen=1.0)
        await ledger.database.write(lambda connection: connection.execute(gone))
        statements.clear()
        await ledger.inherit(lambda agent: True)
        assert sum("pg_try_advisory_xact_lock" in each for each in statements) == 1
        left = await ledger.database.read(lambda connection: connection.execute(select(lives.c.id)).all())
        assert len(left) == 100  # the other 99, and this one
        await ledger.close()


async def test_runs_of_other_fleets_are_found_as_they_are_and_known_ones_by_their_ids(
    database_url: str,
) -> None:
    one, two = [await open_ledger(database_url, report=Reporting()) for _ in range(2)]
    reader = await open_ledger(database_url)  # no fleet: what it writes is none of theirs
    now = time()
    for ledger, name in ((one, "mine"), (two, "runs"), (two, "ended"), (two, "old"), (reader, "stray")):
        await ledger.runs.begin(run(name, started_at=now))
    for name, at in (("ended", now), ("old", now - 600)):
        await two.runs.finish(run(name, started_at=now, status="ok", finished_at=at))

    async def found(*known: str) -> dict[str, tuple[str, str]]:
        return {each.id: (each.status, there) for each, there in await one.runs.elsewhere(known)}

    there = two.replica
    assert await found() == {"runs": ("running", there), "ended": ("ok", there)}
    assert await found("mine", "old", "unknown") == {
        "runs": ("running", there),
        "ended": ("ok", there),
        "old": ("ok", there),
        "mine": ("running", one.replica),
    }
    # As another worker process of the same fleet answers.
    assert {run.id for run, _ in await one.runs.elsewhere(here=there)} == {"mine"}
    for ledger in (reader, two, one):
        await ledger.close()


async def test_the_last_runs_of_all_fleets_are_told_with_their_events_within_bounds(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_store, "_EVENTS_OF_RUN", 3)
    monkeypatch.setattr(run_store, "_EVENTS_OF_ALL", 5)
    gone, one, two = [await open_ledger(database_url, report=Reporting()) for _ in range(3)]
    now = time()
    for number, (ledger, name) in enumerate(((gone, "gone"), (one, "mine"), (two, "theirs"), (two, "runs"))):
        await ledger.runs.begin(begun := run(name, started_at=now + number))
        if name != "runs":
            ended = EndedRun(name, ok(begun), [(seq, {"is": seq}) for seq in range(1, 6)])
            await ledger.runs.record([ended._replace(texts=RunTexts("a question"))])
    await gone.close()
    last = await one.runs.last(50)
    assert [(each.run.id, each.replica) for each in last] == [
        ("gone", ""),
        ("mine", one.replica),
        ("theirs", two.replica),
    ]
    # The newest have their last events, and the first one, which says what was asked.
    assert [[event["is"] for event in each.events] for each in last] == [[], [1, 5], [1, 4, 5]]
    assert [each.run.id for each in await one.runs.last(1)] == ["theirs"]
    for ledger in (two, one):
        await ledger.close()


async def test_the_runs_of_other_fleets_are_read_by_indexes() -> None:
    ledger = await open_ledger("memory")
    asked_for: list[tuple[str, Any]] = []

    def hear(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        asked_for.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", hear)
    try:
        await ledger.runs.elsewhere(["some"])
    finally:
        event.remove(Engine, "before_cursor_execute", hear)
    asked_for = [each for each in asked_for if "FROM runs" in each[0]]

    def explain(connection: Connection) -> str:
        plans = (connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {how}", values) for how, values in asked_for)
        return "\n".join(str(row[-1]) for plan in plans for row in plan)

    plan = await ledger.database.read(explain)
    assert len(asked_for) == 3
    assert "runs_running_ix" in plan, plan
    assert "TEMP B-TREE" not in plan, plan
    # The newest ones are the first of their index; nothing else is read from one end to the other.
    scans = [line for line in plan.splitlines() if line.startswith("SCAN runs")]
    assert scans == ["SCAN runs USING COVERING INDEX runs_started_at_id_ix"], plan
    await ledger.close()
