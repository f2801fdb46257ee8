"""How the tree of agents, the screen of one and the form of a tool look."""

from collections.abc import Awaitable, Callable
from typing import Any

from support.fake_fleet import FakeFleet
from support.looks import SIZES, each_look
from support.pane_app import still
from support.shell import screen_text, workbench
from support.tools import SEARCH, detail, fleet_with_tools, tool
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input

from pallas.model import ServerDetail
from pallas_tui.app import Workbench
from pallas_tui.settings import Settings
from pallas_tui.targets import AgentTarget, Target, ToolTarget

Compare = Callable[..., bool]
Before = Callable[[Pilot[Any]], Awaitable[None]]


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


@each_look
def test_the_tree(snap_compare: Compare, size: tuple[int, int], theme: str) -> None:
    fleet = fleet_with_tools()
    fleet.change("research", runs_active=2, runs_queued=3)
    before = after(AgentTarget("research"), "f2", words="12 345 in")
    assert snap_compare(app_over(fleet, theme), terminal_size=size, run_before=before)


@each_look
def test_the_tools_of_an_agent(snap_compare: Compare, size: tuple[int, int], theme: str) -> None:
    before = after(AgentTarget("research"), "f2", "t", *["down"] * 4, words="Fetch one")
    assert snap_compare(app_over(fleet_with_tools(), theme), terminal_size=size, run_before=before)


FORM = (*"M", "enter", "down", "down", "down", "n", "down", "a", *"may", "enter")


@each_look
def test_the_form_of_a_tool(snap_compare: Compare, size: tuple[int, int], theme: str) -> None:
    before = after(ToolTarget("research", "docs", "search"), *FORM, words="[0]")
    assert snap_compare(app_over(fleet_with_tools(), theme), terminal_size=size, run_before=before)


def test_the_form_in_light_while_a_field_is_written(snap_compare: Compare) -> None:
    before = after(
        ToolTarget("research", "docs", "search"), *"May", "tab", "x", "enter", words="not a whole number"
    )
    app = app_over(fleet_with_tools(), "textual-light")
    assert snap_compare(app, terminal_size=SIZES["80x24"], run_before=before)


def test_the_form_in_ascii(snap_compare: Compare) -> None:
    fleet = FakeFleet()
    fleet.details["research"] = detail(ServerDetail("docs", (tool("search", SEARCH),)))
    before = after(ToolTarget("research", "docs", "search"), *FORM, words="[0]")
    assert snap_compare(app_over(fleet, plain=True), terminal_size=SIZES["80x24"], run_before=before)


def test_what_a_tool_gave_back(snap_compare: Compare) -> None:
    before = after(ToolTarget("research", "docs", "search"), *"May", "enter", "c", words="ok after 0.4 s")
    assert snap_compare(app_over(fleet_with_tools()), terminal_size=SIZES["80x24"], run_before=before)
