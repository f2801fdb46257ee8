"""Programs of the project under ``servers:``: started again when they fail, or left alone."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.ports import free_ports
from support.processes import gone
from support.waiting import until

from pallas.config.models import RestartConfig, ServerConfig
from pallas.fleet.programs import Program
from pallas.model import AgentState, Notice
from pallas.telemetry.event_hub import EventHub

# A server that ends when it is asked to, as a test says; `starts` has a line for each time it was started.
SERVER = """
import http.server
import os
import pathlib
import sys

folder = pathlib.Path(__file__).parent
with (folder / "starts").open("a") as starts:
    starts.write("x")
broken = folder / "broken"
if broken.exists():
    sys.exit(broken.read_text())


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/crash":
            os._exit(7)
        if self.path == "/leave":
            os._exit(0)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args):
        pass


http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
QUICK = RestartConfig(backoff=0.05, backoff_max=0.1, crashes=3, within=300)


class Watched:
    """A program, what it said, and how often it was started."""

    def __init__(self, folder: Path, **more: Any) -> None:
        (folder / "server.py").write_text(SERVER)
        (port,) = free_ports(1)
        self.folder, self.hub = folder, EventHub()
        config = ServerConfig(
            name="shop",
            command=(sys.executable, "server.py", str(port)),
            url=f"http://127.0.0.1:{port}/",
            cwd=folder,
            **{"restart": QUICK, **more},
        )
        self.program = Program(config, self.hub)

    @property
    def starts(self) -> int:
        path = self.folder / "starts"
        return len(path.read_text()) if path.exists() else 0

    @property
    def told(self) -> list[tuple[str, str]]:
        events = self.hub.since(0).events
        return [(event.level, event.text) for event in events if isinstance(event, Notice)]

    async def ask(self, path: str) -> None:
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            try:
                await http.get(self.program.config.url + path)
            except httpx2.HTTPError:
                return


@asynccontextmanager
async def watched(folder: Path, **more: Any) -> AsyncIterator[Watched]:
    shop = Watched(folder, **more)
    await shop.program.start()
    try:
        yield shop
    finally:
        await shop.program.stop()
        assert shop.program.state is AgentState.STOPPED
        assert shop.program.snapshot().pid is None


async def test_one_that_crashes_is_started_again_and_says_so(tmp_path: Path) -> None:
    async with watched(tmp_path) as shop:
        assert shop.program.state is AgentState.READY
        first = shop.program.snapshot().pid
        await shop.ask("crash")
        await until(lambda: shop.starts == 2 and shop.program.state is AgentState.READY)
        now = shop.program.snapshot()
        assert now.pid not in (None, first)
        assert (now.restarts, now.crashes, now.error, now.restart_at) == (1, 1, "", None)
        (told, back) = shop.told
        assert told[0] == "warning"
        assert "server shop: it ended with status 7; it is started again in" in told[1]
        assert back == ("info", "server shop: it is back")


async def test_one_that_is_killed_is_started_again(tmp_path: Path) -> None:
    async with watched(tmp_path) as shop:
        pid = shop.program.snapshot().pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await until(lambda: shop.starts == 2 and shop.program.state is AgentState.READY)
        assert any("it ended by SIGKILL" in text for _, text in shop.told)


async def test_one_that_fails_again_and_again_is_left_and_says_how_to_go_on(tmp_path: Path) -> None:
    async with watched(tmp_path) as shop:
        (tmp_path / "broken").write_text("no stock today")
        await shop.ask("crash")
        await until(lambda: shop.program.state is AgentState.CRASH_LOOP)
        now = shop.program.snapshot()
        assert now.crashes == 3
        assert shop.starts == 3
        assert "failure 3 within 300 s" in now.error
        assert "no stock today" in now.error
        assert "save agents.yaml" in now.error
        assert shop.told[-1][0] == "error"


async def test_with_never_it_stays_down(tmp_path: Path) -> None:
    async with watched(tmp_path, restart=RestartConfig(policy="never")) as shop:
        await shop.ask("crash")
        await until(lambda: shop.program.state is AgentState.ERROR)
        assert shop.starts == 1
        assert shop.told == [("error", "server shop: it ended with status 7")]


@pytest.mark.parametrize("policy", ["on-failure", "always"])
async def test_one_that_ends_well_is_started_again_only_where_that_is_wanted(
    tmp_path: Path, policy: Any
) -> None:
    quick = RestartConfig(policy=policy, backoff=0.05, backoff_max=0.1, crashes=3)
    async with watched(tmp_path, restart=quick) as shop:
        await shop.ask("leave")
        if policy == "always":
            await until(lambda: shop.starts == 2 and shop.program.state is AgentState.READY)
        else:
            await until(lambda: shop.program.state is AgentState.STOPPED)
            assert "it ended with status 0" in shop.program.error


async def test_a_start_that_takes_too_long_counts_as_a_failure(tmp_path: Path) -> None:
    shop = Watched(tmp_path, start_timeout=0.1, restart=QUICK)
    (tmp_path / "server.py").write_text("import time; time.sleep(3600)")
    await shop.program.start()
    try:
        await until(lambda: shop.program.state is AgentState.CRASH_LOOP)
        assert (
            "did not answer within 0.1 s; correct url or start_timeout at agents.yaml" in shop.program.error
        )
        assert shop.program.snapshot().pid is None
    finally:
        await shop.program.stop()


async def test_what_cannot_be_started_at_all_is_not_tried_again(tmp_path: Path) -> None:
    shop = Watched(tmp_path)
    config = ServerConfig(name="shop", command=("no-such-program",), url="http://127.0.0.1:1/", cwd=tmp_path)
    program = Program(config, shop.hub)
    await program.start()
    assert program.state is AgentState.ERROR
    assert "no-such-program: no such program; correct command at agents.yaml" in program.error
    await program.stop()


async def test_it_can_be_stopped_while_it_waits_to_be_started_again(tmp_path: Path) -> None:
    slow = RestartConfig(backoff=3600, backoff_max=3600)
    async with watched(tmp_path, restart=slow) as shop:
        await shop.ask("crash")
        await until(lambda: shop.program.state is AgentState.BACKOFF)
        assert shop.program.snapshot().restart_at is not None
    assert shop.starts == 1
    names = {task.get_name() for task in asyncio.all_tasks()}
    assert "server shop" not in names


@pytest.mark.slow
async def test_nothing_of_its_group_is_left_between_two_lives(tmp_path: Path) -> None:
    source = SERVER.replace(
        "broken = folder",
        "import subprocess\nchild = subprocess.Popen(['sleep', '3600'])\n"
        "(folder / 'child').write_text(str(child.pid))\nbroken = folder",
    )
    shop = Watched(tmp_path)
    (tmp_path / "server.py").write_text(source)
    await shop.program.start()
    try:
        child = int((tmp_path / "child").read_text())
        assert not gone(child)
        await shop.ask("crash")
        await until(lambda: gone(child))
    finally:
        await shop.program.stop()
