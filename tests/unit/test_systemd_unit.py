"""`pallas systemd`: what the unit says, and that systemd takes it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.rehearse import obstacle
from pallas.cli.app import run
from pallas.cli.exit_status import CUT, UNUSABLE
from pallas.config import load_project

SAMPLE = Path(__file__).parents[2] / "sample_project"
LOADED = Path("/run/systemd/systemd-units-load")
"""What systemd-analyze writes as root."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed (package systemd)"
)


def made(capsys: pytest.CaptureFixture[str], *options: str, status: int = 0) -> tuple[str, str]:
    assert run(["systemd", *options]) == status
    out, err = capsys.readouterr()
    return out, err


def values(unit: str, key: str) -> list[str]:
    return [line.partition("=")[2] for line in unit.splitlines() if line.startswith(f"{key}=")]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "100% mine"
    (root / "agents").mkdir(parents=True)
    (root / "agents" / "one.py").write_text("")
    (root / "agents.yaml").write_text(
        "name: My fleet\ndrain_timeout: 90.5\nagents:\n  one: {module: agents.one, port: 24777}\n"
    )
    return root


def test_the_unit_fits_what_a_served_fleet_does(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unit, _ = made(capsys, str(project))
    assert values(unit, "Type") == ["notify"]
    assert values(unit, "ExecReload") == ["/bin/kill -HUP $MAINPID"]
    # The drain is over before systemd loses patience, and children are not ended before their runs.
    assert int(values(unit, "TimeoutStopSec")[0]) > load_project(project).drain_timeout
    assert values(unit, "KillMode") == ["mixed"]
    assert values(unit, "RestartPreventExitStatus") == [str(UNUSABLE)]
    assert values(unit, "SuccessExitStatus") == [str(CUT)]
    assert "PALLAS_LOG_STDERR=1" in values(unit, "Environment")[0]
    (command,) = values(unit, "ExecStart")
    assert command.endswith(f'--serve --project "{str(project).replace("%", "%%")}"')
    assert values(unit, "WorkingDirectory") == [str(project).replace("%", "%%")]
    assert "pallas-My-fleet.service" in unit


def test_options_are_in_the_unit(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--name", "shop", "--run-as", "pallas", "--credential", "OPENAI_API_KEY=/etc/pallas/openai")
    unit, err = made(capsys, str(project), *options, "--writable", "/srv/data")
    assert values(unit, "User") == ["pallas"]
    assert "DynamicUser" not in unit
    assert values(unit, "LoadCredential") == ["OPENAI_API_KEY:/etc/pallas/openai"]
    assert values(unit, "ReadWritePaths") == ["/srv/data"]
    assert "pallas-shop.service" in unit
    assert err == ""


def test_a_project_that_the_made_up_user_cannot_read_is_told(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project.chmod(0o700)
    _, err = made(capsys, str(project))
    assert "cannot be read by everyone" in err
    assert "--run-as USER" in err
    assert made(capsys, str(project), "--run-as", "me")[1] == ""


def test_a_port_of_the_system_needs_one_capability_and_no_other(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unit, _ = made(capsys, str(project))
    assert values(unit, "CapabilityBoundingSet") == [""]
    text = (project / "agents.yaml").read_text()
    (project / "agents.yaml").write_text(text + "port: 443\n")
    unit, _ = made(capsys, str(project))
    assert values(unit, "CapabilityBoundingSet") == ["CAP_NET_BIND_SERVICE"]
    assert values(unit, "AmbientCapabilities") == ["CAP_NET_BIND_SERVICE"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--credential", "no-variable=/x"), "--credential no-variable: write NAME=/path"),
        (("--credential", "KEY=relative"), "--credential KEY: write NAME=/path"),
        (("--name", "a/b"), "--name a/b: allowed are"),
    ],
)
def test_a_wrong_option_is_one_line(
    project: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], said: str
) -> None:
    out, err = made(capsys, str(project), *options, status=2)
    assert out == ""
    assert said in err
    assert len(err.splitlines()) == 1


def test_a_project_with_mistakes_gets_no_unit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = made(capsys, str(tmp_path), status=2)
    assert out == ""
    assert "agents.yaml" in err


def analyze(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze. That of root writes to /run: it gets one of its own."""
    command = ["systemd-analyze", *arguments]
    if os.geteuid() == 0:
        if why := obstacle():
            pytest.skip(f"systemd-analyze would write to the /run of this machine: {why}")
        script = 'mount -n -t tmpfs none /run && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", script, "sh", *command]
    before = LOADED.stat().st_mtime_ns if LOADED.exists() else None
    environ = {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ, check=False)
    assert (LOADED.stat().st_mtime_ns if LOADED.exists() else None) == before
    return done


@needs_systemd
@pytest.mark.parametrize(
    "options", [(), ("--user",), ("--run-as", "daemon")], ids=["dynamic", "user", "named"]
)
def test_systemd_takes_the_unit(
    tmp_path: Path, project: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    path = tmp_path / "pallas-checked.service"
    path.write_text(made(capsys, str(project), "--name", "checked", *options)[0])
    scope = ["--user"] if "--user" in options else []
    # There is no login of a user here.
    done = analyze(*scope, "verify", str(path), XDG_RUNTIME_DIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
def test_systemd_finds_little_that_the_service_may_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pallas-checked.service"
    path.write_text(made(capsys, str(SAMPLE), "--name", "checked")[0])
    # The threshold is in tenths: "OK" ends at 2.5.
    done = analyze("security", "--offline=true", "--threshold=25", str(path))
    assert done.returncode == 0, done.stdout[-2_000:]
