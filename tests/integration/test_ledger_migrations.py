"""The tables: the same whether made or brought up to date; those of a newer release are refused."""

import asyncio
import subprocess
import sys
from functools import partial
from typing import Any

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, delete, insert, inspect, text
from support.databases import fresh_database
from support.turns import FOUND, LOOKING, asked, ok, said, turn
from support.waiting import poll

from pallas.ledger import open_ledger
from pallas.ledger.blob_store import forget_unused, packed
from pallas.ledger.claims import Estate
from pallas.ledger.database import Database
from pallas.ledger.ledger_address import address_of
from pallas.ledger.migrate import configuration, upgrade
from pallas.ledger.postgres import PostgresDatabase
from pallas.ledger.sqlite import SqliteDatabase
from pallas.ledger.tables import HEAD, REVISIONS, blobs, metadata, run_events, runs, steps
from pallas.model import Fault, FaultType, Step, StoredField, StoredStep
from pallas.model.codec import encode_clean
from pallas.model.long_strings import shortened

NAMES = ("used", "offered", "left")


async def opened(url: str) -> Database:
    """A database and nothing of the ledger's."""
    address = address_of(url)
    if address.path is not None:
        return await SqliteDatabase.open(address.path, address.shown)
    return await PostgresDatabase.open(address.dsn, address.shown)


def shape(connection: Connection) -> dict[str, Any]:
    """Everything that the database itself says of its tables."""
    look = inspect(connection)

    def sorted_text(found: Any) -> list[str]:
        return sorted(repr(sorted((name, shown(value)) for name, value in each.items())) for each in found)

    def shown(value: Any) -> str:
        return str({key: str(each) for key, each in value.items()} if isinstance(value, dict) else value)

    return {
        table: (
            [{**column, "type": repr(column["type"])} for column in look.get_columns(table)],
            look.get_pk_constraint(table),
            sorted_text(look.get_foreign_keys(table)),
            sorted_text(look.get_unique_constraints(table)),
            sorted_text(look.get_check_constraints(table)),
            sorted_text(look.get_indexes(table)),
        )
        for table in sorted(look.get_table_names())
    }


def drift(connection: Connection) -> list[Any]:
    """What Alembic would change, but for the index of words, which SQLAlchemy has no words for."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    def known(part: Any, name: str | None, *_: Any) -> bool:
        return not is_of_search(name or "")

    options = {"compare_type": True, "include_object": known}
    found: list[Any] = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
    return found


def is_of_search(name: str) -> bool:
    """Whether a table or an index is one of ``message_search``: FTS5 makes several."""
    return name.startswith("message_words") or name == "messages_words_ix"


@pytest.mark.slow
async def test_tables_that_were_made_are_those_that_revisions_make(
    empty_database_url: str,
    request: pytest.FixtureRequest,
    tmp_path: Any,
) -> None:
    ledger = await open_ledger(empty_database_url)
    made = await ledger.database.read(shape)
    assert await ledger.database.read(drift) == []
    await ledger.close()

    async def upgraded(url: str) -> None:
        database = await opened(url)
        await database.write(upgrade)
        assert await database.read(drift) == []
        assert await database.read(shape) == made
        await database.close()

    if empty_database_url.startswith("sqlite"):
        await upgraded(f"sqlite:///{tmp_path}/other.sqlite3")
    else:
        async with fresh_database(request.getfixturevalue("postgres"), is_empty=True) as url:
            await upgraded(url)
    assert {each for each in made if not is_of_search(each)} == {*metadata.tables, "alembic_version"}


def test_the_revisions_of_the_package_are_those_that_the_tables_know() -> None:
    script = ScriptDirectory.from_config(configuration())
    assert tuple(each.revision for each in script.walk_revisions()) == REVISIONS[::-1]


async def test_tables_that_revisions_made_are_used_as_they_are(empty_database_url: str) -> None:
    database = await opened(empty_database_url)
    await database.write(upgrade)
    await database.close()
    ledger = await open_ledger(empty_database_url)
    thread = (await ledger.threads.create("jarvis", "me")).id
    assert await turn(ledger, thread, "r1") == 1
    await ledger.close()


async def test_older_tables_are_brought_up_to_date(
    empty_database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = await open_ledger(empty_database_url)
    await ledger.close()
    asked: list[Connection] = []
    monkeypatch.setattr("pallas.ledger.schema.HEAD", "9999")
    monkeypatch.setattr("pallas.ledger.migrate.upgrade", asked.append)
    ledger = await open_ledger(empty_database_url)
    await ledger.close()
    assert len(asked) == 1


BEFORE_ATTEMPTS = """
INSERT INTO agents (id, name, created_at, updated_at) VALUES ('a1', 'jarvis', 1, 1);
INSERT INTO threads (id, agent_id, owner, created_at, updated_at) VALUES ('t1', 'a1', 'me', 1, 1);
INSERT INTO runs (id, agent, owner, thread_id, status, life, started_at)
    VALUES ('r1', 'jarvis', 'me', 't1', 'running', '0123456789abcdef', 1)
