"""What holds for the suite itself: in CI nothing is skipped, no unit test listens, no loop is busy."""

import ast
import os
import re
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


# The next piece of a stream: nothing is asked again, it comes when it is there.
NEXT_PIECE = re.compile(r"(?<!database)\.(read\w*|receive|piece)$|^receive$")


def busy_loops(text: str) -> list[int]:
    """The lines with a ``while`` that awaits an answer again and again without a pause."""
    return [
        loop.lineno
        for loop in ast.walk(ast.parse(text))
        if isinstance(loop, ast.While) and all(isinstance(each, ast.Pass) for each in loop.body)
        for wait in ast.walk(loop.test)
        if isinstance(wait, ast.Await)
        and not (isinstance(wait.value, ast.Call) and NEXT_PIECE.search(ast.unparse(wait.value.func)))
    ]


@pytest.mark.parametrize(
    ("condition", "is_busy"),
    [
        ("not await held()", True),
        ("(await fleet.get('/readyz')).status_code != 200", True),
        ("await ledger.database.read(count) != 2", True),
        ("(await receive())['type'] != 'http.disconnect'", False),
        ("'running' not in (line := await process.stdout.readline())", False),
        ("not done()", False),
    ],
)
def test_a_loop_that_only_asks_is_busy_and_one_that_reads_on_is_not(condition: str, is_busy: bool) -> None:
    assert busy_loops(f"async def f():\n    while {condition}:\n        pass\n") == [2] * is_busy


def test_no_test_asks_again_and_again_without_a_pause() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        for line in busy_loops(path.read_text("utf-8"))
    ]
    assert not found, (
        "such a loop takes a core from what it waits for: poll() of tests/support/waiting.py pauses"
    )
