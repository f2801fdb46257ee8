"""A database in trouble: whoever waits is told what and where, nothing half done stays, and it goes on."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from support.databases import Server, fresh_database
from support.turns import asked, ok, run, said, turn

from pallas.ledger import Ledger, open_ledger
from pallas.ledger.database import in_detail
from pallas.model import Fault, FaultType


async def test_a_full_disk_is_told_and_what_was_kept_is_kept(tmp_path: object) -> None:
    ledger = await open_ledger(f"sqlite:///{tmp_path}/l.sqlite3")
    try:
        thread = (await ledger.threads.create("jarvis", "me")).id
        await turn(ledger, thread, "r1")
        pages = "PRAGMA max_page_count={}"

        async def limit(text: str) -> None:
            await ledger.database.write(lambda connection: connection.exec_driver_sql(text).close())

        begun = run("r2", thread)
        await ledger.threads.begin(thread, begun, asked())
        await limit(pages.format(1))
        with pytest.raises(Fault) as caught:
            await ledger.threads.finish(thread, ok(begun), [asked(), said("x" * 1_000_000)])
        assert caught.value.type is FaultType.TRANSPORT
        # The reason is for whoever runs the fleet, and not for callers.
        assert "full" in in_detail(caught.value)
        assert "full" not in caught.value.message
        assert "x" * 10 not in caught.value.message
        # Half of it is nowhere, and there is room again.
        assert [row.status for row in (await ledger.threads.messages(thread)).items[2:]] == ["pending"]
        await limit(pages.format(1_000_000))
        await ledger.threads.finish(thread, ok(begun), [asked(), said("x" * 1_000_000)])
        assert len((await ledger.threads.history(thread))[0]) == 4
    finally:
        await ledger.close()


@pytest.fixture
async def on_server(postgres: Server) -> AsyncIterator[tuple[Ledger, asyncpg.Connection]]:
    async with fresh_database(postgres) as url:
        ledger = await open_ledger(url)
        other = await asyncpg.connect(url)
        yield ledger, other
        await other.close()
        await ledger.close()


async def test_a_row_that_somebody_else_holds_is_waited_for_and_then_told(
    on_server: tuple[Ledger, asyncpg.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, other = on_server
    thread = (await ledger.threads.create("jarvis", "me")).id
    holding = other.transaction()
    await holding.start()
    await other.execute("SELECT * FROM threads FOR UPDATE")
    with monkeypatch.context() as patch:
        patch.setattr("pallas.ledger.postgres.DEADLINE", 0.5)
        with pytest.raises(Fault) as caught:
            await turn(ledger, thread, "r1")
    assert caught.value.type is FaultType.TIMEOUT
    assert (await ledger.threads.messages(thread)).items == ()
    waiting = asyncio.create_task(turn(ledger, thread, "r2"))
    await asyncio.sleep(0)
    await holding.rollback()
    assert await waiting == 1


async def test_a_connection_that_the_server_ended_is_replaced(
    on_server: tuple[Ledger, asyncpg.Connection],
) -> None:
    ledger, other = on_server
    thread = (await ledger.threads.create("jarvis", "me")).id
    await other.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    assert await turn(ledger, thread, "r1") == 1


@pytest.mark.slow
async def test_two_transactions_that_wait_for_each_other_both_end(
    on_server: tuple[Ledger, asyncpg.Connection],
) -> None:
    ledger, other = on_server
    first, second = [(await ledger.threads.create("jarvis", "me")).id for _ in range(2)]
    tries: list[int] = []
    met = asyncio.Event()

    def work(connection: object) -> None:
        from sqlalchemy import Connection, update

        from pallas.ledger.tables import threads

        assert isinstance(connection, Connection)
        tries.append(1)
        for thread in (second, first):
            connection.execute(update(threads).where(threads.c.id == thread).values(title="ours"))
            met.set()

    await other.execute("SET deadlock_timeout = '10s'")
    holding = other.transaction()
    await holding.start()
    await other.execute("UPDATE threads SET title = 'theirs' WHERE id = $1", first)
    mine = asyncio.create_task(ledger.database.write(work))
    await asyncio.wait_for(met.wait(), 30)
    # Now each has what the other wants: the server ends the one that was patient for less time.
    await other.execute("UPDATE threads SET title = 'theirs' WHERE id = $1", second)
    await holding.commit()
    await asyncio.wait_for(mine, 30)
    assert len(tries) > 1
    found = await ledger.threads.get(first)
    assert found is not None
    assert found.title == "ours"


async def test_a_server_that_is_not_there_or_lets_nobody_in_is_told(postgres: Server) -> None:
    for url in (postgres.url("nothing_here"), postgres.url().replace("pallas@", "stranger:s3cr3t@")):
        with pytest.raises(Fault) as caught:
            await open_ledger(url)
        assert caught.value.type is FaultType.CONFIG
        assert "does not exist" in caught.value.message
        assert "s3cr3t" not in caught.value.message
        assert "PALLAS_DATABASE_URL" in caught.value.message


@pytest.mark.slow
async def test_fleets_that_start_together_may_make_the_same_rows(database_url: str) -> None:
    ledgers = await asyncio.gather(*(open_ledger(database_url) for _ in range(4)))
    names = {f"agent{number}": f"agents.yaml:{number}" for number in range(20)}
    try:
        await asyncio.gather(*(each.resources.declare_agents(names) for each in ledgers))
        made = await asyncio.gather(
            *(each.threads.create(name, "me") for name in ("new", *names) for each in ledgers)
        )
        assert len({thread.id for thread in made}) == 4 * 21
        assert len((await ledgers[0].threads.list(agent="new")).items) == 4
    finally:
        for each in ledgers:
            await each.close()
