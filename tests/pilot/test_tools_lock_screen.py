"""What servers changed against the lock, and what is suspicious: shown, and accepted after a yes."""

from typing import Any

import pytest
from support.fake_fleet import FakeFleet
from support.notices import notices_of
from support.shell import screen_text, workbench
from support.tools import detail, fleet_with_tools, tool
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input

from pallas.model import Fault, FaultType, LockChange, ServerDetail, ServerLock, ToolFinding
from pallas_tui.app import Workbench
from pallas_tui.screens.agent_screen import AgentScreen
from pallas_tui.widgets.agents import AgentsPane
from pallas_tui.widgets.agents.agent_detail_pane import LockScreen
from pallas_tui.widgets.agents.agent_tree import AgentTree
from pallas_tui.widgets.agents.lock_lines import lock_words
from pallas_tui.widgets.agents.tool_list import ToolList

CHANGED = ServerLock(
    "changed",
    (
        LockChange("changed", "tool", "search", "", ("description",), "Search the pages", "Search the money"),
        LockChange("renamed", "tool", "get", "fetch"),
        LockChange("added", "instructions", after="Be mean."),
    ),
    (
        ToolFinding(
            "hide-from-user", "docs", "tool", "search", "tells the model what to do: do not tell the user"
        ),
    ),
    digest="sha256:1",
    mode="hold",
)
SAME = ServerLock("same", digest="sha256:2", mode="hold")


def locked_fleet(lock: ServerLock = CHANGED) -> FakeFleet:
    """The research agent with a server that is compared with the lock, and one that cannot be reached."""
    fleet = fleet_with_tools()
    docs = ServerDetail("docs", (tool("search", description="Search the money"), tool("get")), lock=lock)
    vault = ServerDetail("vault", problem="401: a credential is asked for")
    fleet.details["research"] = detail(ServerDetail("", (tool("research"),)), docs, vault)
    return fleet


def notices(app: Workbench) -> str:
    """What the workbench notified of."""
    return "\n".join(each.message for each in notices_of(app))


async def tools_of(app: Workbench, pilot: Pilot[Any]) -> ToolList:
    """The tools of the research agent, on its screen."""
    await until(lambda: isinstance(app.focused, Input | AgentTree), pilot)
    await pilot.press("f2")
    pane = app.main.query_one(AgentsPane)
    await until(lambda: pane.agents.show_agent("research"), pilot)
    await pilot.press("t")
    await until(lambda: isinstance(app.screen, AgentScreen), pilot)
    tools = app.screen.query_one(ToolList)
    await until(lambda: tools.select("docs", "search"), pilot)
    return tools


@pytest.mark.slow
async def test_what_changed_is_marked_shown_word_by_word_and_accepted() -> None:
    fleet = locked_fleet()
    app = workbench(fleet)
    async with app.run_test(size=(120, 40)) as pilot:
        tools = await tools_of(app, pilot)
        await until(lambda: "! tool search changed (description), against" in screen_text(app), pilot)
        assert "do not tell the user (hide-from-user)" in screen_text(app)
        tools.select("docs", "")
        for words in ("3 differences from tools.lock", "> tool fetch renamed to get", "+ instructions added"):
            await until(lambda words=words: words in screen_text(app), pilot)
        await until(lambda: "a accept" in screen_text(app).splitlines()[-1], pilot)
        await pilot.press("a")
        await until(lambda: isinstance(app.screen, LockScreen), pilot)
        for words in (
            "Accept what docs lists now?",
            "~ tool search changed (description)",
            "Search the [-pages-]{+money+}",
            "> tool fetch renamed to get",
            "{+Be mean.+}",
            "rule hide-from-user",
        ):
            await until(lambda words=words: words in screen_text(app), pilot)
        await pilot.press("n")
        await until(lambda: isinstance(app.screen, AgentScreen), pilot)
        assert fleet.accepted == []
        await pilot.press("a")
        await until(lambda: isinstance(app.screen, LockScreen), pilot)
        await pilot.press("y")
        await until(lambda: fleet.accepted == [("research", "docs", "sha256:1")], pilot)
        await until(lambda: "commit tools.lock" in notices(app), pilot)


@pytest.mark.slow
async def test_a_refusal_of_the_fleet_is_shown() -> None:
    fleet = locked_fleet()
    fleet.refusal = Fault(FaultType.CONFIG, "docs now lists something else")
    app = workbench(fleet)
    async with app.run_test(size=(120, 40)) as pilot:
        await tools_of(app, pilot)
        await pilot.press("a")
        await until(lambda: isinstance(app.screen, LockScreen), pilot)
        await pilot.press("y")
        await until(lambda: "docs now lists something else" in notices(app), pilot)
        assert fleet.accepted == []


async def test_who_may_only_look_is_told_so_before_anything_is_asked() -> None:
    fleet = locked_fleet()
    fleet.can_control = False
    app = workbench(fleet)
    async with app.run_test(size=(120, 40)) as pilot:
        await tools_of(app, pilot)
        await pilot.press("a")
        await until(lambda: "read-only: this token may only read" in notices(app), pilot)
        assert isinstance(app.screen, AgentScreen)


@pytest.mark.slow
async def test_there_is_nothing_to_accept_where_nothing_differs() -> None:
    app = workbench(locked_fleet(SAME))
    async with app.run_test(size=(120, 40)) as pilot:
        tools = await tools_of(app, pilot)
        for server in ("docs", "vault", ""):
            tools.select(server, "")
            await pilot.press("a")
            await pilot.pause()
            assert isinstance(app.screen, AgentScreen)
        assert "a accept" not in screen_text(app).splitlines()[-1]


async def test_the_question_fits_a_small_terminal() -> None:
    app = workbench(locked_fleet())
    async with app.run_test(size=(60, 20)) as pilot:
        await tools_of(app, pilot)
        await pilot.press("a")
        await until(lambda: "Accept what docs lists now?" in screen_text(app), pilot)
        await until(lambda: "{+money+}" in screen_text(app), pilot)


def test_words_of_a_server_beside_the_lock() -> None:
    assert lock_words(None) == lock_words(SAME) == ""
    assert lock_words(CHANGED) == "3 differences from tools.lock, held, 1 finding"
    assert lock_words(ServerLock("not locked", mode="warn")) == "not in tools.lock"
    assert lock_words(ServerLock("not locked", mode="off")) == ""
