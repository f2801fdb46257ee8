"""The workbench attached to a fleet elsewhere, in a real terminal: chat works, leaving leaves it running."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import httpx2
import psutil
import pytest
import yaml
from support import pallas_process
from support.offline import offline_project
from support.terminal import needs_tmux, terminal

pytestmark = [needs_tmux, pytest.mark.pty]

FULL = "full-token-of-the-tests"
READ = "read-token-of-the-tests"
SCRIPT = "rules: [{say: I am far away.}]"


@contextmanager
def serving(root: Path, environment: dict[str, str]) -> Iterator[str]:
    """`pallas --serve` on the project, in a process of its own; gives the registry's origin."""
    import os

    process = pallas_process.start(
        "--serve",
        "--project",
        str(root),
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    origin = f"http://127.0.0.1:{yaml.safe_load((root / 'agents.yaml').read_text())['registry_port']}"
    try:
        until_ready(origin)
        yield origin
        assert process.poll() is None  # nothing that was attached has ended it
    finally:
        process.terminate()
        process.wait(60)


def until_ready(origin: str, timeout: float = 90) -> None:
    deadline = monotonic() + timeout
    while monotonic() < deadline:
        try:
            if httpx2.get(f"{origin}/readyz", trust_env=False, timeout=60).status_code == 200:
                return
        except httpx2.HTTPError:
            pass
        sleep(0.1)
    raise AssertionError(f"nothing is ready at {origin}")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }


def project(tmp_path: Path, **top: str) -> Path:
    """Two agents; ``top`` adds to agents.yaml."""
    return offline_project(
        tmp_path / "far", {"concierge": None, "research": None}, SCRIPT, top={"name": "far", **top}
    )


@pytest.mark.slow
def test_the_same_user_attaches_talks_and_leaves(tmp_path: Path, environment: dict[str, str]) -> None:
    # As its user would have it who wants no token: the fleet listens on this machine alone.
    root = project(tmp_path, bind="127.0.0.1")
    with serving(root, environment) as origin:
        command = f"{sys.executable} -m pallas.server dev --attach {origin}; echo left=$?"
        for columns, rows in ((120, 40), (60, 20)):
            with terminal(command, columns=columns, rows=rows, environment=environment) as desk:
                desk.until("Write to concierge")
                desk.type("hello from elsewhere")
                desk.keys("Enter")
                desk.until("I am far away.")
                desk.keys("F5")  # the log of the fleet, which is not ours
                desk.until("fleet.agent")
                desk.keys("C-q")
                desk.until("left=0")
            until_ready(origin)
    assert not list((tmp_path / "state").rglob("*.json"))


@pytest.mark.slow
def test_one_that_is_ended_by_force_leaves_no_copy_of_the_log(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    (temporary := tmp_path / "tmp").mkdir()
    ours = environment | {"TMPDIR": str(temporary)}
    with serving(project(tmp_path, bind="127.0.0.1"), environment) as origin:
        command = f"{sys.executable} -m pallas.server dev --attach {origin}; echo left=$?"
        with terminal(command, environment=ours) as desk:
            desk.until("Write to concierge")
            assert [each.name.rpartition("-")[0] for each in temporary.iterdir()] == ["pallas-attached"]
            (attached,) = (
                each for each in psutil.process_iter(["cmdline"]) if origin in (each.info["cmdline"] or ())
            )
            for number in (
                signal.SIGTERM,
                signal.SIGINT,
            ):  # the second one is heard before the screen is gone
                attached.send_signal(number)
            desk.until("left=1")
    assert not list(temporary.iterdir())


@pytest.mark.slow
def test_in_the_folder_of_the_project_its_env_has_the_token(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    root = project(tmp_path)
    (root / ".env").write_text(f"PALLAS_CONTROL_TOKEN={FULL}\n")
    (root / ".env").chmod(0o600)
    with serving(root, environment) as origin:
        command = f"cd {root} && {sys.executable} -m pallas.server dev --attach {origin}; echo left=$?"
        with terminal(command, columns=120, rows=40, environment=environment) as desk:
            desk.until("Write to concierge")
            desk.keys("C-q")
            desk.until("left=0")


@pytest.mark.slow
def test_a_token_to_look_is_told_and_the_fleets_end_is_told_too(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    # A caller with the token may come from another machine as well.
    root = project(tmp_path)
    ours = environment | {"PALLAS_CONTROL_TOKEN": FULL, "PALLAS_CONTROL_READ_TOKEN": READ}
    with terminal("true", columns=120, rows=40, environment=environment | {"LOOK": READ}) as desk:
        with serving(root, ours) as origin:
            command = f"{sys.executable} -m pallas.server dev --attach {origin} --token-env LOOK"
            desk.type(f"{command}; echo left=$?")
            desk.keys("Enter")
            desk.until("far (read-only)", "● concierge")
        desk.until("no contact since", "connection lost, trying again: the fleet was stopped")
        with serving(root, ours):
            desk.until("● 2", "far (read-only)  attached to")
            assert "connection lost, trying" not in desk.screen().split("\n")[0]
        assert READ not in desk.screen().replace("--token-env LOOK", "")
        desk.keys("C-q")
        desk.until("left=0")


@pytest.mark.slow
def test_what_is_wrong_with_an_attachment_is_said_on_the_screen(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    root = project(tmp_path)
    # A token that is too short turns the control API off.
    with serving(root, {**environment, "PALLAS_CONTROL_TOKEN": "short"}) as origin:
        command = f"{sys.executable} -m pallas.server dev --attach {origin}; echo left=$?"
        with terminal(command, environment=environment) as desk:
            desk.until("could not be attached", "there is no control API at", "PALLAS_CONTROL_TOKEN")
            desk.keys("C-q")
            desk.until("left=0")
    with terminal(f"{sys.executable} -m pallas.server dev --attach ftp://x; echo left=$?") as desk:
        desk.until("must begin with http://", "left=2")
