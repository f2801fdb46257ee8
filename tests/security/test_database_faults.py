"""What callers read when the database fails: that it does, and nothing of where it is or what it said."""

import json
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from support.bridged import bridged
from support.live import ERAS, client, running
from support.ports import free_ports

from pallas.fleet.fleet import Fleet
from pallas.ledger.postgres import PostgresDatabase
from pallas.model import Fault, FaultType

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broken(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Fleet, Path]]:
    """A fleet whose database lost its tables, and the database's file."""
    root = tmp_path_factory.mktemp("broken")
    file = root / "ledger-of-a-private-place.sqlite3"
    async with running(bridged(root / "project", ("desk",)), database=f"sqlite:///{file}") as fleet:
        with closing(sqlite3.connect(file)) as database, database:
            for table in ("messages", "runs", "threads"):
                database.execute(f"ALTER TABLE {table} RENAME TO {table}_gone")
        yield fleet, file


def says_nothing_of_it(text: str, file: Path) -> None:
    assert "database" in text
    for secret in (
        str(file),
        file.name,
        str(file.parent),
        "sqlite",
        "no such table",
        "SELECT",
        "Operational",
    ):
        assert secret not in text, text


@pytest.mark.parametrize("era", ERAS)
async def test_over_mcp(
    broken: tuple[Fleet, Path],
    era: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet, file = broken
    # A reason is logged once in a while: here each time, whatever test met it before.
    monkeypatch.setattr("pallas.ledger.database._TELL_EVERY", 0.0)
    async with client(fleet, "desk", era=era) as door:
        for handle in ("new", "a-handle-of-mine"):
            result = await door.call_tool("send_message", {"message": "hi", "conversation_id": handle})
            assert result.is_error
            says_nothing_of_it(repr(result.content), file)
            fault = json.loads(getattr(result.content[0], "text", ""))
            assert fault["data"]["type"] == "TRANSPORT"
    # Who runs the fleet reads the reason, with the file.
    found = [each.getMessage() for each in caplog.records if "no such table" in each.getMessage()]
    assert [each for each in found if str(file) in each]


async def test_over_rest(broken: tuple[Fleet, Path]) -> None:
    fleet, file = broken
    body: dict[str, Any] = {"message": "hi"}
    async with httpx2.AsyncClient(
        base_url=f"{fleet.ports.origin}/api/v1", trust_env=False, timeout=30
    ) as http:
        for answer in (
            await http.post("/agents/desk/chat", json=body),
            await http.post("/agents/desk/chat", json={**body, "threadId": "conv-" + "x" * 24}),
            await http.get("/threads"),
            await http.get("/runs"),
            await http.get("/threads/some"),
        ):
            assert answer.status_code >= 500, answer.text
            says_nothing_of_it(answer.text, file)


async def test_a_server_that_is_away_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    (port,) = free_ports(1)
    url = f"postgresql://secret-user:secret-word@127.0.0.1:{port}/secret-name"
    database = PostgresDatabase(url, f"postgresql://127.0.0.1:{port}/secret-name")
    with pytest.raises(Fault) as caught:
        await database.read(lambda connection: None)
    await database.close()
    assert caught.value.type is FaultType.TRANSPORT
    for secret in ("127.0.0.1", str(port), "secret", "Errno", "Connect"):
        assert secret not in caught.value.message
        assert secret not in json.dumps(caught.value.to_body())
    assert f"127.0.0.1:{port}" in caplog.text
    assert "secret-word" not in caplog.text
    assert logging.getLevelName(caplog.records[-1].levelno) == "ERROR"
