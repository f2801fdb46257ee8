"""A program under ``servers:`` whose next version does not come up: the one that runs goes on, or is back."""

import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from support.ports import free_ports

from pallas.config import ServerConfig
from pallas.fleet.programs import Program, Programs
from pallas.model import AgentState, Notice
from pallas.telemetry.event_hub import EventHub

SERVER = """
import http.server
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(sys.argv[2].encode())

    def log_message(self, *args):
        pass


if sys.argv[2] == "wrong":
    sys.exit("no such mode")
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


class Shop:
    """One program in its set, and what was said of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.hub, self.ports = folder, EventHub(), free_ports(2)
        (folder / "server.py").write_text(SERVER)
        self.first = self.config("one")
        self.programs = Programs({"shop": self.first}, self.hub)

    def config(self, mode: str, port: int = 0) -> ServerConfig:
        command = (sys.executable, "server.py", str(self.ports[port]), mode)
        return ServerConfig("shop", command, f"http://127.0.0.1:{self.ports[port]}/", self.folder)

    @property
    def program(self) -> Program:
        (found,) = self.programs
        return found

    @property
    def pid(self) -> int | None:
        return self.program.snapshot().pid

    async def change(self, config: ServerConfig) -> None:
        await self.programs.change((), {"shop": ("agents.yaml",)}, {"shop": config})

    async def says(self, port: int = 0) -> str:
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            try:
                return (await http.get(f"http://127.0.0.1:{self.ports[port]}/")).text
            except httpx2.ConnectError:
                return ""

    @property
    def told(self) -> str:
        events = self.hub.since(0).events
        return "\n".join(event.text for event in events if isinstance(event, Notice))


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    made = Shop(tmp_path)
    await made.programs.start()
    try:
        assert await made.says() == "one"
        yield made
    finally:
        for program in made.programs:
            await program.stop()


async def test_a_file_that_is_not_valid_python_ends_nothing(shop: Shop) -> None:
    pid = shop.pid
    (shop.folder / "server.py").write_text(SERVER + "\ndef (:\n")
    await shop.change(shop.first)
    assert (shop.pid, await shop.says()) == (pid, "one")
    assert "server shop: not restarted: server.py:20: is not valid Python: invalid syntax" in shop.told
    (shop.folder / "server.py").write_text(SERVER)
    await shop.change(shop.config("two"))
    assert await shop.says() == "two"


async def test_a_program_that_is_not_there_ends_nothing(shop: Shop) -> None:
    pid = shop.pid
    await shop.change(replace(shop.first, command=("no-such-program", "x")))
    assert (shop.pid, await shop.says()) == (pid, "one")
    assert "not restarted: no-such-program is not on PATH" in shop.told
    # An unrelated reload does not have it follow that entry.
    await shop.programs.change((), {}, {"shop": replace(shop.first, command=("no-such-program", "x"))})
    assert shop.program.config == shop.first


async def test_at_another_port_the_one_that_runs_ends_when_the_next_one_answers(shop: Shop) -> None:
    pid = shop.pid
    await shop.change(shop.config("wrong", port=1))
    assert (shop.pid, await shop.says()) == (pid, "one")
    assert f"the running program stays in use at http://127.0.0.1:{shop.ports[0]}/" in shop.told
    await shop.change(shop.config("two", port=1))
    assert (await shop.says(), await shop.says(1)) == ("", "two")


async def test_at_the_same_port_the_one_that_ran_is_back(shop: Shop) -> None:
    await shop.change(shop.config("wrong"))
    assert await shop.says() == "one"
    assert shop.program.state is AgentState.READY
    assert "no such mode; it runs again as it did before" in shop.told


@pytest.mark.parametrize("by", ["script", "module"])
async def test_a_file_that_it_imports_and_that_is_not_valid_python_ends_nothing(shop: Shop, by: str) -> None:
    pid = shop.pid
    (shop.folder / "server.py").write_text("import stock.shelf\n" + SERVER)
    (shop.folder / "stock").mkdir()
    (shop.folder / "stock" / "shelf.py").write_text("\ndef (:\n")
    config = shop.first
    if by == "module":
        config = replace(config, command=(sys.executable, "-m", "server", *config.command[2:]))
    await shop.change(config)
    assert (shop.pid, await shop.says()) == (pid, "one")
    assert "server shop: not restarted: stock/shelf.py:2: is not valid Python: invalid syntax" in shop.told


async def test_what_only_its_files_changed_says_that_it_cannot_be_back(shop: Shop) -> None:
    (shop.folder / "server.py").write_text("import sys\nsys.exit('no stock')\n")
    await shop.change(shop.first)
    assert shop.program.state is not AgentState.READY
    said = "no stock; its own files changed, so it cannot run as before: correct them"
    assert said in shop.told, shop.told
    (shop.folder / "server.py").write_text(SERVER)
    await shop.change(shop.first)
    assert await shop.says() == "one"
