"""Statements that go past SQLAlchemy on SQLite do the same as through it, on each database."""

import asyncio
import threading
from pathlib import Path

import pytest
from sqlalchemy import Connection, bindparam, delete, insert, select, update
from sqlalchemy.exc import DatabaseError, IntegrityError

from pallas.ledger import Ledger, open_ledger
from pallas.ledger.hot_statement import HotStatement
from pallas.ledger.tables import agents
from pallas.model import Fault, FaultType

INSERT = HotStatement(insert(agents))
NAMES = HotStatement(
    select(agents.c.name, agents.c.extras).where(agents.c.name != bindparam("not")).order_by(agents.c.name)
)
RENAME = HotStatement(
    update(agents)
    .where(agents.c.id == bindparam("key"))
    .values(name=bindparam("to"), made=True)
    .returning(agents.c.made)
)
DELETE = HotStatement(delete(agents))


def row(name: str, **more: object) -> dict[str, object]:
    return {"id": f"id-{name}", "name": name, "created_at": 1.0, "updated_at": 1.0, **more}


async def test_they_write_read_and_count_with_the_types_of_their_columns(ledger: Ledger) -> None:
    write, read = ledger.database.write, ledger.database.read
    assert await write(lambda c: INSERT.run(c, row("a\0b", extras={"é": [1, None]}))) == 1
    await write(lambda c: INSERT.run_many(c, [row("c"), row("d")]))
    found = await read(lambda c: NAMES.rows(c, {"not": "c"}))
    # Text that no database takes is made visible; JSON comes as the driver has it.
    assert [each[0] for each in found] == ["a\\x00b", "d"]
    assert found[0][1] in ({"é": [1, None]}, '{"é":[1,null]}')
    assert await read(lambda c: NAMES.rows(c, {"not": "x' OR '1"})) == await read(
        lambda c: NAMES.rows(c, {"not": ""})
    )
    assert [bool(each[0]) for each in await write(lambda c: RENAME.rows(c, {"key": "id-c", "to": "e"}))] == [
        True
    ]
    assert await write(lambda c: RENAME.rows(c, {"key": "none", "to": "f"})) == []
    assert await write(lambda c: DELETE.run(c, {})) == 3


async def test_their_errors_are_those_of_sqlalchemy_and_a_write_that_fails_leaves_nothing(
    ledger: Ledger,
) -> None:
    write = ledger.database.write

    def twice(connection: Connection) -> None:
        INSERT.run(connection, row("one"))
        INSERT.run(connection, row("one", id="secret text of a user"))

    seen: list[DatabaseError] = []

    def caught(connection: Connection) -> None:
        try:
            twice(connection)
        except DatabaseError as error:
            seen.append(error)
            raise

    with pytest.raises(Fault) as fault:
        await write(caught)
    assert fault.value.type is FaultType.TRANSPORT
    assert isinstance(seen[0], IntegrityError)
    assert "secret text" not in fault.value.message
    assert await ledger.database.read(lambda c: NAMES.rows(c, {"not": ""})) == []


async def test_of_writes_that_wait_together_one_that_fails_fails_alone(ledger: Ledger) -> None:
    write = ledger.database.write

    def failing(connection: Connection) -> None:
        INSERT.run(connection, row("lost"))
        raise Fault(FaultType.PROTOCOL, "refused")

    works = [
        *(write(lambda c, name=f"n{number}": INSERT.run(c, row(name))) for number in range(20)),
        write(failing),
        *(write(lambda c, name=f"m{number}": INSERT.run(c, row(name))) for number in range(20)),
    ]
    results = await asyncio.gather(*works, return_exceptions=True)
    assert [each for each in results if each != 1] == [results[20]]
    assert isinstance(results[20], Fault)
    names = [each[0] for each in await ledger.database.read(lambda c: NAMES.rows(c, {"not": ""}))]
    assert sorted(names) == sorted([f"n{n}" for n in range(20)] + [f"m{n}" for n in range(20)])


async def test_what_a_full_disk_ends_is_not_there_and_what_succeeded_is(tmp_path: Path) -> None:
    ledger = await open_ledger(f"sqlite:///{tmp_path}/l.sqlite3")
    try:
        write = ledger.database.write
        pages = await write(lambda c: c.exec_driver_sql("PRAGMA page_count").scalar_one())
        await write(lambda c: c.exec_driver_sql(f"PRAGMA max_page_count={pages + 2}").close())
        gate = threading.Event()
        held = asyncio.create_task(write(lambda c: gate.wait(30)))
        sizes = [("a", 1), ("huge", 1_000_000), ("b", 1), ("huge2", 1_000_000), ("c", 1)]
        works = [
            asyncio.create_task(write(lambda c, n=name, s=size: INSERT.run(c, row(n, description="x" * s))))
            for name, size in sizes
        ]
        await asyncio.sleep(0)
        gate.set()
        await held
        results = await asyncio.gather(*works, return_exceptions=True)
        await write(lambda c: c.exec_driver_sql("PRAGMA max_page_count=1000000").close())
        names = {each[0] for each in await ledger.database.read(lambda c: NAMES.rows(c, {"not": ""}))}
        assert names == {name for (name, _), result in zip(sizes, results, strict=True) if result == 1}
        assert not names & {"huge", "huge2"}
        assert await write(lambda c: INSERT.run(c, row("later"))) == 1
    finally:
        await ledger.close()
