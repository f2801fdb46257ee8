"""A fleet whose interpreter is held by code in C, which no Python code can interrupt, can be ended."""

import signal
from pathlib import Path

import pytest
from support import raw_client
from support.hostile_servers import MEMORY
from support.live import ERAS
from support.offline import offline_project
from support.served import Served, served
from support.waiting import until

# The regular expressions of the standard library keep the interpreter until they are done: never, here.
FREEZES = """
import asyncio
import pathlib
import re

from fast_agent import FastAgent

fast = FastAgent("frozen")


async def ponder() -> str:
    pathlib.Path("called").write_text("now")
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.05)
    pathlib.Path("frozen").write_text("now")
    re.match("^(a+)+$", "a" * 200 + "!")
    return "pondered"


@fast.agent(name="frozen", instruction="You are frozen.", function_tools=[ponder])
async def main() -> None: ...
"""
SCRIPT = """
rules:
  - when: {last: user}
    call: [{tool: ponder, arguments: {}}]
"""


def arrived(fleet: Served) -> bool:
    """No signal waits for a thread that takes it."""
    status = Path(f"/proc/{fleet.process.pid}/status").read_text()
    return all(
        not int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("ShdPnd", "SigPnd"))
    )


@pytest.mark.slow
async def test_a_second_sigterm_ends_a_fleet_whose_interpreter_is_held(tmp_path: Path) -> None:
    root = offline_project(tmp_path / "p", {"frozen": FREEZES}, SCRIPT)
    with served(root, memory=MEMORY) as fleet:
        await fleet.says("] running")
        writer = await raw_client.call(fleet.url("frozen"), ERAS[0], "freeze")
        (root / "go").touch()
        await until((root / "frozen").exists)
        fleet.send(signal.SIGTERM)
        await until(lambda: arrived(fleet))
        assert fleet.process.poll() is None
        fleet.send(signal.SIGTERM)
        await until(lambda: fleet.process.poll() is not None)
        assert fleet.process.returncode == -signal.SIGTERM
        writer.transport.abort()


@pytest.mark.slow
async def test_a_fleet_whose_interpreter_is_held_while_it_drains_is_ended_and_shows_where(
    tmp_path: Path,
) -> None:
    root = offline_project(tmp_path / "p", {"frozen": FREEZES}, SCRIPT, top={"drain_timeout": 60})
    with served(root, constants={"pallas.cli.served_fleet._STANDSTILL": 2.0}) as fleet:
        await fleet.says("] running")
        writer = await raw_client.call(fleet.url("frozen"), ERAS[0], "freeze")
        await until((root / "called").exists)
        fleet.send(signal.SIGTERM)
        await fleet.says("] draining")
        (root / "go").touch()
        assert await fleet.ended() == 1
        await fleet.says("agents/frozen.py")
        writer.transport.abort()
