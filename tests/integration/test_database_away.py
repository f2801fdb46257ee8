"""A replica that starts while its database server is away: it waits, unless waiting cannot help."""

import asyncio
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import asyncpg
import pytest
from support.databases import Server, new_server
from support.live import ECHO, ERAS, write_project
from support.served import served, text_of
from support.survivors import project
from support.threads import started
from support.waiting import until

from pallas.model import FleetState

WAITS: Final = "waiting for it until"
AWAY_SECONDS: Final = "pallas.ledger.postgres.AWAY_SECONDS"


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of this test alone."""
    made = new_server()
    yield made
    made.close()


def waits(root: Path) -> list[str]:
    """The lines of the fleet's log about its wait."""
    log = root.parent / f"{root.name}.pallas.log"
    return [line for line in log.read_text("utf-8").splitlines() if WAITS in line]


@pytest.mark.slow
async def test_a_replica_waits_for_a_server_that_is_away_and_then_starts(
    server: Server, tmp_path: Path
) -> None:
    root = project(tmp_path / "project", server.url())
    server.stop()
    with served(root) as fleet:
        said = await fleet.says(WAITS)
        assert "postgresql://***@" in said
        assert "cannot be reached" in said
        assert server.url() not in said
        await asyncio.to_thread(server.start)
        await fleet.says("answers again: the fleet starts")
        await fleet.says("] running")
        async with fleet.client("clerk", ERAS[1]) as clerk:
            answer = await clerk.call_tool("send_message", {"message": "hi", "conversation_id": "mine"})
        assert text_of(answer) == "turn 1"
        fleet.send(signal.SIGTERM)
        assert await fleet.ended() == 0
    assert len(waits(root)) == 1


@pytest.mark.slow
async def test_a_replica_ends_when_the_server_stays_away(server: Server, tmp_path: Path) -> None:
    root = project(tmp_path / "project", server.url())
    server.stop()
    with served(root, constants={AWAY_SECONDS: 1.0}) as fleet:
        assert await fleet.ended() == 2
        assert any(WAITS in line for line in fleet.err)
        assert "cannot be reached" in fleet.err[-1]
        assert fleet.err[-1].endswith("look at database_url: in agents.yaml, or PALLAS_DATABASE_URL")


@pytest.mark.slow
async def test_a_signal_ends_the_wait(server: Server, tmp_path: Path) -> None:
    root = project(tmp_path / "project", server.url())
    server.stop()
    with served(root, constants={AWAY_SECONDS: 3_600.0}) as fleet:
        await fleet.says(WAITS)
        fleet.send(signal.SIGTERM)
        assert await fleet.ended() == 0


async def with_passwords(server: Server) -> str:
    """Have the server ask for passwords; returns a URL with a wrong one."""
    connection = await asyncpg.connect(server.url())
    await connection.execute("ALTER ROLE pallas PASSWORD 'the right one'")
    await connection.close()
    rules = server.folder / "data" / "pg_hba.conf"
    user = rules.stat()
    rules.write_text("local all all scram-sha-256\n")
    shutil.chown(rules, user.st_uid, user.st_gid)
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(server.start)
    return server.url().replace("pallas@", "pallas:a-wrong-one@")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("password", "password authentication failed"),
        ("database", "does not exist"),
        ("role", "does not exist"),
        ("url", "port"),
    ],
)
async def test_what_waiting_cannot_cure_ends_the_start_at_once(
    server: Server, tmp_path: Path, what: str, reason: str
) -> None:
    url = {
        "database": server.url("nowhere"),
        "role": server.url().replace("pallas@", "nobody@"),
        "url": "postgresql://pallas@127.0.0.1:none/pallas",
    }.get(what) or await with_passwords(server)
    with served(project(tmp_path / "project", url)) as fleet:
        assert await fleet.ended() == 2
        assert reason in "\n".join(fleet.err)
        assert not any(WAITS in line for line in (*fleet.out, *fleet.err))
        assert "a-wrong-one" not in "\n".join(fleet.err)


@pytest.mark.slow
async def test_the_fleet_of_a_workbench_does_not_wait(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALLAS_LOG_FILE", str(tmp_path / "pallas.log"))
    root = write_project(tmp_path / "project", {"echo": None}, config=dict(ECHO))
    agents = root / "agents.yaml"
    agents.write_text(f"{agents.read_text('utf-8')}\ndatabase_url: {server.url()}\n", "utf-8")
    server.stop()
    with started(root) as fleet:
        await until(lambda: fleet.snapshot().state is FleetState.FAILED, timeout=60)
        assert "cannot be reached" in fleet.snapshot().error
        assert not any(WAITS in str(event) for event in fleet.since(0).events)
