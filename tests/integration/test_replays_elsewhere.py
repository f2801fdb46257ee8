"""A run through three agents is replayed a hundred times: elsewhere, on another day, without a network."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.asked import accepting, asked_client, url_of
from support.live import ERAS, all_ready, running
from support.recorded import PICTURE, recorded_project
from support.replayed import FOLDER, of_another_day
from support.waiting import until

from pallas.model import Recording
from pallas.recordings.recording_folder import read, write
from pallas.runs.run_recording import portable_recording

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).parents[1] / "support" / "replay_program.py"
REPLAYS = 100
ZONES = ("Pacific/Kiritimati", "Etc/GMT+12")
"""The first and the last one in which a day begins."""
SHELF = '''
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.utilities.types import Image
from pydantic import BaseModel

server = MCPServer("shelf")


class Sure(BaseModel):
    sure: bool


def note(call: str) -> None:
    with open("executed", "a") as file:
        file.write(call + "\\n")


@server.tool()
def find(what: str) -> str:
    """Find a thing on the shelf."""
    note("find")
    return f"three {what}"


@server.tool()
def look(at: str) -> Image:
    """Make a picture of a thing."""
    note("look")
    return Image(path=Path(__file__).with_name("picture.png"))


@server.tool()
async def confirm(context: Context) -> str:
    """Ask the person."""
    note("confirm")
    return (await context.elicit("Are you sure?", Sure)).action


server.run()
'''
ONCE = """
  - when: {last: user, text: find lamps}
    call: [{tool: shelf__find, arguments: {what: "lamps"}}]
"""
TWICE = """
  - when: {last: user, text: find lamps}
    call:
      - {tool: shelf__find, arguments: {what: "lamps"}}
      - {tool: shelf__confirm, arguments: {}}
"""
ALONE = ("unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
"""A network with nothing but loopback."""


def can_be_alone() -> bool:
    """Whether this user may have a network of its own."""
    if not shutil.which("unshare") or not shutil.which("ip"):
        return False
    return subprocess.run((*ALONE, "true"), capture_output=True, timeout=60, check=False).returncode == 0


def project(root: Path) -> Path:
    """``recorded_project``, whose server asks the person too, with two calls at once and a date."""
    recorded_project(root)
    script, lead = root / "model.yaml", root / "agents" / "lead.py"
    (root / "shelf.py").write_text(SHELF)
    assert ONCE in script.read_text()
    script.write_text(script.read_text().replace(ONCE, TWICE))
    dated = "You are lead. Today is {{currentDate}}, {{env}}"
    lead.write_text(lead.read_text().replace("You are lead.", dated))
    config = root / "fastagent.config.yaml"
    content = yaml.safe_load(config.read_text())
    content["mcp"]["servers"]["shelf"]["protocol_mode"] = "legacy"  # in which a server may ask in a call
    config.write_text(yaml.safe_dump(content))
    return root


async def recorded(root: Path, era: str) -> Recording:
    """The recording of a run whose caller says yes."""

    async def agree(params: Any) -> Any:
        return accepting({"sure": True})

    async with running(root, database="memory") as fleet:
        await until(lambda: all_ready(fleet), timeout=60)
        asked = {"message": "How many?", "images": [{"data": PICTURE, "mime_type": "image/png"}]}
        async with asked_client(url_of(fleet, "lead"), era, agree) as client:
            result = await client.call_tool("send_message", asked)
        assert not result.is_error, result
        assert fleet.ledger is not None
        run = str((result.meta or {})["local.pallas/runId"])
        recording = await portable_recording(fleet.kernel, fleet.ledger, fleet.project, run)
    write(recording, root / FOLDER)
    return read(root / FOLDER)


async def replays(root: Path, home: Path, zone: str, times: int) -> list[str]:
    """What is said of so many replays of a copy of the project in another place, by another process."""
    shutil.copytree(root, home / "q")
    env = {"TZ": zone, "HOME": str(home), "TMPDIR": str(home), "PYTHONHASHSEED": str(len(zone))}
    alone = ALONE if can_be_alone() else ()
    process = await asyncio.create_subprocess_exec(
        *(*alone, sys.executable, str(PROGRAM), str(home / "q"), str(times)),
        env={**os.environ, **env},
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(600):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode()[-2_000:]
    assert not (home / "q" / "executed").exists()
    return out.decode().splitlines()


@pytest.mark.parametrize("era", ERAS)
async def test_a_hundred_replays_are_the_same_elsewhere(tmp_path: Path, era: str) -> None:
    root = project(tmp_path / "author" / "p")
    recording = await recorded(root, era)
    calls = {each.step.name: each for run in recording.runs for each in run.steps if each.step.kind == "tool"}
    assert {run.agent for run in recording.runs} == {"lead", "clerk", "keeper"}
    assert recording.first.images
    assert {"shelf__find", "shelf__look", "shelf__confirm", "clerk__send_message"} <= calls.keys()
    assert '"image"' in calls["shelf__look"].response
    assert "accept" in calls["shelf__confirm"].response
    of_another_day(root)
    (root / "executed").unlink()
    said = [
        await replays(root, tmp_path / f"home {number}", zone, REPLAYS // len(ZONES) // len(ERAS))
        for number, zone in enumerate(ZONES)
    ]
    assert said == [["same"] * (REPLAYS // len(ZONES) // len(ERAS))] * len(ZONES)
