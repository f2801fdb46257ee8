"""Attaching a fleet elsewhere in a real terminal, by keys alone."""

import asyncio
import sys
from pathlib import Path

import pytest
from support.echo_agent import EchoAgent
from support.live import write_project
from support.registries import FakeRegistry, entry
from support.terminal import needs_tmux, terminal

pytestmark = [needs_tmux, pytest.mark.pty]


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40)])
async def test_a_fleet_elsewhere_is_attached_talked_to_and_lost(
    tmp_path: Path, columns: int, rows: int
) -> None:
    # PI-14, PI-15, PI-17
    environment = {
        "PALLAS_LOG_FILE": str(tmp_path / "pallas.log"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "DAEDALUS_MCP_HEALTH_INTERVAL": "1",
    }
    project = write_project(tmp_path / "project", {"concierge": None})
    command = f"{sys.executable} -m pallas.server dev {project}; echo left=$?"
    elsewhere = EchoAgent("elsewhere")
    registry = FakeRegistry([entry("ns/elsewhere", elsewhere.url, title="Someone else")])
    async with elsewhere, registry.serving() as origin:

        def drive() -> None:
            with terminal(command, columns=columns, rows=rows, environment=environment) as desk:
                desk.until("Write to concierge")
                desk.keys("F10")
                desk.until("No instance is registered", "polled every 1 s")
                desk.keys("a")
                desk.until("URL of a registry, for example")
                desk.type(origin)
                desk.keys("Enter")
                desk.until("not attached", "Someone else")
                desk.keys("Enter")
                desk.until("● Someone else", " ok")
                desk.keys("Down", "Enter")
                desk.until("Write to elsewhere@")
                desk.type("are you there")
                desk.keys("Enter")
                desk.until("you said: are you there")
                elsewhere.health = {"status": "degraded", "message": "half of it is away"}
                desk.until("◐ half of it is away", "Write to elsewhere@")
                elsewhere.health = {"status": "error", "message": "all of it is away"}
                desk.until("cannot answer: all of it is away", "You cannot write now")
                desk.keys("C-q")
                desk.until("left=0")

        await asyncio.to_thread(drive)
    assert origin in (tmp_path / "config" / "pallas" / "workbench.instances.json").read_text()
