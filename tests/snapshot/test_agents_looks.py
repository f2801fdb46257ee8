"""How the tree of agents, the screen of one and the form of a tool look."""

from typing import Any

import pytest
from support.fake_fleet import FakeFleet
from support.looks import EACH_LOOK, Before, Pictures
from support.pane_app import still
from support.shell import screen_text, workbench
from support.tools import BILL, SEARCH, detail, fleet_with_tools, tool
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input

from pallas.model import ServerDetail
from pallas_tui.app import Workbench
from pallas_tui.settings import Settings
from pallas_tui.targets import AgentTarget, Target, ToolTarget


def app_over(fleet: FakeFleet, theme: str = "textual-dark", plain: bool = False) -> Workbench:
    app = workbench(fleet, settings=Settings(theme, ascii=plain))
    app.animation_level = "none"
    return app


def after(target: Target, *keys: str, words: str) -> Before:
    """Show a target, press keys, wait for words."""

    async def before(pilot: Pilot[Any]) -> None:
        app: Any = pilot.app
        await until(lambda: isinstance(app.focused, Input), pilot)
        await until(lambda: app.main.query_one("#agents").agents.agents, pilot)
        app.main.reveal(target)
        tools = isinstance(target, ToolTarget)
        await until(lambda: not tools or "query*" in screen_text(app), pilot)
        for _ in range(3):
            await pilot.pause()
        await pilot.press(*keys)
        await until(lambda: words in screen_text(app), pilot)
        still(app)
        for _ in range(3):
            await pilot.pause()

    return before


@pytest.mark.slow
async def test_the_tree(pictures: Pictures) -> None:
    fleet = fleet_with_tools()
    fleet.change("research", runs_active=2, runs_queued=3)
    before = after(AgentTarget("research"), "f2", words="12,345 in")
    await pictures(app_over(fleet), before, EACH_LOOK)


@pytest.mark.slow
async def test_the_tools_of_an_agent(pictures: Pictures) -> None:
    before = after(AgentTarget("research"), "f2", "t", *["down"] * 4, words="Fetch one")
    await pictures(app_over(fleet_with_tools()), before, EACH_LOOK)


@pytest.mark.slow
async def test_what_an_agent_sends(pictures: Pictures) -> None:
    fleet = fleet_with_tools()
    fleet.change("research", context=BILL)
    before = after(AgentTarget("research"), "f2", "d", words="tools of docs")
    await pictures(app_over(fleet), before, EACH_LOOK)


FORM = (*"M", "enter", "down", "down", "down", "n", "down", "a", *"may", "enter")


@pytest.mark.slow
async def test_the_form_of_a_tool(pictures: Pictures) -> None:
    before = after(ToolTarget("research", "docs", "search"), *FORM, words="[0]")
    await pictures(app_over(fleet_with_tools()), before, EACH_LOOK)


@pytest.mark.slow
async def test_the_form_in_light_while_a_field_is_written(pictures: Pictures) -> None:
    before = after(
        ToolTarget("research", "docs", "search"), *"May", "tab", "x", "enter", words="not a whole number"
    )
    app = app_over(fleet_with_tools(), "textual-light")
    await pictures(app, before)


@pytest.mark.slow
async def test_the_form_in_ascii(pictures: Pictures) -> None:
    fleet = FakeFleet()
    fleet.details["research"] = detail(ServerDetail("docs", (tool("search", SEARCH),)))
    before = after(ToolTarget("research", "docs", "search"), *FORM, words="[0]")
    await pictures(app_over(fleet, plain=True), before)


@pytest.mark.slow
async def test_what_a_tool_gave_back(pictures: Pictures) -> None:
    before = after(ToolTarget("research", "docs", "search"), *"May", "enter", "c", words="ok after 0.4 s")
    await pictures(app_over(fleet_with_tools()), before)
