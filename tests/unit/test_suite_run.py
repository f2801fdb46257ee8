"""``make test``, ``make flaky`` and ``make ci``: what fails, what runs again, and what is printed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.planted_faults import FAILS, FAULTY_IMPORTS, HANGS, KILLS

TOOLS = Path(__file__).parents[2] / "tools"

BEHAVIOUR = f"""{FAULTY_IMPORTS}
def is_first(name):
    done = Path(__file__).with_name(name)
    try:
        return not done.exists()
    finally:
        done.touch()

def test_that_passes(): pass
"""
FAILS_ONCE = """
def test_that_fails_once():
    assert not is_first("fails"), "the machine was busy"
"""
KILLS_ONCE = """
def test_that_kills_its_worker_once():
    if is_first("kills"):
        os.kill(os.getpid(), signal.SIGKILL)
"""
LEAVES_ONCE = """
@pytest.fixture
def broken_end():
    yield
    assert not is_first("ends"), "its end failed"

def test_whose_teardown_fails_once(broken_end): pass
"""
MANY = """
@pytest.mark.parametrize("number", range(21))
def test_of_many(number):
    Path(__file__).with_name("runs").open("a").write("x")
    assert False
"""
FAILS_AT_THE_START = """
@pytest.fixture
def broken_start():
    raise RuntimeError("no\\nplace")

def test_whose_setup_fails(broken_start): pass
"""
WAITS = """
import time

@pytest.mark.timeout(200)
def test_that_waits_until_the_failures_are_printed():
    while not Path(__file__).with_name("printed").exists():
        time.sleep(0.05)
"""


# No plugin but these: others take seconds to import.
SETTINGS = "[pytest]\ntimeout = 3\naddopts = -p xdist.plugin -p pytest_timeout -p no:cacheprovider\n"


def environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "CI"))}
    return {**own, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def tool(root: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOOLS / name), *arguments],
        cwd=root,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def python(root: Path, code: str) -> subprocess.CompletedProcess[str]:
    """What code did that imports modules of the folder ``tools``."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(TOOLS)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def write_tests(root: Path, *parts: str) -> None:
    root.joinpath("pytest.ini").write_text(SETTINGS)
    root.joinpath("test_them.py").write_text(BEHAVIOUR + "".join(parts))


def suite(root: Path, *parts: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    write_tests(root, *parts)
    return tool(root, "suite_run.py", "test", "-q", "-n", "2", *options)


def flaky(root: Path) -> Mapping[str, Any]:
    return dict(json.loads((root / "build" / "flaky.json").read_text()))


@pytest.mark.slow
def test_what_fails_once_is_reported_and_fails_nothing(tmp_path: Path) -> None:
    done = suite(tmp_path, FAILS_ONCE, KILLS_ONCE, LEAVES_ONCE)
    assert done.returncode == 0, done.stdout
    found = {each["name"].partition("::")[2]: each for each in flaky(tmp_path)["test"]}
    assert set(found) == {
        "test_that_fails_once",
        "test_that_kills_its_worker_once",
        "test_whose_teardown_fails_once",
    }
    once = found["test_that_fails_once"]
    assert "the machine was busy" in once["reason"]
    assert once["first_s"] >= 0
    assert once["again_s"] > 0
    assert "crashed" in found["test_that_kills_its_worker_once"]["reason"]
    heading = done.stdout.index("\nflaky: ")
    assert all(name in done.stdout[heading:] for name in found)
    assert done.stdout.rstrip().endswith("4 passed, 0 failed")


@pytest.mark.slow
def test_what_fails_again_fails_the_run(tmp_path: Path) -> None:
    done = suite(tmp_path, FAILS_ONCE, FAILS, HANGS, KILLS)
    assert done.returncode == 1, done.stdout
    assert [each["name"] for each in flaky(tmp_path)["test"]] == ["test_them.py::test_that_fails_once"]
    again = {line.split()[1] for line in done.stdout.splitlines() if "beside others and alone" in line}
    assert again == {f"test_them.py::test_that_{what}" for what in ("fails", "hangs", "kills_its_worker")}
    assert done.stdout.rstrip().endswith("2 passed, 3 failed")


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_fails_is_printed_at_once_in_a_line_of_its_own(tmp_path: Path, workers: str) -> None:
    write_tests(tmp_path, FAILS, FAILS_AT_THE_START, WAITS)
    command = [sys.executable, str(TOOLS / "suite_run.py"), "test", "-q", "-n", workers]
    expected = {
        "FAILED test_them.py::test_that_fails - AssertionError: a fault\n",
        "ERROR at setup of test_them.py::test_whose_setup_fails - RuntimeError: no\n",
    }
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            while expected:  # the last test waits for this, so a summary would come too late
                line = process.stdout.readline()
                assert line, expected
                expected.discard(line)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.slow
def test_of_more_than_twenty_failures_none_runs_again(tmp_path: Path) -> None:
    done = suite(tmp_path, MANY)
    assert done.returncode != 0
    assert (tmp_path / "runs").read_text() == 21 * "x"
    assert flaky(tmp_path) == {"test": []}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parts", "options"),
    [((FAILS_ONCE, "import nothing_of_that_name"), ()), ((FAILS_ONCE,), ("-x",)), ((), ("no_such_file.py",))],
    ids=["a file that cannot be imported", "a run that is stopped early", "nothing to run"],
)
def test_a_run_that_is_not_whole_fails(
    tmp_path: Path, parts: tuple[str, ...], options: tuple[str, ...]
) -> None:
    done = suite(tmp_path, *parts, options=options)
    assert done.returncode != 0, done.stdout


