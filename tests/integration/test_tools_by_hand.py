"""The workbench over a fleet that runs: an agent is looked at, its tools called, itself reloaded by keys."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.live import ECHO, agent_module, write_project
from support.shell import FakeChat, FakeCredentials, FakeLogs, screen_text
from support.waiting import until
from textual.pilot import Pilot

from pallas.fleet.threaded_fleet import ThreadedFleet
from pallas.model import AgentState
from pallas_tui.app import Workbench
from pallas_tui.screens.agent_screen import AgentScreen
from pallas_tui.screens.main_screen import LatePane
from pallas_tui.screens.tool_screen import ToolScreen
from pallas_tui.settings import Settings
from pallas_tui.targets import AgentTarget, ToolTarget
from pallas_tui.widgets.agents import AgentsPane
from pallas_tui.widgets.form import ToolPane

PATIENCE = 60


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_project(tmp_path / "p", {"one": agent_module("one", ("echo",)), "two": None}, config=ECHO)


@pytest.fixture
def app(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workbench]:
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    fleet = ThreadedFleet(project)
    yield Workbench(
        lambda: fleet,
        name="p",
        root=project,
        late=(
            LatePane("chat", "Chat", FakeChat),
            LatePane("logs", "Logs", FakeLogs),
            LatePane("credentials", "Credentials", FakeCredentials),
        ),
        settings=Settings(theme="textual-dark", ascii=False),
    )
    fleet.stop(10)


def agent_state(app: Workbench, name: str) -> AgentState | None:
    agent = app.fleet.snapshot().agent(name) if app.fleet is not None else None
    return agent.state if agent is not None else None


async def ready(app: Workbench, pilot: Pilot[Any]) -> AgentsPane:
    pane = app.main.query_one(AgentsPane)
    await until(lambda: agent_state(app, "one") is AgentState.READY, pilot, timeout=PATIENCE)
    await until(lambda: agent_state(app, "two") is AgentState.READY, pilot, timeout=PATIENCE)
    await until(lambda: pane.agents.agent("one"), pilot)
    return pane


@pytest.mark.slow
async def test_tools_of_an_agent_and_of_its_downstream_are_called_by_hand(app: Workbench) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(app, pilot)
        app.main.reveal(ToolTarget("one", "echo", "echo"))
        await until(lambda: isinstance(app.screen, ToolScreen), pilot, timeout=PATIENCE)
        await until(lambda: app.screen.query_one(ToolPane).writing, pilot)
        await pilot.press(*"hello", "enter", "c")
        await until(lambda: "echo:hello" in screen_text(app), pilot, timeout=PATIENCE)
        assert "ok after" in screen_text(app)
        await pilot.press("escape", "escape")
        await until(lambda: isinstance(app.screen, AgentScreen), pilot)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main, pilot)

        app.main.reveal(ToolTarget("one", "echo", "boom"))
        await until(lambda: isinstance(app.screen, ToolScreen), pilot, timeout=PATIENCE)
        await pilot.press(*"x", "enter", "c")
        await until(lambda: "failed after" in screen_text(app), pilot, timeout=PATIENCE)


@pytest.mark.slow
async def test_an_agent_is_looked_at_stopped_started_and_reloaded_by_keys(
    app: Workbench, project: Path
) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await ready(app, pilot)
        app.main.reveal(AgentTarget("one"))
        await until(lambda: pane.agents.has_focus, pilot)
        await pilot.press("d")
        await until(lambda: "agents.yaml:" in screen_text(app), pilot, timeout=PATIENCE)
        await pilot.press("3")
        await until(lambda: "You are one." in screen_text(app), pilot, timeout=PATIENCE)
        await pilot.press("4")
        await until(lambda: '"name"' in screen_text(app), pilot, timeout=PATIENCE)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main and pane.agents.has_focus, pilot)

        await pilot.press("x", "y")
        await until(lambda: agent_state(app, "one") is AgentState.STOPPED, pilot, timeout=PATIENCE)
        await until(lambda: not pane.under_way.doing("one") and pane.agents.has_focus, pilot)
        assert agent_state(app, "two") is AgentState.READY
        await pilot.press("s")
        await until(lambda: agent_state(app, "one") is AgentState.READY, pilot, timeout=PATIENCE)
        await until(lambda: not pane.under_way.doing("one"), pilot)

        (project / "agents" / "one.py").write_text(
            agent_module("one", ("echo",)).replace("You are one.", "You are another.")
        )
        await pilot.press("r")
        await until(lambda: not pane.under_way.doing("one"), pilot, timeout=PATIENCE)
        await pilot.press("d", "3")
        await until(lambda: "You are another." in screen_text(app), pilot, timeout=PATIENCE)
