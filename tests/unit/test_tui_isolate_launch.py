"""``pallas dev`` in a terminal of its own: what it draws, how it ends, what it loads."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path
from struct import pack
from time import monotonic

import pytest

ROOT = Path(__file__).parents[2]

# The fleet and the panes of others are replaced; everything else is what ``pallas dev`` runs.
PRELUDE = """
import ctypes, logging, os, subprocess, sys, threading, types, warnings
from pathlib import Path
from support.fake_fleet import FakeFleet
from support.shell import FakeChat, FakeLogs

early = logging.StreamHandler()
logging.getLogger("early").addHandler(early)

class Fleet(FakeFleet):
    def __init__(self, root, **_):
        super().__init__()

    def stop(self, timeout=5.0):
        Path(sys.argv[1]).write_text("stopped")

def module(name, **names):
    made = types.ModuleType(name)
    vars(made).update(names)
    sys.modules[name] = made

module("pallas_tui.widgets.chat", ChatPane=lambda id, **_: FakeChat())
module("pallas_tui.widgets.logs", LogsPane=lambda path, id, **_: FakeLogs())
"""
MAIN = """
module("pallas.fleet.threaded_fleet", ThreadedFleet=Fleet)
from pallas_tui.launch import main
sys.exit(main(Path("desk")))
"""


class Session:
    """A program on a terminal of its own, of 120 by 40."""

    def __init__(self, process: subprocess.Popen[bytes], master: int, slave: int, folder: Path) -> None:
        self.process = process
        self.drawn = b""
        self.folder = folder
        self._master = master
        self._slave = slave

    def until(self, condition: Callable[[], object], timeout: float = 30.0) -> None:
        """Read what is drawn until the condition holds."""
        deadline = monotonic() + timeout
        while not condition():
            if monotonic() > deadline:
                pytest.fail(
                    f"not in {timeout} s; drawn: {self.text()[-2000:]!r}; log: {self.log()[-2000:]!r}"
                )
            if select.select([self._master], [], [], 0.05)[0]:
                self.drawn += os.read(self._master, 65_536)

    def press(self, keys: bytes) -> None:
        """Type."""
        os.write(self._master, keys)

    def end(self) -> int:
        """Wait until the program is gone; its status."""
        self.until(lambda: self.process.poll() is not None)
        while select.select([self._master], [], [], 0)[0]:
            self.drawn += os.read(self._master, 65_536)
        return int(self.process.returncode)

    def settings(self) -> list[object]:
        """How the terminal is set: echo, line editing and so on."""
        return termios.tcgetattr(self._slave)

    def text(self) -> str:
        """What was drawn, without its controls."""
        return re.sub(r"\x1b(\[[0-?]*[ -/]*[@-~]|.)", "", self.drawn.decode("utf-8", "replace"))

    def log(self) -> str:
        """The log so far."""
        path = self.folder / "pallas.log"
        return path.read_text() if path.exists() else ""

    def records(self) -> list[dict[str, object]]:
        """The records of the log."""
        return [json.loads(line) for line in self.log().splitlines()]


@contextmanager
def started(tmp_path: Path, body: str, **environment: str) -> Iterator[Session]:
    """Run a script after the prelude on a terminal."""
    script = tmp_path / "script.py"
    script.write_text(PRELUDE + textwrap.dedent(body) + MAIN)
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, pack("HHHH", 40, 120, 0, 0))
    env = dict(
        os.environ,
        PYTHONPATH=os.pathsep.join((str(ROOT), str(ROOT / "tests"))),
        TERM="xterm-256color",
        COLORTERM="truecolor",
        PALLAS_LOG_FILE=str(tmp_path / "pallas.log"),
        PALLAS_WORKBENCH_CONFIG=str(tmp_path / "workbench.yaml"),
        **environment,
    )
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "stopped")],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env=env,
    )
    try:
        yield Session(process, master, slave, tmp_path)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(60)
        os.close(master)
        os.close(slave)


NOISE = """
def noise():
    os.write(1, b"noise fd one\\n")
    os.write(2, b"noise fd two\\n")
    libc = ctypes.CDLL(None)
    libc.puts(b"noise of C")
    libc.fflush(None)
    subprocess.run(["sh", "-c", "echo noise child out; echo noise child err >&2"], check=True)
    subprocess.run(["sh", "-c", "echo noise child given stderr >&2"], check=True, stderr=sys.stderr)
    logging.getLogger("early").error("noise handler made early")
    print("noise print")
    sys.stderr.write("noise stderr\\n")
    warnings.warn("noise warning")
    logging.lastResort.handle(logging.makeLogRecord({"msg": "noise last resort", "levelno": 40}))
    os.write(2, b"noise that ends it\\n")
    raise RuntimeError("noise traceback")

