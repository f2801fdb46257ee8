"""The screen of one agent: what it shows, what it waits for, and what strangers' words cannot do on it."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from support.fake_fleet import FakeFleet
from support.shell import screen_text, workbench
from support.tools import BILL, detail, fleet_with_tools, tool
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input

from pallas.model import AgentDetail, Fault, FaultType, ServerDetail
from pallas_tui.app import Workbench
from pallas_tui.clipboard import OSC52_LIMIT, copy
from pallas_tui.screens.agent_screen import AgentScreen
from pallas_tui.screens.help_screen import HelpScreen
from pallas_tui.screens.tool_screen import ToolScreen
from pallas_tui.widgets.agents import AgentsPane
from pallas_tui.widgets.agents.agent_detail_pane import DetailPane
from pallas_tui.widgets.agents.agent_tree import AgentTree
from pallas_tui.widgets.agents.tool_list import ToolList

SIZES = [(60, 20), (80, 24), (120, 40)]
SMALL = (80, 24)


async def opened(app: Workbench, pilot: Pilot[Any], key: str = "d") -> None:
    """The screen of the research agent."""
    await until(lambda: isinstance(app.focused, Input | AgentTree), pilot)
    await pilot.press("f2")
    pane = app.main.query_one(AgentsPane)
    await until(lambda: pane.agents.show_agent("research"), pilot)
    await pilot.press(key)
    await until(lambda: isinstance(app.screen, AgentScreen), pilot)


@pytest.mark.slow
async def test_every_section_can_be_reached_and_escape_goes_back_to_the_fleet() -> None:
    app = workbench(fleet_with_tools())
    async with app.run_test(size=SIZES[0]) as pilot:
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await opened(app, pilot)
            await until(lambda: "p50 0.9 s, p95 3.1 s" in screen_text(app), pilot)
            for key, words in (
                ("2", "Search the documents"),
                ("3", "You look things up."),
                ("4", '"name": "x/research"'),
                ("1", "restarts    1"),
            ):
                await pilot.press(key)
                if key == "2":
                    await pilot.press("down", "down", "down")
                await until(lambda words=words: words in screen_text(app), pilot)
            for words in ("What research is for", "Search the documents", "You look things up.", '"version"'):
                await until(lambda words=words: words in screen_text(app), pilot)
                await pilot.press("tab")
            await pilot.press("f1")
            await until(lambda: isinstance(app.screen, HelpScreen), pilot)
            await pilot.press("escape")
            await until(lambda: isinstance(app.screen, AgentScreen), pilot)
            await pilot.press("escape")
            await until(lambda: app.screen is app.main, pilot)
            assert app.is_running


@pytest.mark.slow
async def test_what_instruction_tools_and_history_take_of_the_window_is_shown() -> None:
    fleet = fleet_with_tools()
    fleet.change("research", context=BILL)
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        for size in SIZES[1:]:
            await pilot.resize_terminal(*size)
            await opened(app, pilot)
            await until(lambda: "3,412 of 131,072 tokens (2.6 %), last request" in screen_text(app), pilot)
            rows = [line.split() for line in screen_text(app).splitlines() if "2,600" in line]
            assert rows and "tools of docs 2,600 ███████████████" in " ".join(rows[0])
            fleet.change("research", context=replace(BILL, is_estimated=True, total=3_413))
            await until(lambda: "3,413 of 131,072 tokens (2.6 %), estimated" in screen_text(app), pilot)
            fleet.change("research", context=BILL)
            await pilot.press("escape")
            await until(lambda: app.screen is app.main, pilot)


@pytest.mark.slow
async def test_the_place_it_is_configured_at_can_be_copied_and_the_titles_can_be_clicked() -> None:
    app = workbench(fleet_with_tools())
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(app, pilot)
        await until(lambda: "agents/research.py:8" in screen_text(app), pilot)
        await pilot.press("Y")
        await until(lambda: app.clipboard == "agents.yaml:12", pilot)
        await pilot.press("y")
        await until(lambda: "endpoint    http://127.0.0.1:24202/mcp" in app.clipboard, pilot)
        large = "x" * (OSC52_LIMIT + 1)
        await copy(app, large, {"PATH": ""})
        assert app.clipboard == large, "text that the terminal is not asked to take is there to paste"
        await until(lambda: app.screen.query(DetailPane) and "2 Tools" in screen_text(app), pilot)
        pane = app.screen.query_one(DetailPane)
        at = screen_text(app).splitlines()[0].index("2 Tools")
        await pilot.click("#agent-detail-title", offset=(at, 0))
        await until(lambda: pane._section == "tools", pilot)


@pytest.mark.slow
async def test_a_tool_shows_the_rule_that_decides_about_its_calls() -> None:
    fleet, rule = fleet_with_tools(), "ask of the project: docs__search (agents.yaml:7)"
    fleet.details["research"] = detail(ServerDetail("docs", (tool("search", rule=rule),)))
    app = workbench(fleet)
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(app, pilot, "t")
        tools = app.screen.query_one(ToolList)
        await until(lambda: tools.select("docs", "search"), pilot)
        await until(lambda: "ask of the project: docs__search" in screen_text(app), pilot)


@pytest.mark.slow
async def test_tools_are_marked_when_they_changed_filtered_and_opened() -> None:
    app = workbench(fleet_with_tools())
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(app, pilot, "t")
        tools = app.screen.query_one(ToolList)
        await until(lambda: tools.select("docs", "search"), pilot)
        await pilot.press("up")
        await until(lambda: "2 tools; 1 new, 1 gone, 1 changed since 14:06:40" in screen_text(app), pilot)
        lines = [line[:40].split()[:2] for line in screen_text(app).splitlines()]
        assert [mark for mark in (["+", "search"], ["~", "fetch"], ["-", "old"]) if mark in lines] == [
            ["+", "search"],
            ["~", "fetch"],
            ["-", "old"],
        ]
        # A tool that is gone cannot be called.
        await until(lambda: "⏎ call" not in screen_text(app).splitlines()[-1], pilot)  # on its server
        assert tools.select("docs", "old")
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, AgentScreen)
        # Escape clears the filter first.
        await pilot.press("slash", *"fet", "enter")
        await until(lambda: tools.line_count() == 1, pilot)
        await pilot.press("escape")
        await until(lambda: tools.line_count() == 7, pilot)
        assert isinstance(app.screen, AgentScreen)
        # Enter opens the form of a tool, and escape comes back.
        assert tools.select("docs", "search")
        await until(lambda: "⏎ call" in screen_text(app).splitlines()[-1], pilot)
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, ToolScreen), pilot)
        await pilot.press("escape", "escape")
        await until(lambda: isinstance(app.screen, AgentScreen), pilot)


class Slow(FakeFleet):
    """A fleet that answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.go = asyncio.Event()

    async def describe(self, agent: str) -> AgentDetail:
        self.asked += 1
        await self.go.wait()
        return detail()


