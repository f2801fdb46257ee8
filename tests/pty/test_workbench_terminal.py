"""The workbench as a person meets it: the sample project in a real terminal (tmux)."""

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support.ports import is_free
from support.projects import copy_sample
from support.terminal import Terminal, needs_tmux, terminal
from support.waiting import until

from pallas.config import load_project

pytestmark = [needs_tmux, pytest.mark.pty]

QUESTION = "Which customers were hit by the May invoice bug, and what did they buy?"


WITHOUT_TOOLS = pytest.mark.parametrize("sample", [{"tools": False}], indirect=True, ids=["no tools"])
"""For tests in which no model uses any: the sample's servers take seconds to start."""


@pytest.fixture
def sample(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return copy_sample(tmp_path, hurry=True, **getattr(request, "param", {}))


@pytest.fixture
def desk(sample: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    columns, rows = getattr(request, "param", (120, 40))
    log = tmp_path / "pallas.log"
    with terminal(
        f"{sys.executable} -m pallas.server dev {sample}; echo left with $?",
        columns=columns,
        rows=rows,
        environment={"PALLAS_LOG_FILE": str(log), "XDG_CONFIG_HOME": str(tmp_path / "config")},
    ) as shown:
        yield shown


def of_project(root: Path) -> list[psutil.Process]:
    """Processes that were started for the project; the shell in the terminal is not among them."""
    running = psutil.process_iter(["cmdline", "cwd"])
    return [
        each
        for each in running
        if (each.info["cwd"] or "").startswith(str(root))
        and "tmux" not in " ".join(each.info["cmdline"] or ())
    ]


async def test_asking_the_coordinator_delegates_answers_and_leaves_a_clean_terminal(
    desk: Terminal, sample: Path, tmp_path: Path
) -> None:
    # PI-25, PR-33
    desk.until("Agents", "concierge")
    desk.until("6 ok", "Write to concierge")
    desk.keys("M-s")  # an escape and a letter, which is no text
    desk.until("Ask side by side")
    desk.keys("Escape")
    desk.until("Ask side by side", gone=True)
    desk.type(QUESTION)
    desk.until(QUESTION[:40])
    desk.keys("Enter")
    # Its own calls and those of the agents it asked show in the feed, with their tools.
    desk.until("docs/search", "shop/orders_of", "● ok")
    screen = desk.until("TRADE15", "Heron floor", "concierge answered in")
    assert "research" in screen
    assert "Traceback" not in screen
    project = load_project(sample)
    children = [
        p for p in psutil.process_iter(["cmdline"]) if str(sample) in " ".join(p.info["cmdline"] or ())
    ]
    assert children
    desk.keys("C-q")
    screen = desk.until("left with 0")
    assert "Agents" not in screen
    await until(lambda: not any(child.is_running() for child in children), timeout=20)
    ports = [project.registry_port, *(agent.port for agent in project.agents.values())]
    await until(lambda: all(is_free(port) for port in ports))
    desk.type("echo back at the prompt")
    desk.keys("Enter")
    desk.until("back at the prompt")
    lines = (tmp_path / "pallas.log").read_text().splitlines()
    assert all({"time", "level", "logger", "message"} <= json.loads(line).keys() for line in lines)
    assert not [line for line in lines if '"ERROR"' in line]


@WITHOUT_TOOLS
@pytest.mark.parametrize("desk", [(80, 24)], indirect=True)
def test_a_small_terminal_shows_one_pane_at_a_time_and_loses_nothing(desk: Terminal) -> None:
    desk.until("Write to concierge")
    desk.type("hello")
    desk.keys("Enter")
    desk.until("Larkmoor")
    desk.keys("F2")
    desk.until("1 Agents", "research", "vision", "docs", "stdio")
    desk.keys("F4")
    desk.until("hello", "step 1 (llm)")
    desk.resize(120, 40)
    desk.until("Agents", "Chat", "Feed", "Write to concierge")
    desk.keys("C-q")
    desk.until("left with 0")


def test_a_broken_project_is_explained_and_leaving_works(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text("nam: x\nagents:\n  a: {module: nowhere, port: 99999}\n")
    environment = {"PALLAS_LOG_FILE": str(tmp_path / "pallas.log")}
    with terminal(
        f"{sys.executable} -m pallas.server dev {tmp_path}; echo left with $?", environment=environment
    ) as desk:
        screen = desk.until("agents.yaml:1")
        assert "99999" in screen
        assert "Traceback" not in screen
        desk.keys("C-q")
        desk.until("left with 0")


@WITHOUT_TOOLS
def test_ctrl_c_twice_leaves(desk: Terminal) -> None:
    desk.until("6 ok")
    desk.keys("C-c")
    desk.keys("C-c")
    desk.until("left with 0")


@WITHOUT_TOOLS
@pytest.mark.parametrize("number", ["TERM", "HUP"])
async def test_a_signal_restores_the_terminal(desk: Terminal, sample: Path, number: str) -> None:
    desk.until("6 ok")
    (workbench,) = [each for each in of_project(sample) if "pallas.server" in each.info["cmdline"]]
    workbench.send_signal(signal.Signals[f"SIG{number}"])
    desk.until("left with")
    desk.type("echo still a shell")
    desk.keys("Enter")
    desk.until("still a shell")
    await until(lambda: not workbench.is_running(), timeout=20)


@pytest.mark.parametrize("leaving", [False, True])
async def test_a_terminal_that_goes_away_leaves_no_process_behind(
    sample: Path, tmp_path: Path, leaving: bool
) -> None:
    environment = {"PALLAS_LOG_FILE": str(tmp_path / "pallas.log")}
    command = f"{sys.executable} -m pallas.server dev {sample}"
    with terminal(command, environment=environment) as desk:
        desk.until("6 ok")
        assert len(of_project(sample)) >= 2
        if leaving:
            desk.keys("C-q")
            await until(lambda: "stopping" in (tmp_path / "pallas.log").read_text())
    await until(lambda: of_project(sample) == [], timeout=30)
    assert "fleet larkmoor: stopped" in (tmp_path / "pallas.log").read_text()


async def test_a_workbench_that_is_killed_takes_its_programs_along(sample: Path, tmp_path: Path) -> None:
    environment = {"PALLAS_LOG_FILE": str(tmp_path / "pallas.log")}
    with terminal(f"{sys.executable} -m pallas.server dev {sample}", environment=environment) as desk:
        desk.until("6 ok")
        (workbench,) = [each for each in of_project(sample) if "pallas.server" in each.info["cmdline"]]
        workbench.kill()
        await until(lambda: of_project(sample) == [], timeout=30)