"""


@pytest.mark.slow
async def test_runs_of_a_release_that_did_not_continue_any_are_put_into_error(
    empty_database_url: str,
) -> None:
    database = await opened(empty_database_url)

    def before(connection: Connection) -> None:
        config = configuration()
        config.attributes["connection"] = connection
        command.upgrade(config, "0003")
        for statement in BEFORE_ATTEMPTS.split(";"):
            connection.execute(text(statement))

    await database.write(before)
    await database.close()
    ledger = await open_ledger(empty_database_url)
    try:
        # A life that only the run mentions has a moment in PostgreSQL.
        estate = await poll(lambda: ledger.inherit(lambda agent: True), lambda found: found != Estate())
        assert estate == Estate(ended=("r1",))
        found = await ledger.runs.get("r1")
        assert found is not None
        assert (found.status, found.attempt) == ("error", 1)
        assert await turn(ledger, "t1", "r2") == 1
    finally:
        await ledger.close()


BEFORE_CLAIMS = """
INSERT INTO agents (id, name, created_at, updated_at) VALUES ('a1', 'jarvis', 1, 1);
INSERT INTO threads (id, agent_id, owner, created_at, updated_at, next_index, run_id, attempt)
    VALUES ('t1', 'a1', 'me', 1, 1, 1, 'r1', 2);
INSERT INTO runs (id, agent, owner, thread_id, status, life, started_at, attempt, request)
    VALUES ('r1', 'jarvis', 'me', 't1', 'running', '', 1, 2, '{}');
INSERT INTO messages (thread_id, turn_index, part, role, content, status, run_id, created_at)
    VALUES ('t1', 0, 0, 'user', 'hello', 'pending', 'r1', 1)
