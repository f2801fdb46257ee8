"""A database URL with several hosts: the fleet works with the server that takes writes."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import quote

import asyncpg
import pytest
from support.databases import Server, fresh_database

from pallas.ledger.postgres import PostgresDatabase
from pallas.ledger.postgres_servers import PostgresServers
from pallas.model import Fault, FaultType


@pytest.fixture
async def url(postgres: Server) -> AsyncIterator[str]:
    async with fresh_database(postgres) as made:
        yield made


def with_hosts(url: str, *hosts: str) -> str:
    """The same database at several hosts; an empty one is that of the URL."""
    start, own = url.split("host=")
    return f"{start}host={','.join(quote(host, safe='') or own for host in hosts)}"


async def read_only(url: str, value: str) -> None:
    """Have the server behave as a standby for new sessions, or as a primary again."""
    connection = await asyncpg.connect(url)
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute("SET default_transaction_read_only = off")
    await connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {value}")
    await connection.close()


async def test_a_server_that_is_gone_is_passed_over_and_then_tried_last(url: str) -> None:
    servers = PostgresServers(with_hosts(url, "/nowhere", ""))
    for _ in range(2):
        connection = await servers.connect()
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()
    assert servers._good == 1


@pytest.mark.slow
async def test_a_server_that_does_not_answer_takes_only_its_share_of_the_time(url: str) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        connection = await PostgresServers(f"{with_hosts(url, '127.0.0.1', '')}&port={port},5432").connect()
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()


@pytest.mark.parametrize("given", ["", "&target_session_attrs=read-write"])
async def test_a_server_that_takes_no_writes_is_waited_for_until_it_does(url: str, given: str) -> None:
    hosts = ("", "") if not given else ("",)
    await read_only(url, "on")
    database = PostgresDatabase(f"{with_hosts(url, *hosts)}{given}", "postgresql://***@h/db")
    with pytest.raises(Fault) as caught:
        await database.read(lambda connection: None)
    await database.close()
    assert caught.value.type is FaultType.TRANSPORT
    said: asyncio.Queue[str] = asyncio.Queue()
    opening = asyncio.create_task(
        PostgresDatabase.open(f"{with_hosts(url, *hosts)}{given}", "shown", tell=said.put_nowait)
    )
    async with asyncio.timeout(60):
        assert "no server is read-write" in await said.get()
        await read_only(url, "off")
        await (await opening).close()
    assert "answers again" in await said.get()
