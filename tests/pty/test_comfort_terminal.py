"""Leaving, breaking and pausing in a real terminal (tmux): the terminal is always as it was."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.live import agent_module
from support.offline import offline_project
from support.terminal import Terminal, needs_tmux, terminal
from support.waiting import until

pytestmark = [needs_tmux, pytest.mark.pty]

SCRIPT = """
rules:
  - when: {last: user, text: hang}
    call: [{tool: echo__slow, arguments: {text: "x"}}]
  - when: {last: user}
    say: "done"
"""
BREAKING = """
import sys
from pathlib import Path

from pallas_tui.app import Workbench
from pallas_tui.launch import main
from pallas_tui.widgets.feed import FeedPane


def boom():
    password = "hunter2hunter2"
    raise RuntimeError("the floor gave way, token=sk-thisisaverysecretkey123456")


Workbench.action_redraw = lambda self: self.call_later(boom)
FeedPane.action_copy = lambda self: self.call_later(boom)
sys.exit(main(Path(sys.argv[1])))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return offline_project(tmp_path / "project", {"worker": agent_module("worker", ("echo",))}, SCRIPT)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"PALLAS_LOG_FILE": str(tmp_path / "pallas.log"), "XDG_CONFIG_HOME": str(tmp_path / "config")}


@pytest.fixture
def desk(project: Path, environment: dict[str, str]) -> Iterator[Terminal]:
    command = f"{sys.executable} -m pallas.server dev {project}; echo left with $?"
    with terminal(command, environment=environment) as shown:
        shown.until("Write to worker")
        yield shown


def title(desk: Terminal) -> str:
    """The title that the terminal has now."""
    return desk.tmux("display-message", "-p", "#{pane_title}").strip()


async def still_a_shell(desk: Terminal, word: str = "shell") -> None:
    """What is typed is echoed, lines end where they should, and a click is no text."""
    desk.type(f"stty -a | tr ' ' '\\n' | grep -cx -- -echo; echo still a {word}")
    desk.keys("Enter")
    screen = desk.until(f"\nstill a {word}")
    assert f"\n0\nstill a {word}" in screen, screen
    assert desk.tmux("display-message", "-p", "#{mouse_any_flag} #{alternate_on}").split() == ["0", "0"]


@pytest.mark.slow
async def test_quitting_with_a_call_in_flight_asks_once_and_is_quick(desk: Terminal, tmp_path: Path) -> None:
    desk.until("1 ok")
    desk.type("hang")
    desk.keys("Enter")
    desk.until("echo/slow", "1 run")
    desk.keys("C-q")
    desk.until("1 run is in flight")
    desk.type("y")
    # The tool would take a minute.
    desk.until("left with 0")
    await still_a_shell(desk)
    assert "fleet test: stopped" in (tmp_path / "pallas.log").read_text()


@pytest.mark.slow
async def test_what_breaks_the_workbench_leaves_a_shell_one_line_and_a_report(
    project: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    program = tmp_path / "breaking.py"
    program.write_text(BREAKING)
    with terminal(
        f"{sys.executable} {program} {project}; echo left with $?", environment=environment
    ) as desk:
        desk.until("1 ok", "Write to worker")
        desk.keys("C-l")
        screen = desk.until("left with 1")
        flat = screen.replace("\n", "")
        assert "the workbench stopped on an error (RuntimeError)" in flat
        assert "Traceback" not in screen
        assert "hunter2" not in screen
        (report,) = (tmp_path / "crashes").glob("crash-*.txt")
        assert report.name in flat
        text = report.read_text()
        assert report.stat().st_mode & 0o777 == 0o600
        assert "RuntimeError: the floor gave way" in text
        assert "hunter2" not in text
        assert "sk-this" not in text
        await still_a_shell(desk)
        assert "fleet test: stopped" in (tmp_path / "pallas.log").read_text()


@pytest.mark.slow
async def test_suspending_gives_the_shell_back_fg_the_workbench_and_leaving_the_title(
    desk: Terminal,
) -> None:
    desk.until("1 ok")
    await until(lambda: title(desk) == "test - pallas")
    desk.keys("F4")  # in a line of text it undoes
    desk.until("12345 panes")
    desk.keys("C-z")
    desk.until("Stopped")
    await still_a_shell(desk)
    desk.type("fg")
    desk.keys("Enter")
    desk.until("Agents", "Write to worker", "^q quit")
    desk.resize(90, 28)
    desk.until("2 Chat", "Write to worker")
    desk.keys("C-q")
    await until(lambda: desk.screen().rstrip().endswith("$"), timeout=30)
    await still_a_shell(desk, "good shell")
    await until(lambda: "pallas" not in title(desk))
