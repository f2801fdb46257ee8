"""What a test leaves behind is not there for the next one, and processes and servers fail the test."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from support.own_folders import own_folder, remove_abandoned

TESTS = Path(__file__).parents[1]

LEAVING = """
import logging, os, signal, socket, subprocess, sys
from pathlib import Path

import pytest

KEPT = []


def test_process():
    KEPT.append(subprocess.Popen(["sleep", "600"]))
    Path("pids").open("a").write(f"{KEPT[-1].pid}\\n")


def test_no_process():
    KEPT[-1].wait(60)


def test_orphan():
    subprocess.run(["sh", "-c", "sleep 600 & echo $! >> pids"], stdout=subprocess.DEVNULL)


def test_socket():
    KEPT.append(socket.create_server(("127.0.0.1", 0)))


def test_no_socket():
    assert KEPT[-1].fileno() == -1


def test_environment(monkeypatch):
    monkeypatch.setenv("UNDONE", "1")
    os.environ["OF_A_TEST"] = "1"


def test_no_environment():
    assert "OF_A_TEST" not in os.environ


def test_logger():
    logging.getLogger("pallas.tests").setLevel(logging.DEBUG)


def test_no_logger():
    assert logging.getLogger("pallas.tests").level == logging.NOTSET


def test_global():
    from fast_agent.core.logging.logger import LoggingConfig
    from fast_agent.core.logging.transport import AsyncEventBus

    LoggingConfig._initialized = True
    AsyncEventBus.get()


def test_no_global():
    from fast_agent.core.logging.logger import LoggingConfig
    from fast_agent.core.logging.transport import AsyncEventBus

    assert not LoggingConfig._initialized
    assert AsyncEventBus._instance is None


def test_signal():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def test_no_signal():
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_path():
    sys.path.insert(0, "/of/a/test")


def test_no_path():
    assert "/of/a/test" not in sys.path


def test_folder(tmp_path):
    os.chdir(tmp_path)


def test_no_folder(tmp_path):
    assert Path.cwd().parent != tmp_path.parent


def test_module(tmp_path, monkeypatch):
    (tmp_path / "module_of_a_test.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    import module_of_a_test


def test_no_module():
    assert "module_of_a_test" not in sys.modules


@pytest.fixture(scope="class")
def shared():
    process = subprocess.Popen(["sleep", "600"])
    os.environ["SHARED"] = "1"
    yield process
    del os.environ["SHARED"]
    process.kill()
    process.wait()


class TestShared:
    def test_shared_one(self, shared):
        assert shared.poll() is None

    def test_shared_two(self, shared):
        assert shared.poll() is None
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["one process", "a worker"])
def test_what_a_test_leaves_fails_it_and_not_the_next(tmp_path: Path, workers: tuple[str, ...]) -> None:
    support = tmp_path / "support"
    support.mkdir()
    # What was told to end has half a minute; here nothing was.
    code = (
        (TESTS / "support" / "leftovers.py").read_text().replace("GRACE_S: Final = 30", "GRACE_S: Final = 0")
    )
    (support / "leftovers.py").write_text(code)
    shutil.copy(TESTS / "support" / "own_folders.py", support)
    shutil.copy(TESTS / "conftest.py", tmp_path)
    (tmp_path / "test_leaving.py").write_text(LEAVING)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p xdist.plugin -p pytest_timeout\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    for pid in (tmp_path / "pids").read_text().split():
        assert not psutil.pid_exists(int(pid)) or psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE
    left = ["process", "orphan", "socket", "folder"]
    assert re.findall(r"^ERROR test_leaving\.py::test_(\w+)", done.stdout, re.MULTILINE) == left, done.stdout
    assert f"{len(re.findall('def test_', LEAVING))} passed, {len(left)} errors" in done.stdout


UNENDING = """
import signal, time

def test_that_no_signal_ends():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    time.sleep(600)

def test_after_it():
    pass
"""


@pytest.mark.slow
def test_a_worker_that_no_signal_ends_is_ended(tmp_path: Path) -> None:
    code = (TESTS / "conftest.py").read_text()
    (tmp_path / "conftest.py").write_text(code.replace("PAST_LIMIT_S = 60", "PAST_LIMIT_S = 1"))
    (tmp_path / "test_unending.py").write_text(UNENDING)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\ntimeout = 1\naddopts = -p xdist.plugin -p pytest_timeout\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "1"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert "crashed while running 'test_unending.py::test_that_no_signal_ends'" in done.stdout
    assert "1 failed, 1 passed" in done.stdout


def test_folders_of_processes_that_were_killed_are_removed_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with subprocess.Popen(["true"]) as ended:
        ended.wait(30)
    mine = own_folder("pg")
    others = ["pallas-work", f"pallas-mine-{ended.pid}-x", f"pallas-pg-{os.getpid()}-x"]
    for name in (*others, *(f"pallas-{kind}-{ended.pid}-a_0" for kind in ("alone", "pg", "forks", "looks"))):
        (tmp_path / name / "in it").mkdir(parents=True)
    remove_abandoned()
    assert {each.name for each in tmp_path.iterdir()} == {mine.name, *others}