@pytest.mark.slow
async def test_the_screen_is_there_before_the_answer_and_leaving_it_ends_the_question() -> None:
    fleet = Slow()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await opened(app, pilot)
        await until(lambda: fleet.asked == 1, pilot)
        screen = app.screen
        await pilot.press("escape")
        await until(lambda: app.screen is app.main, pilot)
        await until(lambda: not [w for w in app.workers if w.group == "describe" and w.is_running], pilot)
        assert not screen.is_running
        # Nothing waits for the answer.
        await opened(app, pilot)
        await until(lambda: "looking up research…" in screen_text(app), pilot)
        await pilot.press("2", "1", "3")
        await pilot.press("1")
        await until(lambda: "What research is for" in screen_text(app), pilot)
        fleet.go.set()
        await until(lambda: "looking up" not in screen_text(app), pilot)
        await pilot.press("3")
        await until(lambda: "You look things up." in screen_text(app), pilot)


async def test_what_went_wrong_is_told_with_the_key_that_tries_again() -> None:
    fleet = fleet_with_tools()
    known = fleet.details.pop("research")
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await opened(app, pilot)
        await until(lambda: "Agent not found: research  u tries again" in screen_text(app), pilot)
        fleet.details["research"] = known
        await pilot.press("u")
        await until(lambda: "tries again" not in screen_text(app), pilot)
        await pilot.press("3")
        await until(lambda: "You look things up." in screen_text(app), pilot)


class Hurt(FakeFleet):
    """A fleet elsewhere that breaks in its own way."""

    async def describe(self, agent: str) -> AgentDetail:
        raise ConnectionError("[bold]gone[/] \x1b[2J")


async def test_any_other_failure_is_told_in_safe_words() -> None:
    app = workbench(Hurt())
    async with app.run_test(size=SMALL) as pilot:
        await opened(app, pilot)
        await until(lambda: "ConnectionError: [bold]gone[/] ␛[2J" in screen_text(app), pilot)
        assert app.is_running


@pytest.mark.slow
async def test_stop_asks_on_the_screen_of_an_agent_which_stays_usable_when_the_agent_goes() -> None:
    fleet = fleet_with_tools()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await opened(app, pilot)
        await pilot.press("x")
        await until(lambda: "Stop research?" in screen_text(app), pilot)
        await pilot.press("y")
        await until(lambda: fleet.controlled == [("research", "stop")], pilot)
        assert isinstance(app.screen, AgentScreen)
        fleet.current = type(fleet.current)(
            name="desk", state=fleet.current.state, since=0, registry_url="", agents=()
        )
        await until(lambda: "research is no longer in the fleet" in screen_text(app), pilot)
        await pilot.press("r", "x", "e", "y", "2", "escape")
        await until(lambda: app.screen is app.main, pilot)


HOSTILE = "[@click=app.quit]x[/] [/nothing] [bold"


@pytest.mark.slow
async def test_hostile_and_huge_descriptions_are_only_words() -> None:
    fleet = FakeFleet()
    tools = tuple(tool(f"t{number}", description=HOSTILE * 50) for number in range(2_000))
    fleet.details["research"] = AgentDetail(
        "research",
        HOSTILE,
        HOSTILE,
        HOSTILE + "\n" + "x" * 600_000 + "\nthe end",
        "{ not json " + HOSTILE,
        (ServerDetail(HOSTILE, tools), ServerDetail("", (), problem=HOSTILE)),
    )
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await opened(app, pilot)
        for key in ("1", "2", "3", "4"):
            await pilot.press(key, *(["end"] if key == "1" else []))
            await until(lambda: "[@click=app.quit]x[/] [/nothing]" in screen_text(app), pilot)
        await pilot.press("3", "end")
        await until(lambda: "cut after 400,000 characters" in screen_text(app), pilot)
        assert app.is_running


async def test_a_fault_of_the_fleet_is_shown_without_markup() -> None:
    class Refuses(FakeFleet):
        async def describe(self, agent: str) -> AgentDetail:
            raise Fault(FaultType.TIMEOUT, "no answer [red]x[/]")

    app = workbench(Refuses())
    async with app.run_test(size=SMALL) as pilot:
        await opened(app, pilot, "t")
        await until(lambda: "no answer [red]x[/]" in screen_text(app), pilot)
