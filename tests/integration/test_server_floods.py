"""A server that says things without end, beside servers that do not: calls of all of them are answered."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from support.counted import CountedServer, Kind, counted_project
from support.counted_calls import callers
from support.live import running
from support.waiting import until

CALLS = 15
LOG = {"method": "notifications/message", "params": {"level": "info", "data": "x" * 200}}
PROGRESS = {"method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}
CHANGED = {"method": "notifications/tools/list_changed"}
UNKNOWN = {"method": "notifications/odd"}
PING = {"id": "flood", "method": "ping"}

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("kind", "floods"),
    [
        ("stdio-handshake", LOG),
        ("stdio-handshake", PING),
        ("http-python", PROGRESS),
        ("http-sse", UNKNOWN),
        ("http-sse", CHANGED),
    ],
)
async def test_neighbours_of_a_server_that_floods_are_answered_and_so_is_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: Kind, floods: dict[str, Any]
) -> None:
    caplog.set_level(logging.WARNING)
    loud = CountedServer("loud", kind, tmp_path / "loud", {"floods": floods})
    calm = [CountedServer(name, each, tmp_path / name) for name, each in NEIGHBOURS.items()]
    try:
        for server in (loud, *calm):
            await server.start()
        async with running(counted_project(tmp_path / "p", [loud, *calm], callers=3)) as fleet:
            await until(lambda: "those beyond are dropped" in caplog.text)
            for server in (*calm, loud):
                async with callers(fleet, server, 2) as found:
                    for _ in range(CALLS):
                        calls = await asyncio.gather(found.call())
                        assert [each for call in calls for each in call if not each.is_answered] == []
    finally:
        for server in (loud, *calm):
            server.end()


NEIGHBOURS: dict[str, Kind] = {"pipe": "stdio-modern", "web": "http-modern", "events": "http-sse"}
