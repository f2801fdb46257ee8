"""What holds for the suite itself: in CI nothing is skipped, in one process and in several."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SKIPPING = """
import pytest

def test_that_passes():
    pass

@pytest.mark.skipif(True, reason="tmux is not installed")
def test_that_lacks_a_program():
    pass

def test_that_gives_up():
    pytest.skip("no chromium")

@pytest.mark.skipif(True, reason="no reference files beside this checkout")
def test_of_what_stands_beside():
    pass
"""


@pytest.mark.parametrize(
    ("ci", "reference", "outcome"),
    [
        ("true", False, "1 failed, 1 passed, 1 skipped, 1 error"),
        ("true", True, "1 failed, 1 passed, 2 errors"),
        ("", True, "1 passed, 3 skipped"),
    ],
)
# Two processes are that of pytest and one worker.
@pytest.mark.parametrize("workers", [(), ("-p", "xdist.plugin", "-n", "1")], ids=["one", "two"])
def test_in_ci_a_test_that_is_skipped_fails(
    tmp_path: Path, workers: tuple[str, ...], ci: str, reference: bool, outcome: str
) -> None:
    tests = tmp_path / "checkout" / "tests"
    tests.mkdir(parents=True)
    if reference:
        (tmp_path / "shared").mkdir()
    shutil.copy(TESTS / "conftest.py", tests)
    (tests / "pytest.ini").write_text("[pytest]\n")
    (tests / "test_skipping.py").write_text(SKIPPING)
    others = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers, str(tests)],
        cwd=tests,
        env={**others, "CI": ci, "PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert outcome in done.stdout, done.stdout + done.stderr
    assert done.returncode == (1 if ci else 0)
    assert ("tmux is not installed" in done.stdout) is bool(ci)


LISTENING = """
import asyncio, socket

import pytest

def test_that_listens():
    with socket.create_server(("127.0.0.1", 0)):
        pass

def test_that_serves_and_hides_it():
    with pytest.raises(AssertionError):
        asyncio.run(asyncio.start_server(None, "127.0.0.1", 0))

def test_that_has_a_socket_of_its_own(tmp_path):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "s"))
        sock.listen()
"""


def test_a_unit_test_that_listens_on_a_port_fails(tmp_path: Path) -> None:
    shutil.copy(TESTS / "unit" / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_listening.py").write_text(LISTENING)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "pytest_asyncio",
            str(tmp_path),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "1 failed, 2 passed, 1 error" in done.stdout, done.stdout + done.stderr
