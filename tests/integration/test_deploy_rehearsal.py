"""The steps of deploy/Dockerfile without a container engine: no rights, and next to nothing to write to."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from mcp import Client
from support.live import ERAS
from support.offline import offline_project
from support.ports import is_free
from support.waiting import until

from pallas.config import load_project

ROOT = Path(__file__).parents[2]
REHEARSE = ROOT / "deploy" / "rehearse.py"

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a root of its own needs root"),
    pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed (util-linux)"),
]


def project(folder: Path) -> Path:
    root = offline_project(folder / "project", {"desk": None}, "rules:\n  - say: at your service\n")
    # The user of the image is nobody that this machine knows: it reads what everyone may.
    for path in (folder, *folder.parents):
        if path.stat().st_uid == os.geteuid() and not path.stat().st_mode & 0o001:
            path.chmod(path.stat().st_mode | 0o055)
    return root


def inside(root: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(REHEARSE), str(root), "--command", *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_runs_as_the_images_user_and_writes_to_tmp_alone(tmp_path: Path) -> None:
    root = project(tmp_path)
    who = inside(root, "id", "-u")
    assert who.stdout.strip() == "10001", who.stderr
    for path in ("/project/x", "/opt/pallas/x", "/usr/x", "/x", "/etc/x"):
        refused = inside(root, "touch", path)
        assert refused.returncode != 0
        assert "Read-only file system" in refused.stderr or "Permission denied" in refused.stderr
    assert inside(root, "touch", "/tmp/x").returncode == 0
    assert not (root / "x").exists()
    capabilities = inside(root, "grep", "CapEff", "/proc/self/status").stdout.split()
    assert int(capabilities[1], 16) == 0
    assert inside(root, "printenv", "PALLAS_LOG_STDERR").stdout == "1\n"


async def test_a_project_is_served_by_the_images_steps_and_drained_by_its_signal(tmp_path: Path) -> None:
    root = project(tmp_path)
    before = sorted(str(path) for path in root.rglob("*"))
    agent = load_project(root).agents["desk"]
    with (tmp_path / "out").open("w") as out:
        fleet = await asyncio.create_subprocess_exec(
            sys.executable, str(REHEARSE), str(root), stdout=out, stderr=subprocess.STDOUT
        )
    try:
        said = tmp_path / "out"
        await until(lambda: "HEALTHCHECK is content" in said.read_text(), timeout=90)
        for era in ERAS:
            async with Client(f"http://127.0.0.1:{agent.port}/mcp", mode=era) as client:
                result = await client.call_tool("send_message", {"message": "hello"})
                assert "at your service" in str(result.content)
        fleet.send_signal(signal.SIGTERM)
        async with asyncio.timeout(40):
            assert await fleet.wait() == 0
    finally:
        if fleet.returncode is None:
            fleet.kill()
    assert "ended with status 0" in said.read_text()
    assert is_free(agent.port)
    assert sorted(str(path) for path in root.rglob("*")) == before
