"""Servers as they start, die for good and end: how often they are started, what health says, no orphans."""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.counted import CountedServer, Kind, counted_project
from support.counted_calls import Callers, callers
from support.live import agent_module, all_ready, running, write_project
from support.served import Served, served, text_of
from support.waiting import poll, until

from pallas.fleet.fleet import Fleet
from pallas.fleet.health_monitor import CheckIntervals
from pallas.model import HealthStatus, Notice
from pallas.telemetry.log import close_logging, setup_logging
from pallas.telemetry.log.server_output import VARIABLE

QUICK = CheckIntervals(health=0.2, confirm=0.1)


@contextmanager
def counted(root: Path, name: str, kind: Kind, **settings: Any) -> Iterator[CountedServer]:
    """A server whose processes are killed at the end."""
    server = CountedServer(name, kind, root / "servers" / name, settings)
    server.open("gate")
    try:
        yield server
    finally:
        server.end()


async def answered(one: Callers) -> None:
    """Wait until a call is answered."""
    await poll(one.call, lambda calls: calls[0].is_answered, timeout=90)


@pytest.mark.slow
@pytest.mark.parametrize("first", ["answer", "exit", "null", pytest.param("silence", marks=pytest.mark.slow)])
async def test_a_stdio_server_that_takes_only_initialize_first_is_reached_and_its_version_remembered(
    tmp_path: Path, first: str
) -> None:
    with counted(tmp_path, "old", "stdio-handshake", first=first) as server:
        async with (
            running(counted_project(tmp_path / "p", [server])) as fleet,
            callers(fleet, server, 1) as one,
        ):
            await answered(one)
            # One process for the opening of 2026-07-28, which it does not survive, and one for the handshake.
            assert len(server.started) <= (1 if first == "answer" else 2)
            before = set(server.started)
            await server.kill()
            await server.start()
            assert [each for each in await one.call() if not each.is_answered] == []
            (again,) = set(server.started) - before
            if first != "answer":
                assert server.events("message", pid=again)[0]["method"] == "initialize"
            assert one.none_twice()


@pytest.fixture
def log_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(VARIABLE, "1")
    yield setup_logging("info", path=tmp_path / "pallas.log", stderr=False)
    close_logging()


async def test_what_a_stdio_server_says_while_it_starts_is_seen_before_it_has_started(
    tmp_path: Path, log_file: Path
) -> None:
    with counted(tmp_path, "loading", "stdio-handshake", loads=1) as server:

        async def be_ready() -> None:
            await until(lambda: "loading the model" in log_file.read_text("utf-8"))
            server.open("ready")

        helping = asyncio.create_task(be_ready())
        async with (
            running(counted_project(tmp_path / "p", [server])) as fleet,
            callers(fleet, server, 1) as one,
        ):
            await answered(one)
            assert len(server.started) == 1
        await helping


async def test_a_stdio_server_that_is_not_ready_yet_is_still_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pallas.executors.fastagent.connect_plan.CONNECT_SECONDS", 1)
    with counted(tmp_path, "loading", "stdio-handshake", loads=1) as server:
        root = counted_project(tmp_path / "p", [server])
        async with running(root, pace=QUICK) as fleet, callers(fleet, server, 1) as one:
            result = await one.clients[0].call_tool("send_message", {"message": "hi"})
            assert "is still starting" in json.dumps(result.meta)
            assert await told_health(one) == "degraded"
            await until(lambda: "is still starting" in fleet.snapshot().agents[0].downstreams[0].detail)
            server.open("ready")
            await answered(one)
            await until(lambda: health(fleet) is HealthStatus.OK)
            assert len(server.started) == 1


@pytest.mark.parametrize("is_read", [True, False], ids=["stderr is read", "it is not"])
async def test_a_program_that_ends_at_once_is_missing_with_how_it_ended_and_what_it_said_last(
    tmp_path: Path, request: pytest.FixtureRequest, is_read: bool
) -> None:
    if is_read:
        request.getfixturevalue("log_file")
    command = {"command": "python", "args": ["-c", "raise SystemExit('no licence found')"]}
    root = write_project(
        tmp_path / "p",
        {"one": agent_module("one", ("shop",))},
        config={"mcp": {"servers": {"shop": command}}},
    )
    ended = "its program ended with exit status 1" + (": no licence found" if is_read else "")
    async with running(root, pace=QUICK) as fleet:
        await until(lambda: f"({ended})" in fleet.snapshot().agents[0].downstreams[0].detail)


@pytest.mark.slow
async def test_a_stdio_server_that_takes_long_to_start_is_started_once(tmp_path: Path) -> None:
    # Below `start_timeout`, which is 60 s, and above what an agent waits for at its own start.
    with counted(tmp_path, "loading", "stdio-handshake", loads=25) as server:
        async with (
            running(counted_project(tmp_path / "p", [server])) as fleet,
            callers(fleet, server, 1) as one,
        ):
            await answered(one)
            assert len(server.started) == 1


def health(fleet: Fleet) -> HealthStatus:
    """The health of the one agent, as the fleet shows it."""
    (agent,) = fleet.snapshot().agents
    return agent.health.status


async def told_health(one: Callers) -> str:
    """The health that the agent tells who asks it."""
    status: str = json.loads(text_of(await one.clients[0].call_tool("get_health", {})))["status"]
    return status