"""


async def test_a_run_that_has_no_claim_goes_on(empty_database_url: str) -> None:
    database = await opened(empty_database_url)

    def before(connection: Connection) -> None:
        config = configuration()
        config.attributes["connection"] = connection
        command.upgrade(config, "0010")
        for statement in BEFORE_CLAIMS.split(";"):
            connection.execute(text(statement))

    await database.write(before)
    await database.close()
    ledger = await open_ledger(empty_database_url)
    try:
        as_it_was = await ledger.runs.get("r1")
        assert as_it_was is not None
        assert (as_it_was.claim, await ledger.threads.has("t1", as_it_was)) == ("", True)
        ((claimed,), *_) = await ledger.inherit(lambda agent: True)
        record = claimed.record
        assert (record.attempt, record.claim != "") == (3, True)
        assert not await ledger.threads.has("t1", as_it_was)
        await ledger.threads.add_message("t1", record, LOOKING)
        await ledger.threads.add_message("t1", record, FOUND)
        whole = (asked(), LOOKING, FOUND, said())
        await ledger.threads.finish("t1", ok(record), whole)
        assert (await ledger.threads.history("t1"))[0] == whole
    finally:
        await ledger.close()


async def test_a_ledger_of_a_newer_release_is_refused(empty_database_url: str) -> None:
    ledger = await open_ledger(empty_database_url)
    newer = text("UPDATE alembic_version SET version_num = '9999'")
    await ledger.database.write(lambda connection: connection.execute(newer).rowcount)
    await ledger.close()
    with pytest.raises(Fault) as caught:
        await open_ledger(empty_database_url)
    assert caught.value.type is FaultType.CONFIG
    assert "newer release" in caught.value.message
    assert HEAD in caught.value.message
    assert "9999" in caught.value.message


async def test_a_database_with_other_tables_of_these_names_is_left_alone(empty_database_url: str) -> None:
    database = await opened(empty_database_url)
    foreign = text("CREATE TABLE messages (body TEXT)")
    await database.write(lambda connection: connection.execute(foreign).rowcount)
    await database.close()
    with pytest.raises(Fault) as caught:
        await open_ledger(empty_database_url)
    assert caught.value.type is FaultType.CONFIG
    assert "a database of its own" in caught.value.message
    database = await opened(empty_database_url)
    assert list(await database.read(shape)) == ["messages"]
    await database.close()


async def test_fleets_that_start_together_make_the_tables_once(empty_database_url: str) -> None:
    ledgers = await asyncio.gather(*(open_ledger(empty_database_url) for _ in range(6)))
    assert len({ledger.salt for ledger in ledgers}) == 1
    assert len({ledger.life for ledger in ledgers}) == 6
    for ledger in ledgers:
        await ledger.close()


LOADED = """
import asyncio, sys
from pallas.ledger import open_ledger

async def main():
    for _ in range(2):
        ledger = await open_ledger(sys.argv[1])
        await ledger.threads.create("jarvis", "me")
        await ledger.close()

asyncio.run(main())
print([name for name in ("alembic", "mako", "asyncpg", "greenlet") if name in sys.modules])
"""


@pytest.mark.slow
def test_a_start_of_every_day_loads_no_alembic_and_no_driver_that_is_not_used(tmp_path: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, f"sqlite:///{tmp_path}/l.sqlite3"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.strip() == "[]"


async def test_what_earlier_runs_share_is_kept_and_what_they_lack_is_said(empty_database_url: str) -> None:
    database = await opened(empty_database_url)
    short = shortened("x" * 40_000)
    fields = [StoredField("system", shared=("used",)), StoredField("text", f'"{short}"')]
    step = StoredStep(Step("r1", 1, "model", "m", 1.0, "done"), tuple(fields))
    run = {"id": "r1", "agent": "echo", "owner": "me", "life": "", "status": "ok", "started_at": 1.0}
    shared = [{"scope": "", "digest": each, "used_at": 1.0, "body": packed('"said"')} for each in NAMES]

    def before(connection: Connection) -> None:
        config = configuration()
        config.attributes["connection"] = connection
        command.upgrade(config, "0017")
        connection.execute(insert(runs), [run])
        row = {"run_id": "r1", "number": 1, "kind": "model", "name": "m", "state": "done", "started_at": 1.0}
        connection.execute(
            insert(steps), [{**row, "body": encode_clean(step, without=set()), "response": b"\0"}]
        )
        connection.execute(insert(blobs), shared)
        offers = {"question": "", "offers": {"shelf": "offered"}}
        connection.execute(insert(run_events), [{"run_id": "r1", "seq": 0, "at": 1.0, "body": offers}])

    await database.write(before)
    await database.close()
    ledger = await open_ledger(empty_database_url)
    try:
        await ledger.database.write(partial(forget_unused, now=10**6))
        assert await ledger.steps.shared(NAMES) == {"used": '"said"', "offered": '"said"'}
        detail = await ledger.steps.get("r1", 1)
        assert detail is not None
        assert detail.lacks == (
            "a text of 40000 characters: an earlier Pallas recorded its length and digest only",
        )
        await ledger.database.write(lambda connection: connection.execute(delete(runs)) and None)
        await ledger.database.write(partial(forget_unused, now=10**6))
        assert await ledger.steps.shared(NAMES) == {}
    finally:
        await ledger.close()
