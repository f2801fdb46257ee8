"""The steps of deploy/Dockerfile without a container engine: no rights, and next to nothing to write to."""

import asyncio
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp import Client
from support.live import ERAS
from support.offline import offline_project
from support.ports import is_free
from support.waiting import until

from deploy.rehearse import obstacle
from pallas.config import load_project

ROOT = Path(__file__).parents[2]
REHEARSE = ROOT / "deploy" / "rehearse.py"
USER = 10001
PLACES = ("/", "/opt", "/home", "/usr/local")
"""Folders of the machine whose entries no other test changes."""
WRITABLE = ("/tmp", "/var/tmp", "/dev/shm", "/run")


@pytest.fixture(scope="module", autouse=True)
def root_of_its_own() -> None:
    if why := obstacle():
        pytest.skip(f"deploy/rehearse.py cannot run here: {why}")


@pytest.fixture(autouse=True)
def the_machine_stays_as_it_is() -> Iterator[None]:
    before = on_the_machine()
    yield
    assert on_the_machine() == before


def on_the_machine() -> set[str]:
    """Users, what is in the places of the image, and files of the image's user."""
    entries = {str(path) for place in PLACES for path in Path(place).iterdir()}
    entries |= {str(path) for path in Path("/run").glob("mount/**")}
    find = ["find", *WRITABLE, *PLACES[1:], "-maxdepth", "3", "-uid", str(USER)]
    # What other tests remove meanwhile is no error.
    found = subprocess.run(find, capture_output=True, text=True, check=False).stdout.splitlines()
    return entries | set(found) | {each.pw_name for each in pwd.getpwall()}


def project(folder: Path) -> Path:
    return offline_project(folder / "project", {"desk": None}, "rules:\n  - say: at your service\n")


def rehearse(root: Path, *options: str) -> list[str]:
    return [sys.executable, str(REHEARSE), str(root), *options]


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder)}


def test_it_runs_as_the_images_user_and_writes_to_tmp_alone(tmp_path: Path) -> None:
    root = project(tmp_path)
    refused = ("/project/x", "/opt/pallas/x", "/usr/x", "/x", "/etc/x", "/dev/x")
    allowed = ("/tmp/x", "/dev/shm/x", "/dev/null")
    script = [
        "id -u",
        "printenv PALLAS_LOG_STDERR",
        "grep CapEff /proc/self/status",
        *(f"echo x >{path} && echo wrote {path}" for path in (*refused, *allowed)),
    ]
    inside = subprocess.run(
        rehearse(root, "--command", "sh", "-c", "\n".join(script)),
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    user, log, capabilities, *wrote = inside.stdout.splitlines()
    assert (user, log, int(capabilities.split()[1], 16)) == (str(USER), "1", 0)
    assert wrote == [f"wrote {path}" for path in allowed]
    assert len(errors := inside.stderr.splitlines()) == len(refused)
    assert all(each.endswith(("Read-only file system", "Permission denied")) for each in errors)
    assert not (root / "x").exists()


@pytest.mark.slow
@pytest.mark.timeout(480)
async def test_a_project_is_served_by_the_images_steps_and_drained_by_its_signal(tmp_path: Path) -> None:
    root = project(tmp_path)
    before = sorted(str(path) for path in root.rglob("*"))
    agent = load_project(root).agents["desk"]
    said = tmp_path / "out"
    with said.open("w") as out:
        fleet = await asyncio.create_subprocess_exec(
            *rehearse(root, "--within", "400"),
            env=environment(tmp_path),
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        await until(lambda: "HEALTHCHECK is" in said.read_text(), timeout=440)
        assert "HEALTHCHECK is content" in said.read_text()
        for era in ERAS:
            async with Client(f"http://127.0.0.1:{agent.port}/mcp", mode=era) as client:
                result = await client.call_tool("send_message", {"message": "hello"})
                assert "at your service" in str(result.content)
        fleet.send_signal(signal.SIGTERM)
        assert await fleet.wait() == 0
    finally:
        if fleet.returncode is None:
            os.killpg(fleet.pid, signal.SIGKILL)
            await fleet.wait()
    assert "ended with status 0" in said.read_text()
    assert is_free(agent.port)
    assert sorted(str(path) for path in root.rglob("*")) == before
