"""The wheel: installed into a fresh environment, away from the repository, everything in it works.

And the checkout, installed by the command of the README.
"""

import email
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.ports import free_ports

from pallas import __version__

ROOT = Path(__file__).parents[2]
PACKAGES = {"pallas": ROOT / "runtime" / "pallas", "pallas_tui": ROOT / "pallas_tui"}
FACTS = "import pallas, pallas_tui; print(pallas.__version__, pallas.__file__, pallas_tui.__file__)"

# Each test starts programs; what they take together is bounded here, not each of them.
pytestmark = pytest.mark.timeout(480)


def run(*command: object, cwd: Path, **environment: object) -> str:
    kept = ("PATH", "HOME", "LANG", "TMPDIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "SSL_CERT_FILE")
    own = {name: os.environ[name] for name in kept if name in os.environ}
    done = subprocess.run(
        [str(each) for each in command],
        cwd=cwd,
        env=own | {name: str(value) for name, value in environment.items()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, which finds what the wheel needs in that of the tests.

    The installer is that which `make install` takes: uv if it is there, else the pip of the tests. A pip of
    its own would take longer to install than the wheel. The commands compile what they import.
    """
    folder = tmp_path_factory.mktemp("env")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "of_the_tests.pth").write_text(sysconfig.get_path("purelib"), "utf-8")
    if uv := shutil.which("uv"):
        installer = [uv, "pip", "install", "--python", folder / "bin" / "python", "--no-cache"]
    else:
        pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "--isolated"]
        installer = [*pip, "install", "--disable-pip-version-check", "--no-cache-dir", "--no-compile"]
    run(*installer, "--quiet", "--no-deps", "--no-index", wheel, cwd=folder)
    return folder


def move_ports(project: Path) -> None:
    """Give a new project ports that no other process of tests has, in place of those that it chose."""
    agents = (project / "agents.yaml").read_text("utf-8")
    (first,) = map(int, re.findall(r"^registry_port: (\d+)$", agents, re.MULTILINE))
    ports = {str(first + offset): str(port) for offset, port in zip((0, 1, 9), free_ports(3), strict=True)}
    for name in ("agents.yaml", "fastagent.config.yaml"):
        text = (project / name).read_text("utf-8")
        (project / name).write_text(re.sub("|".join(ports), lambda found: ports[found[0]], text), "utf-8")


@pytest.mark.slow
def test_it_has_every_file_of_the_packages_and_says_who_may_use_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        facts = email.message_from_bytes(archive.read(metadata))
    sources = {
        f"{name}/{path.relative_to(folder).as_posix()}"
        for name, folder in PACKAGES.items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert sources <= names
    assert {"pallas/py.typed", "pallas_tui/py.typed"} <= names
    assert facts["License-Expression"] == "Apache-2.0"
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "docs/"))]


@pytest.mark.slow
def test_its_commands_run_away_from_the_repository(installed: Path, tmp_path: Path) -> None:
    pallas = installed / "bin" / "pallas"
    version, *files = run(installed / "bin" / "python", "-c", FACTS, cwd=tmp_path).split()
    assert all(file.startswith(str(installed)) for file in files)
    assert version in run(pallas, "--version", cwd=tmp_path)
    run(pallas, "init", "desk", cwd=tmp_path)
    desk = tmp_path / "desk"
    move_ports(desk)
    run(pallas, "check", cwd=desk)
    assert "$schema" in run(pallas, "schema", cwd=desk)
    assert "I will call your tool" in run(pallas, "chat", "desk", "-m", "hello", cwd=desk)
    assert "--attach" in run(pallas, "dev", "--help", cwd=tmp_path)


@pytest.fixture(scope="module")
def installers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the commands `pipx` and `uv`, which come from a package index."""
    folder = tmp_path_factory.mktemp("installers")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    done = subprocess.run(
        [*pip, "install", "--quiet", "--retries", "1", "pipx", "uv"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"no package index is reachable: {done.stderr.strip().splitlines()[-1]}")
    return folder / "bin"


def of_the_index() -> dict[str, str]:
    """How this machine reaches its package index."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("PIP_", "UV_")) or name.lower().endswith("_proxy")
    }


def install_command(program: str) -> list[str]:
    """The arguments with which the README installs a checkout."""
    found = re.search(rf"`{program} ([a-z ]+\.)`", (ROOT / "README.md").read_text("utf-8"))
    assert found is not None
    return found[1].split()


@pytest.mark.slow
def test_uv_puts_the_command_on_the_path_from_a_checkout(installers: Path, tmp_path: Path) -> None:
    with TemporaryDirectory(dir=tmp_path) as folder:  # pytest would keep it, and it is 300 MB
        home = Path(folder)
        run(
            installers / "uv",
            *install_command("uv"),
            "--quiet",
            cwd=ROOT,
            **of_the_index(),
            HOME=home,
            UV_TOOL_DIR=home / "tools",
            UV_TOOL_BIN_DIR=home / "bin",
            UV_NO_CACHE="1",
            UV_PYTHON=sys.executable,
            # A new release of another package must not fail a change that has nothing to do with it.
            UV_CONSTRAINT=ROOT / "constraints.txt",
            UV_BUILD_CONSTRAINT=ROOT / "constraints.txt",
        )
        runs_from(home / "tools", home, tmp_path)


@pytest.mark.slow
def test_pipx_puts_the_command_on_the_path_from_a_checkout(installers: Path, tmp_path: Path) -> None:
    with TemporaryDirectory(dir=tmp_path) as folder:
        home = Path(folder)
        run(
            installers / "pipx",
            *install_command("pipx"),
            "--quiet",
            cwd=ROOT,
            **of_the_index(),
            HOME=home,
            PIPX_HOME=home / "tools",
            PIPX_BIN_DIR=home / "bin",
            PIPX_DEFAULT_PYTHON=Path(sys.executable).resolve(),
            PIP_CONSTRAINT=ROOT / "constraints.txt",
            PIP_NO_CACHE_DIR="1",
            PIP_NO_COMPILE="1",
        )
        runs_from(home / "tools" / "venvs", home, tmp_path)


def runs_from(tools: Path, home: Path, folder: Path) -> None:
    """Check that the command runs in ``folder`` with the packages that were installed below ``tools``."""
    printed = run(home / "bin" / "pallas", "--version", cwd=folder, HOME=home)
    assert printed.split() == ["pallas", __version__]
    facts = run(tools / "pallas-mcp" / "bin" / "python", "-c", FACTS, cwd=folder, HOME=home)
    version, *files = facts.split()
    assert version == __version__
    assert all(file.startswith(str(tools)) for file in files)