@pytest.mark.parametrize("kind", ["http-python", pytest.param("http-typescript", marks=pytest.mark.slow)])
async def test_health_is_not_ok_while_calls_fail_though_a_session_can_be_opened(
    tmp_path: Path, kind: Kind
) -> None:
    with counted(tmp_path, "shop", kind) as server:
        await server.start()
        root = counted_project(tmp_path / "p", [server])
        async with running(root, pace=QUICK) as fleet, callers(fleet, server) as one:
            await answered(one)
            await until(lambda: health(fleet) is HealthStatus.OK)
            server.open("broken")
            assert [each for each in await one.call() if not each.is_error] == []
            await until(lambda: health(fleet) is not HealthStatus.OK)
            assert [each for each in await one.call() if not each.is_error] == []
            assert await told_health(one) != "ok"
            server.shut("broken")
            await until(lambda: health(fleet) is HealthStatus.OK)
            assert [each for each in await one.call() if not each.is_answered] == []
            assert one.none_twice()


@pytest.mark.slow
async def test_health_is_not_ok_while_a_stdio_server_ends_at_each_start(tmp_path: Path) -> None:
    with counted(tmp_path, "shop", "stdio-handshake") as server:
        root = counted_project(tmp_path / "p", [server])
        async with running(root, pace=QUICK) as fleet, callers(fleet, server) as one:
            await answered(one)
            server.open("broken")
            await server.kill()
            assert [each for each in await one.call() if not each.is_error] == []
            await until(lambda: health(fleet) is not HealthStatus.OK)
            assert await told_health(one) != "ok"
            server.shut("broken")
            await until(lambda: health(fleet) is HealthStatus.OK)
            assert [each for each in await one.call() if not each.is_answered] == []


@pytest.mark.slow
async def test_health_follows_a_stdio_server_that_is_killed_while_nobody_calls_it(tmp_path: Path) -> None:
    with counted(tmp_path, "shop", "stdio-modern") as server:
        async with running(counted_project(tmp_path / "p", [server]), pace=QUICK) as fleet:
            await until(lambda: health(fleet) is HealthStatus.OK)
            server.open("broken")
            await server.kill()
            await until(lambda: health(fleet) is not HealthStatus.OK)
            server.shut("broken")
            await until(lambda: health(fleet) is HealthStatus.OK)


@asynccontextmanager
async def busy(fleet: Fleet | Served, servers: Mapping[str, CountedServer]) -> AsyncIterator[None]:
    """Leave each server as its name says, with a call of ``stays`` in flight."""
    for name in ("answers", "again", "stopped"):
        async with callers(fleet, servers[name]) as one:
            await answered(one)
    await servers["again"].kill()
    async with callers(fleet, servers["again"]) as one:
        await answered(one)
    servers["stopped"].send(signal.SIGSTOP)
    async with callers(fleet, servers["stays"]) as one, one.in_flight():
        yield


@pytest.mark.slow
@pytest.mark.parametrize("is_served", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_no_process_of_a_stdio_server_outlives_the_fleet(tmp_path: Path, is_served: bool) -> None:
    """Whether it answers, was started again, is stopped, ignores that it shall end, or never connected."""
    kinds: dict[str, dict[str, Any]] = {"answers": {}, "again": {}, "stopped": {}, "stays": {"stays": True}}
    if is_served:
        kinds |= {"silent": {"first": "silence"}, "loading": {"loads": 1}}
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(counted(tmp_path, name, "stdio-handshake", **settings))
            for name, settings in kinds.items()
        }
        root = counted_project(
            tmp_path / "p", servers.values(), top={"bind": "127.0.0.1", "drain_timeout": 1}
        )
        if is_served:
            with served(root) as process:
                await process.says("] running")
                async with busy(process, servers):
                    process.send(signal.SIGTERM)
                    await process.ended()
        else:
            async with running(root) as fleet, busy(fleet, servers):
                await fleet.stop()
        assert all(each.started for each in servers.values())
        await until(lambda: not any(each.alive for each in servers.values()))


DIES = """
import os
import sys
from pathlib import Path
from stdio_server import StdioServer

here = Path(__file__).parent
if (here / "broken").exists():
    sys.exit("no licence found")
(here / "pid").write_text(str(os.getpid()))
print("the shelf is open", file=sys.stderr, flush=True)
server = StdioServer("shelf")

@server.tool()
def look() -> str:
    "Look."
    return "books"

server.run()
"""


@pytest.mark.slow
async def test_feed_and_log_say_how_a_program_died_and_how_each_attempt_ended(
    tmp_path: Path, log_file: Path
) -> None:
    root = write_project(
        tmp_path / "p",
        {"one": agent_module("one", ("shelf",))},
        config={"mcp": {"servers": {"shelf": {"command": "python", "args": ["shelf.py"]}}}},
        files={"shelf.py": DIES},
    )
    died = "server shelf is missing: cannot be reached (its program was killed by SIGKILL: the shelf is open)"
    failed = "is missing: cannot be reached (its program ended with exit status 1: no licence found)"
    async with running(root, pace=QUICK) as fleet:
        await until(lambda: all_ready(fleet))

        def told() -> list[str]:
            events = fleet.hub.since(0).events
            return [each.text for each in events if isinstance(each, Notice) and each.server == "shelf"]

        (root / "broken").touch()
        os.kill(int((root / "pid").read_text()), signal.SIGKILL)
        await until(lambda: len(told()) == 3)
        assert told() == [
            died,
            f"server shelf {failed}; attempt 1 to connect it has failed",
            f"server shelf {failed}; attempt 2 to connect it has failed",
        ]
        (root / "broken").unlink()
        await until(lambda: len(told()) == 4)
        assert re.fullmatch(r"server shelf is connected again after \d failed attempts", told()[-1])
    with log_file.open(encoding="utf-8") as file:
        logged = file.read()
    assert f"one: {died}" in logged
    assert f"one: server shelf {failed}" in logged
    assert "one: server shelf is connected again after" in logged
