"""Downstreams that are killed in the middle of a call, and come back: one run pays, and no other."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from support.live import ERAS, agent_module
from support.offline import offline_project
from support.ports import free_ports
from support.processes import below
from support.served import Served, served, text_of
from support.waiting import until

SCRIPT = """
rules:
  - when: {last: tool, tool: echo__slow}
    say: "slow said {{ result }}"
  - when: {last: tool}
    say: "{{ result }}"
  - when: {last: user, text: slowly}
    call: [{tool: echo__slow, arguments: {text: x}}]
  - when: {last: user, text: echo}
    call: [{tool: echo__echo, arguments: {text: "{{ last }}"}}]
  - say: hello
"""
# `began` is there once the slow tool is called.
ECHO = '''
import pathlib
import time
from stdio_server import StdioServer

server = StdioServer("echo")

@server.tool()
def echo(text: str) -> str:
    """Say it again."""
    return "echo:" + text

@server.tool()
def slow(text: str) -> str:
    """Take a minute."""
    pathlib.Path(__file__).with_name("began").touch()
    time.sleep(60)
    return "slow"

server.run()
'''
# The same over HTTP, on the port that is its argument.
ECHO_OVER_HTTP = '''
import asyncio
import pathlib
import sys
from mcp.server.mcpserver import MCPServer

server = MCPServer("echo")

@server.tool()
def echo(text: str) -> str:
    """Say it again."""
    return "echo:" + text

@server.tool()
async def slow(text: str) -> str:
    """Take a minute."""
    pathlib.Path(__file__).with_name("began").touch()
    await asyncio.sleep(60)
    return "slow"

server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
'''


@asynccontextmanager
async def running(root: Path) -> AsyncIterator[Served]:
    with served(root) as fleet:
        await fleet.says("] running")
        yield fleet


async def ask(fleet: Served, era: str, text: str) -> str:
    async with fleet.client("desk", era) as client:
        return text_of(await client.call_tool("send_message", {"message": text}))


def stdio_children(fleet: Served) -> list[psutil.Process]:
    return below(fleet.process.pid, "echo.py")


@pytest.mark.slow
async def test_a_stdio_server_that_is_killed_in_a_call_fails_that_call_alone(tmp_path: Path) -> None:
    root = offline_project(
        tmp_path / "p",
        {"desk": agent_module("desk", ("echo",))},
        SCRIPT,
        top={"bind": "127.0.0.1"},
        config={"mcp": {"servers": {"echo": {"command": "python", "args": ["echo.py"]}}}},
        files={"echo.py": ECHO},
    )
    async with running(root) as fleet:
        slow = asyncio.create_task(ask(fleet, ERAS[0], "slowly"))
        # The instance that answers it is the one that was warmed at the start.
        await until((root / "began").exists, timeout=60)
        assert "echo:echo one" in await ask(fleet, ERAS[1], "echo one")
        first, *_ = sorted(stdio_children(fleet), key=lambda each: each.create_time())
        os.kill(first.pid, signal.SIGKILL)
        told = await slow
        # The model was told that its call failed, and it answered: nothing hung.
        assert told.startswith("slow said")
        assert '"slow"' not in told
        # Whichever instance answers next has a server that lives.
        answers = await asyncio.gather(
            *(ask(fleet, ERAS[number % 2], f"echo {number}") for number in range(6))
        )
        assert [f"echo:echo {number}" in answer for number, answer in enumerate(answers)] == [True] * 6


@pytest.mark.slow
async def test_an_http_server_that_is_killed_in_a_call_is_back_for_the_next(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}/mcp"
    root = offline_project(
        tmp_path / "p",
        {"desk": agent_module("desk", ("echo",))},
        SCRIPT,
        top={
            "bind": "127.0.0.1",
            "servers": {
                "echo": {
                    "command": f"python echo.py {port}",
                    "url": url,
                    "restart": {"backoff": 0.05, "backoff_max": 0.1},
                }
            },
        },
        config={"mcp": {"servers": {"echo": {"url": url, "auth": {"oauth": False}}}}},
        files={"echo.py": ECHO_OVER_HTTP},
    )
    async with running(root) as fleet:
        assert "echo:echo one" in await ask(fleet, ERAS[0], "echo one")
        slow = asyncio.create_task(ask(fleet, ERAS[1], "slowly"))
        await until((root / "began").exists, timeout=60)
        (server,) = below(fleet.process.pid, "echo.py")
        server.kill()
        told = await slow
        assert told.startswith("slow said")
        assert '"slow"' not in told
        # The operator is told, and it comes back by itself; so do the agent's connections.
        await fleet.logs("server echo: it ended by SIGKILL")
        await fleet.says("server echo: it ended by SIGKILL")
        await until(lambda: fleet.log.read_text().count("server echo is ready at") == 2, timeout=30)
        for era in ERAS:
            assert "echo:echo two" in await ask(fleet, era, "echo two")
