"""A stdio server that dies while nobody asks anything."""

import logging
import os
import signal
import sys
from pathlib import Path

import pytest
from support.fake_fleet import NOON, FakeFleet
from support.live import ECHO, agent_module, running, write_project
from support.processes import below
from support.waiting import until

from pallas.downstreams import transports
from pallas.downstreams.connection import Connection, Watch
from pallas.downstreams.offer import Offer
from pallas.downstreams.opening import Callbacks, Settings
from pallas.downstreams.transports import StdioProgram
from pallas.executors.fastagent import instance_servers, server_states
from pallas.fleet.fleet import Fleet
from pallas.model import Notice
from pallas_tui.frame import FleetFrame
from pallas_tui.runs.run_feed import Feed

pytestmark = pytest.mark.usefixtures("forked_children")

# Dies when it is told to, and the next ones cannot begin until a file is there.
MORTAL = """
import os, pathlib, sys
from stdio_server import StdioServer

server = StdioServer("mortal")
if pathlib.Path("broken").exists():
    sys.exit(4)

@server.tool()
def die() -> str:
    os._exit(3)

server.run()
"""


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance_servers, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(instance_servers, "_PAUSE", 0.05)


def notices(fleet: Fleet) -> list[tuple[str, str]]:
    events = fleet.hub.since(0).events
    return [(each.level, each.text) for each in events if isinstance(each, Notice) and each.server]


@pytest.mark.parametrize("isolation", ["none", pytest.param("process", marks=pytest.mark.slow)])
async def test_it_is_started_again_without_a_run(
    tmp_path: Path, at_once: None, caplog: pytest.LogCaptureFixture, isolation: str
) -> None:
    root = write_project(
        tmp_path,
        {"desk": agent_module("desk", ("echo",))},
        config=ECHO,
        keys={"desk": {"isolation": isolation}},
    )
    with caplog.at_level(logging.INFO):
        async with running(root) as fleet:
            (server,) = await until(lambda: below(os.getpid(), "echo_server.py"))
            os.kill(server.pid, signal.SIGKILL)
            await until(
                lambda: {each.pid for each in below(os.getpid(), "echo_server.py")} - {server.pid}, timeout=60
            )
            said = lambda: [each.getMessage() for each in caplog.records]  # noqa: E731
            await until(lambda: "desk: server echo is connected again" in said(), timeout=60)
            assert "desk: server echo was killed by SIGKILL" in said()
            missing = "is missing: cannot be reached (its program was killed by SIGKILL)"
            assert f"desk: server echo {missing}" in said()
            told = [("warning", f"server echo {missing}"), ("info", "server echo is connected again")]
            await until(lambda: notices(fleet) == told, timeout=60)
            events = fleet.hub.since(0).events
    feed = Feed()
    feed.absorb(FleetFrame(FakeFleet().current, events, NOON, 0))
    assert [(each.agent, each.text) for each in feed.remarks] == [("desk", text) for _, text in told]


async def test_the_log_has_the_exit_status_and_each_attempt_to_start_it_again(
    tmp_path: Path, at_once: None, caplog: pytest.LogCaptureFixture
) -> None:
    root = write_project(
        tmp_path,
        {"desk": agent_module("desk", ("mortal",))},
        config={"mcp": {"servers": {"mortal": {"command": "python", "args": ["mortal.py"]}}}},
        files={"mortal.py": MORTAL},
    )

    def said() -> list[str]:
        mine = [each for each in caplog.records if getattr(each, "downstream", "") == "mortal"]
        return [each.getMessage() for each in mine]

    with caplog.at_level(logging.INFO):
        async with running(root) as fleet:
            (root / "broken").touch()
            (server,) = await until(lambda: below(os.getpid(), "mortal.py"))
            os.kill(server.pid, signal.SIGTERM)
            again = "desk: server mortal ended with exit status 4"
            await until(lambda: said().count(again) >= 2, timeout=60)
            (root / "broken").unlink()
            await until(lambda: "is connected again after" in said()[-1], timeout=60)
            assert "desk: server mortal was killed by SIGTERM" in said()
            attempts = [each for each in said() if each.startswith("desk: server mortal is missing")]
            number = len(attempts) - 1  # the first says that it was lost
            # An attempt may start the program twice, as for each protocol version.
            failed = "1 failed attempt" if number == 1 else f"{number} failed attempts"
            assert said()[-1] == f"desk: server mortal is connected again after {failed}"
            assert notices(fleet)[-1] == ("info", said()[-1].removeprefix("desk: "))
    # fast-agent's own words for the same failures are left out.
    assert not [each for each in caplog.records if each.name == "fast_agent"]


async def test_a_probe_that_meets_the_end_of_a_program_says_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transports, "is_logged", lambda: True)
    program = tmp_path / "mortal.py"
    program.write_text("import sys\nsys.stdin.readline()\nprint('no licence', file=sys.stderr)\nsys.exit(4)")

    async def listed(offer: Offer) -> Offer:
        return offer

    way = StdioProgram(sys.executable, [str(program)], dict(os.environ))
    connection = Connection("mortal", way, Settings(), Callbacks(), Watch(listed), {})
    try:
        assert await server_states._check([connection], 60) == (
            "failed",
            "its program ended with exit status 4: no licence",
        )
    finally:
        await connection.close()