class Fleet(Fleet):
    def start(self):
        super().start()
        threading.Thread(target=noise, name="noisy").start()
"""


@pytest.mark.slow
def test_twelve_kinds_of_noise_leave_no_byte_on_the_workbench(tmp_path: Path) -> None:
    # PR-33
    with started(tmp_path, NOISE) as session:
        before = session.settings()
        session.until(lambda: ":24204" in session.text())
        session.until(lambda: "noise that ends it" in session.log() and "noise traceback" in session.log())
        session.press(b"\x11")  # ctrl+q
        assert session.end() == 0
        assert b"noise" not in session.drawn
        assert session.settings() == before
        assert (tmp_path / "stopped").exists()
        by_source = {
            (record.get("source"), record.get("message") or record.get("msg")) for record in session.records()
        }
    for source, message in (
        ("stdout", "noise fd one"),
        ("stderr", "noise fd two"),
        ("stdout", "noise of C"),
        ("stdout", "noise child out"),
        ("stderr", "noise child err"),
        ("stderr", "noise child given stderr"),
        ("stdout", "noise print"),
        ("stderr", "noise stderr"),
        ("stderr", "RuntimeError: noise traceback"),
    ):
        assert (source, message) in by_source
    for message in ("noise handler made early", "noise warning", "noise last resort"):
        assert any(message in str(text) for _, text in by_source)


@pytest.mark.slow
def test_the_screen_still_answers_after_the_noise_and_prints_of_the_screens_own_thread_are_logged(
    tmp_path: Path,
) -> None:
    # PR-33
    body = """
    class Fleet(Fleet):
        def start(self):
            super().start()
            print("noise of the screen's thread")
    """
    with started(tmp_path, body) as session:
        session.until(lambda: "noise of the screen's thread" in session.log())
        session.until(lambda: ":24204" in session.text())
        session.press(b"\x1bOQ")  # F2
        session.until(lambda: "details" in session.text())
        session.press(b"\x11")
        assert session.end() == 0
        assert b"noise" not in session.drawn


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_the_fleet_and_gives_the_terminal_back(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path, "") as session:
        before = session.settings()
        session.until(lambda: ":24204" in session.text())
        assert session.settings() != before
        session.process.send_signal(number)
        assert session.end() == 0
        assert session.settings() == before
        assert (tmp_path / "stopped").exists()
        assert b"Traceback" not in session.drawn
        assert session.drawn.rfind(b"\x1b[?1049l") > session.drawn.rfind(b"\x1b[?1049h")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_screen_is_being_set_up_gives_the_terminal_back(
    tmp_path: Path, number: signal.Signals
) -> None:
    body = """
    import signal
    from pallas_tui.app import Workbench

    class Early(Workbench):
        def on_load(self):
            os.kill(os.getpid(), int(os.environ["NUMBER"]))

    import pallas_tui.app
    pallas_tui.app.Workbench = Early
    """
    with started(tmp_path, body, NUMBER=str(int(number))) as session:
        before = session.settings()
        assert session.end() == 0
        assert session.settings() == before
        assert session.drawn.rfind(b"\x1b[?1049l") >= session.drawn.rfind(b"\x1b[?1049h")
        assert b"Traceback" not in session.drawn


@pytest.mark.slow
def test_when_the_workbench_breaks_the_terminal_comes_back_with_one_line_that_names_the_log(
    tmp_path: Path,
) -> None:
    body = """
    class Fleet(Fleet):
        calls = 0
        def snapshot(self):
            self.calls += 1
            secret = "sk-do-not-show"
            if self.calls > 5:
                raise RuntimeError("a defect")
            return super().snapshot()
    """
    with started(tmp_path, body) as session:
        before = session.settings()
        assert session.end() == 1
        assert session.settings() == before
        last = session.text().strip().splitlines()[-1]
        assert "the workbench stopped on an error (RuntimeError); a report to pass on" in last
        assert "pallas.log" in last
        (report,) = tmp_path.rglob("crash-*.txt")
        assert report.name in last
        # What it asks for the facts is what broke; that stops neither the report nor the end.
        assert "The facts could not be collected: RuntimeError: a defect" in report.read_text()
        assert "sk-do-not-show" not in report.read_text()
        assert "sk-do-not-show" not in session.text() + session.log()
        assert "RuntimeError: a defect" in session.log()
        assert (tmp_path / "stopped").exists()


@pytest.mark.slow
def test_a_slow_stop_is_told_and_an_impatient_signal_does_not_cut_it_short(tmp_path: Path) -> None:
    body = """
    import time
    class Fleet(Fleet):
        def stop(self, timeout=5.0):
            until = time.monotonic() + 30
            while not Path(sys.argv[1] + ".go").exists() and time.monotonic() < until:
                threading.Event().wait(0.02)
            super().stop()
    """
    with started(tmp_path, body) as session:
        session.until(lambda: ":24204" in session.text())
        session.press(b"\x11")
        session.until(lambda: "Stopping the fleet" in session.text())
        session.process.send_signal(signal.SIGINT)
        session.process.send_signal(signal.SIGTERM)
        (tmp_path / "stopped.go").touch()
        assert session.end() == 0
        assert (tmp_path / "stopped").exists()


@pytest.mark.slow
def test_leaving_says_how_many_runs_it_cuts_short(tmp_path: Path) -> None:
    body = """
    from dataclasses import replace
    class Fleet(Fleet):
        def __init__(self, root, **_):
            super().__init__(root)
            self.change("research", runs_active=2, runs_queued=1)
    """
    with started(tmp_path, body) as session:
        session.until(lambda: ":24204" in session.text())
        session.press(b"\x11")
        session.until(lambda: "will be cancelled. Quit?" in session.text())
        session.press(b"\x11")
        assert session.end() == 0
        assert "Stopping the fleet; 3 runs are cut short" in session.text()


def run(code: str, **arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        check=False,
        **arguments,  # type: ignore[call-overload]
    )


def test_without_a_terminal_one_line_says_what_to_use_instead() -> None:
    done = run("import sys; from pallas_tui.launch import main; sys.exit(main(__import__('pathlib').Path()))")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "pallas --serve" in done.stderr


HEAVY = "fast_agent", "fastmcp", "mcp"


def test_launching_loads_neither_textual_nor_the_fleet() -> None:
    done = run("import sys, pallas_tui.launch; print(*sys.modules)")
    loaded = set(done.stdout.split())
    assert "pallas_tui.launch" in loaded
    assert loaded.isdisjoint((*HEAVY, "textual", "pallas.fleet"))


@pytest.mark.slow
def test_nothing_heavy_is_loaded_before_the_first_paint() -> None:
    code = """
        import asyncio, sys
        from dataclasses import replace
        from pathlib import Path
        from pallas_tui import launch
        from pallas_tui.app import Workbench

        seen = []

        class Done(Exception):
            pass

        def make_chat():  # the first thing after that paint
            slow = {
                "yaml", "pydantic", "typer", "pallas.config", "textual.widgets._markdown", "PIL",
                "textual.widgets._text_area", "pallas_tui.chat.chat_entry", "pallas_tui.pictures.images",
                "pallas_tui.diagnostics", "importlib.metadata",
            }
            seen.append(sorted(set(sys.modules) & slow))
            return chat.make()

        chat, *others = launch.late_panes(Path("x.log"))

        def make():
            heavy = {"fast_agent", "fastmcp", "mcp", "pallas.fleet.threaded_fleet"}
            seen.append(sorted(set(sys.modules) & heavy))
            raise Done

        async def main():
            app = Workbench(make, name="x", late=(replace(chat, make=make_chat), *others))
            async with app.run_test(size=(120, 40)) as pilot:
                while len(seen) < 2:
                    await pilot.pause()

        asyncio.run(main())
        print(seen)
        """
    done = run(code)
    assert done.stdout.strip() == "[[], []]", done.stderr[-2000:]
