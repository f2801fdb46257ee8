"""``.ci/run`` on a small project with this one's Makefile and tools: what fails it, and what does not."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from support.planted_faults import FAILS, FAULTY_IMPORTS, HANGS, KILLS, LEAVES

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"

# The checks and modules that the Makefile runs, which pass here, and programs that it would install.
CHECKS = ("ruff", "mypy", "lint-imports")
MODULES = (
    "benchmarks/__init__.py",
    "deploy/__init__.py",
    "docs/check_conformance.py",
    "docs/build_site.py",
    "deploy/rolling_update.py",
    "benchmarks/gate.py",
    "benchmarks/soak.py",
    "tests/conformance/run.py",
)
PROGRAMS = ("tmux", "jq", "curl", "chromium", "haproxy", "systemd-analyze", "setpriv", "initdb")
NPM = "folder=.conformance/node_modules/.bin; mkdir -p $folder; ln -s /bin/true $folder/node"
SETTINGS = """
[pytest]
timeout = 5
addopts = -p xdist.plugin -p pytest_timeout -p no:cacheprovider
markers = slow
testpaths = tests
"""
SUITE = f"""{FAULTY_IMPORTS}
def test_that_passes(): pass

@pytest.mark.slow
def test_that_is_slow(): pass
"""
FAILS_ONCE = """
import sys
from pathlib import Path

if not Path("once").exists():
    Path("once").touch()
    sys.exit("the machine was busy")
"""
ENDS_BADLY = """
import sys
sys.exit("a fault")
"""


def program(path: Path, script: str = "exit 0") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout whose environment is installed, with a suite that passes."""
    root = tmp_path / "checkout"
    shutil.copytree(ROOT / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / ".ci", root / ".ci")
    shutil.copy(ROOT / "Makefile", root)
    for name in ("pyproject.toml", "constraints.txt"):
        (root / name).touch()
    for name in MODULES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    # The same hooks as here; only what was told to end gets no half a minute for it.
    support = root / "tests" / "support"
    support.mkdir()
    leftovers = (TESTS / "support" / "leftovers.py").read_text()
    (support / "leftovers.py").write_text(leftovers.replace("GRACE_S: Final = 30", "GRACE_S: Final = 0"))
    shutil.copy(TESTS / "support" / "own_folders.py", support)
    shutil.copy(TESTS / "conftest.py", root / "tests")
    (root / "pytest.ini").write_text(SETTINGS)
    (root / "tests" / "test_them.py").write_text(SUITE)
    bin_folder = root / ".venv" / "bin"
    program(bin_folder / "python", f'exec "{sys.executable}" "$@"')
    for name in CHECKS:
        program(bin_folder / name)
    for name in PROGRAMS:
        program(tmp_path / "programs" / name)
    program(tmp_path / "programs" / "npm", NPM)
    return root


def ci(root: Path) -> subprocess.CompletedProcess[str]:
    """Run ``.ci/run`` there. No make above this test has a say, and nothing is installed."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "MAKE", "MFLAGS", "CI", "ARGS"))
    }
    for stamp in (".venv/.installed", ".venv/xml-pipeline/.installed-0.4.0"):
        (root / stamp).parent.mkdir(exist_ok=True)
        (root / stamp).touch()
    return subprocess.run(
        [root / ".ci" / "run"],
        env={
            **own,
            "PATH": f"{root.parent / 'programs'}:{own['PATH']}",
            "PYTHON": sys.executable,
            "PYTHONPATH": str(root / "tests"),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "WORKERS": "2",
        },
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def parts(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """How each part of the run ended, by its name: the table at the end."""
    words = [line.split() for line in done.stdout.splitlines()]
    return {line[3]: line[0] for line in words if len(line) == 4 and line[0] in ("passed", "failed")}


BEFORE_TESTS = dict.fromkeys(("install", "lint", "docs", "rehearse", "soak", "conformance"), "passed")


@pytest.mark.slow
def test_a_project_without_a_fault_passes_each_part(project: Path) -> None:
    done = ci(project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert parts(done) == {**BEFORE_TESTS, "test": "passed", "test-slow": "passed"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "name"),
    [(FAILS, "fails"), (HANGS, "hangs"), (KILLS, "kills_its_worker"), (LEAVES, "leaves_a_process")],
    ids=["a broken assert", "a test that hangs", "a dead worker", "a process left behind"],
)
def test_a_fault_in_a_test_fails_it_and_names_the_part_and_the_test(
    project: Path, fault: str, name: str
) -> None:
    (project / "tests" / "test_them.py").write_text(SUITE + fault)
    done = ci(project)
    assert done.returncode != 0
    assert parts(done) == {**BEFORE_TESTS, "test": "failed"}, done.stdout + done.stderr
    assert f"FAILED tests/test_them.py::test_that_{name} - beside others and alone" in done.stdout
    for pid in (project / "pids").read_text().split() if fault is LEAVES else ():
        assert not psutil.pid_exists(int(pid)) or psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE


@pytest.mark.slow
def test_a_fault_in_a_slow_test_fails_it_as_well(project: Path) -> None:
    (project / "tests" / "test_them.py").write_text(f"{SUITE}\n@pytest.mark.slow{FAILS}")
    done = ci(project)
    assert done.returncode != 0
    assert parts(done) == {**BEFORE_TESTS, "test": "passed", "test-slow": "failed"}, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "script"),
    [
        ("rehearse", "deploy/rolling_update.py"),
        ("soak", "benchmarks/soak.py"),
        ("conformance", "tests/conformance/run.py"),
    ],
)
def test_what_runs_as_a_whole_has_a_second_run_and_no_third(project: Path, part: str, script: str) -> None:
    (project / script).write_text(FAILS_ONCE)
    done = ci(project)
    assert done.returncode == 0, done.stdout + done.stderr
    flaky = json.loads((project / "build" / "flaky.json").read_text())
    assert [each["name"] for each in flaky[part]] == [part]
    (project / script).write_text(ENDS_BADLY)
    done = ci(project)
    assert done.returncode != 0
    assert parts(done)[part] == "failed"
    assert list(parts(done))[-1] == part
