"""The workbench reads resources of a downstream and subscribes to them, beside its fleet and attached."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support import control
from support.live import ERAS, agent_module, write_project
from support.noted_server import URI, NotedServer
from support.shell import FakeChat, FakeCredentials, FakeLogs, screen_text
from support.waiting import until
from textual.pilot import Pilot

from pallas.fleet.threaded_fleet import ThreadedFleet
from pallas.model import AgentState, RunningFleet
from pallas_tui.app import Workbench
from pallas_tui.remote.remote_fleet import RemoteFleet
from pallas_tui.remote.token_source import TokenSource
from pallas_tui.screens.main_screen import LatePane
from pallas_tui.settings import Settings
from pallas_tui.targets import ToolTarget
from pallas_tui.widgets.agents import AgentsPane
from pallas_tui.widgets.agents.tool_list import ToolList

PATIENCE = 60


@asynccontextmanager
async def workbench(project: Path, place: str) -> AsyncIterator[tuple[Workbench, Pilot[Any]]]:
    """A workbench with the fleet of a project in its process, or attached to it."""
    async with AsyncExitStack() as stack:
        fleet: RunningFleet = ThreadedFleet(project)
        stack.callback(fleet.stop, 10)
        if place == "attached":
            fleet.start()
            served = await stack.enter_async_context(control.serving(fleet))  # type: ignore[arg-type]
            fleet = RemoteFleet(served.url, TokenSource(served.url, control.FULL))
            stack.callback(fleet.stop, 10)
        late = (
            LatePane("chat", "Chat", FakeChat),
            LatePane("logs", "Logs", FakeLogs),
            LatePane("credentials", "Credentials", FakeCredentials),
        )
        settings = Settings(theme="textual-dark", ascii=False)
        app = Workbench(lambda: fleet, name="p", root=project, late=late, settings=settings)
        pilot = await stack.enter_async_context(app.run_test(size=(140, 40)))
        await until(lambda: _is_ready(app), pilot, timeout=PATIENCE)
        await until(lambda: app.main.query_one(AgentsPane).agents.agent("one"), pilot)
        yield app, pilot


def _is_ready(app: Workbench) -> bool:
    agent = app.fleet.snapshot().agent("one") if app.fleet is not None else None
    return agent is not None and agent.state is AgentState.READY


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("place", ["here", "attached"])
async def test_a_resource_is_read_followed_and_no_longer_followed_when_its_screen_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, era: str, place: str
) -> None:
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    noted = NotedServer()
    async with noted.served() as url:
        entry = {"url": url, "protocol_mode": "legacy" if era == "legacy" else "auto"}
        project = write_project(
            tmp_path / "p",
            {"one": agent_module("one", ("noted",))},
            config={"mcp": {"servers": {"noted": entry}}},
        )
        async with workbench(project, place) as (app, pilot):

            async def shows(*words: str) -> None:
                await until(lambda: all(each in screen_text(app) for each in words), pilot, timeout=PATIENCE)

            app.main.reveal(ToolTarget("one", "noted", ""))
            await until(lambda: app.screen.query(ToolList), pilot, timeout=PATIENCE)
            tools = app.screen.query_one(ToolList)
            await until(lambda: tools.find(("noted", "", URI)) is not None, pilot, timeout=PATIENCE)
            tools.action_move_to(tools.find(("noted", "", URI)))
            await shows("0 tools, 1 resource", "@ today", "What is to be done.", "w subscribes to it")
            await pilot.press("enter")
            await shows("first")

            await pilot.press("w")
            await shows("● today", "subscribed")
            await until(lambda: noted.following == 1, pilot)
            await noted.write("second thoughts")
            await shows("second thoughts", "1 update")
            await pilot.press("w")
            await shows("@ today")
            await until(lambda: era == "legacy" or noted.following == 0, pilot)

            await pilot.press("w")
            await until(lambda: noted.following == (2 if era == "legacy" else 1), pilot)
            await pilot.press("escape")
            await until(lambda: era == "legacy" or noted.following == 0, pilot)