@pytest.mark.slow
def test_a_run_forgets_what_was_flaky_in_the_last_one_and_keeps_what_other_runs_say(tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    old = {"name": "old", "reason": "", "first_s": 1, "again_s": 1}
    (tmp_path / "build" / "flaky.json").write_text(json.dumps({"test": [old], "soak": [old]}))
    assert suite(tmp_path).returncode == 0
    assert flaky(tmp_path) == {"test": [], "soak": [old]}


@pytest.mark.parametrize(
    ("script", "status", "runs"),
    [("exit 0", 0, 1), ("test $(wc -c < runs) = 2", 0, 2), ("exit 3", 3, 2)],
    ids=["passes", "fails once", "fails"],
)
def test_a_command_that_fails_runs_once_more(tmp_path: Path, script: str, status: int, runs: int) -> None:
    done = tool(tmp_path, "second_try.py", "soak", "sh", "-c", f"printf x >> runs; {script}")
    assert done.returncode == status
    assert len((tmp_path / "runs").read_text()) == runs
    if runs == 2:
        assert "soak, run 1: status" in done.stdout
        assert f"soak, run 2: status {status}" in done.stdout
    assert [each["name"] for each in flaky(tmp_path)["soak"]] == (
        ["soak"] if (runs, status) == (2, 0) else []
    )


def test_a_command_that_takes_too_long_ends_with_what_it_started(tmp_path: Path) -> None:
    script = "printf x >> runs; sleep 600 & wait"
    code = f"import sys, second_try as s; s.LONGEST_S = 1; sys.exit(s.main('soak', ['sh', '-c', {script!r}]))"
    # This returns when no process holds the pipes of the output any more, `sleep` among them.
    done = python(tmp_path, code)
    assert done.returncode == 124
    assert "sh did not end within 1 s" in done.stderr
    assert (tmp_path / "runs").read_text() == "xx"


@pytest.mark.slow
def test_how_often_each_test_fails_is_counted(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    (tmp_path / "test_them.py").write_text(BEHAVIOUR + FAILS_ONCE + FAILS)
    done = tool(tmp_path, "flaky_count.py", "2", "1", "-q")
    assert done.returncode == 1
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "2 of 2 test_them.py::test_that_fails" in lines
    assert "1 of 2 test_them.py::test_that_fails_once" in lines
    assert lines[-1] == "2 tests failed at least once in 2 runs beside 1 busy processes"


def test_the_parts_of_ci_end_with_the_first_that_fails_and_say_their_times(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("one:\n\t@true\ntwo:\n\t@exit 3\nthree:\n\t@touch three\n")
    done = python(tmp_path, "import sys, ci_run; sys.exit(ci_run.main([('one',), ('two',), ('three',)]))")
    assert done.returncode == 2  # make's own
    assert [line.split()[0::3] for line in done.stdout.splitlines()[-2:]] == [
        ["passed", "one"],
        ["failed", "two"],
    ]
    assert not (tmp_path / "three").exists()
