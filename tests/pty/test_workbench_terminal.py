"""The workbench as a person meets it, in a real terminal (tmux): the sample project, and a small one."""

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support.live import agent_module
from support.offline import offline_project
from support.ports import free_ports, is_free
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
def small(tmp_path: Path) -> Path:
    """One agent with an MCP server in a process of its own, and a program that the fleet starts."""
    (port,) = free_ports(1)
    program = {
        "command": f"python -m http.server {port} --bind 127.0.0.1",
        "url": f"http://127.0.0.1:{port}/",
    }
    agents = {"worker": agent_module("worker", ("echo",))}
    return offline_project(
        tmp_path / "small", agents, "rules: [{say: fine}]", top={"servers": {"files": program}}
    )


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"PALLAS_LOG_FILE": str(tmp_path / "pallas.log"), "XDG_CONFIG_HOME": str(tmp_path / "config")}


def command(project: Path) -> str:
    return f"{sys.executable} -m pallas.server dev {project}; echo left with $?"


@pytest.fixture
def desk(sample: Path, environment: dict[str, str], request: pytest.FixtureRequest) -> Iterator[Terminal]:
    columns, rows = getattr(request, "param", (120, 40))
    with terminal(command(sample), columns=columns, rows=rows, environment=environment) as shown:
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


@pytest.mark.slow
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
    screen = desk.until("TRADE15", "× Heron", "concierge answered in")
    assert "research" in screen
    assert "Traceback" not in screen
    # Its own calls and those of the agents it asked show in the feed, with their tools.
    desk.keys("F4")
    desk.keys("F8")  # in its pane the first of them have scrolled away
    desk.until("docs/search", "shop/orders_of", "● ok")
    project = load_project(sample)
    children = [
        p for p in psutil.process_iter(["cmdline"]) if str(sample) in " ".join(p.info["cmdline"] or ())
    ]
    assert children
    desk.keys("C-q")
    screen = desk.until("left with 0")
    assert "Agents" not in screen
    await until(lambda: not any(child.is_running() for child in children))
    ports = [project.registry_port, *(agent.port for agent in project.agents.values())]
    await until(lambda: all(is_free(port) for port in ports))
    desk.type("echo back at the prompt")
    desk.keys("Enter")
    desk.until("back at the prompt")
    lines = (tmp_path / "pallas.log").read_text().splitlines()
    assert all({"time", "level", "logger", "message"} <= json.loads(line).keys() for line in lines)
    assert not [line for line in lines if '"ERROR"' in line]


@pytest.mark.slow
@WITHOUT_TOOLS
@pytest.mark.parametrize("desk", [(80, 24)], indirect=True)
def test_a_small_terminal_shows_one_pane_at_a_time_and_ctrl_c_twice_leaves(desk: Terminal) -> None:
    desk.until("Write to concierge")
    desk.type("hello")
    desk.keys("Enter")
    desk.until("Larkmoor")
    desk.keys("F2")
    desk.until("1 Agents", "research", "vision", "docs", "stdio")
    desk.keys("F4")
    desk.until("hello", "1. scripted")
    desk.resize(120, 40)
    desk.until("Agents", "Chat", "Feed", "Write to concierge", "6 ok")  # nothing was lost
    desk.keys("F3")
    desk.keys("C-c")
    desk.keys("C-c")
    desk.until("left with 0")


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("number", ["TERM", "HUP"])
async def test_a_signal_restores_the_terminal(small: Path, environment: dict[str, str], number: str) -> None:
    with terminal(command(small), environment=environment) as desk:
        desk.until("1 ok")
        (workbench,) = [each for each in of_project(small) if "pallas.server" in each.info["cmdline"]]
        workbench.send_signal(signal.Signals[f"SIG{number}"])
        desk.until("left with")
        desk.type("echo still a shell")
        desk.keys("Enter")
        desk.until("still a shell")
        await until(lambda: not workbench.is_running())


@pytest.mark.slow
@pytest.mark.parametrize("leaving", [False, True])
async def test_a_terminal_that_goes_away_leaves_no_process_behind(
    small: Path, environment: dict[str, str], tmp_path: Path, leaving: bool
) -> None:
    with terminal(command(small), environment=environment) as desk:
        desk.until("1 ok")
        assert len(of_project(small)) >= 3
        if leaving:
            desk.keys("C-q")
            await until(lambda: "stopping" in (tmp_path / "pallas.log").read_text())
    await until(lambda: of_project(small) == [], timeout=30)
    assert "fleet test: stopped" in (tmp_path / "pallas.log").read_text()


@pytest.mark.slow
async def test_a_workbench_that_is_killed_takes_its_programs_along(
    small: Path, environment: dict[str, str]
) -> None:
    with terminal(command(small), environment=environment) as desk:
        desk.until("1 ok")
        assert len(of_project(small)) >= 3
        (workbench,) = [each for each in of_project(small) if "pallas.server" in each.info["cmdline"]]
        workbench.kill()
        await until(lambda: of_project(small) == [], timeout=30)
