"""The tree of agents: folding, what stands below an agent, and what can be done with one."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from support.fake_fleet import NOON, FakeFleet, agent, desk
from support.notices import notices_of
from support.shell import FakeChat, screen_text, workbench
from support.tools import fleet_with_tools
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input, Static

from pallas.model import AgentChanged, AgentState, Fault, FaultType, Notice, ServerSnapshot, Verb
from pallas_tui.app import Workbench
from pallas_tui.screens.agent_screen import AgentScreen
from pallas_tui.screens.sheet_screen import TextScreen
from pallas_tui.screens.tool_screen import ToolScreen
from pallas_tui.targets import AgentTarget, ToolTarget
from pallas_tui.widgets.agents import AgentsPane
from pallas_tui.widgets.agents.agent_tree import AgentTree

WIDE = (120, 40)


def pane_of(app: Workbench) -> AgentsPane:
    return app.main.query_one(AgentsPane)


def names(app: Workbench) -> list[str]:
    return [branch.item.name for branch in pane_of(app).agents.rows]


def told(app: Workbench) -> str:
    """What was said in a corner, one line each: on the screen it is wrapped."""
    return "\n".join(notification.message for notification in notices_of(app))


async def at(app: Workbench, pilot: Pilot[Any], name: str) -> None:
    """Put the cursor on an agent, with the keys in the tree."""
    await until(lambda: isinstance(app.focused, Input), pilot)
    await pilot.press("f2")
    await until(lambda: name in names(app) and isinstance(app.focused, AgentTree), pilot)
    assert pane_of(app).agents.show_agent(name)
    await pilot.pause()


def rail(app: Workbench) -> str:
    return "\n".join(line[:31] for line in screen_text(app).splitlines()[1:20])


def rail_details(app: Workbench) -> str:
    return str(app.main.query_one("#agent-details", Static).content)


async def test_what_an_agent_calls_stands_below_it_and_is_folded_and_unfolded() -> None:
    fleet = fleet_with_tools()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await at(app, pilot, "research")
        await until(lambda: "vault" in rail(app), pilot)
        shown = [line.split() for line in rail(app).splitlines()]
        assert ["│", "├", "docs", "stdio", "ok"] in shown
        assert ["│", "└", "vault", "http", "key"] in shown
        assert ["└", "tickets", "http", "down"] in shown
        # Left folds, then goes up; right unfolds.
        await pilot.press("left")
        assert names(app) == ["concierge", "research", "engineering", "tickets", "vision"]
        await until(lambda: "research ▸2" in rail(app), pilot)
        await pilot.press("left")
        branch = pane_of(app).agents.selected
        assert branch is not None
        assert branch.item.name == "concierge"
        await pilot.press("left")
        assert names(app) == ["concierge", "vision"]
        await pilot.press("right", "down", "right")
        assert names(app) == ["concierge", "research", "docs", "vault", "engineering", "tickets", "vision"]
        # What is folded stays so when the fleet changes.
        assert pane_of(app).agents.show_agent("concierge")
        await pilot.press("left")
        fleet.change("vision", runs_active=3)
        await until(lambda: "3▶" in rail(app), pilot)
        assert names(app) == ["concierge", "vision"]
        # Whoever is asked for is shown, folded or not.
        app.main.reveal(AgentTarget("engineering"))
        await until(lambda: "engineering" in names(app), pilot)
        branch = pane_of(app).agents.selected
        assert branch is not None
        assert branch.item.name == "engineering"


@pytest.mark.slow
async def test_folds_are_kept_between_two_starts_and_only_what_hides_an_agent_is_unfolded(
    tmp_path: Path,
) -> None:
    home = tmp_path / "workbench.yaml"
    app = workbench(fleet_with_tools(), home=home)
    async with app.run_test(size=WIDE) as pilot:
        await at(app, pilot, "research")
        await pilot.press("left")
        assert pane_of(app).agents.show_agent("concierge")
        await pilot.press("left")
        assert names(app) == ["concierge", "vision"]
    app = workbench(fleet_with_tools(), home=home)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: names(app) == ["concierge", "vision"], pilot)
        app.main.reveal(AgentTarget("engineering"))
        await until(lambda: "engineering" in names(app), pilot)
        assert names(app) == ["concierge", "research", "engineering", "tickets", "vision"]


async def test_the_details_of_a_downstream_say_what_is_wrong_with_it_and_enter_shows_its_tools() -> None:
    app = workbench(fleet_with_tools())
    async with app.run_test(size=WIDE) as pilot:
        await at(app, pilot, "research")
        await pilot.press("down", "down")
        await until(lambda: "auth required" in rail(app) or "auth required" in screen_text(app), pilot)
        assert "called by research" in screen_text(app)
        await pilot.press("enter")
        await until(
            lambda: isinstance(app.screen, AgentScreen) and "401: a credential" in screen_text(app), pilot
        )
        assert app.main.query_one(FakeChat).opened == []


async def test_reload_and_start_are_asked_for_at_once_and_shown_until_they_end() -> None:
    fleet = fleet_with_tools()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await at(app, pilot, "vision")
        asked: list[tuple[str, Verb]] = []
        for key, verb, state in (("r", "reload", "ready"), ("s", "start", "stopped")):
            fleet.change("vision", state=AgentState(state))
            await until(lambda state=state: ("stopped" in rail_details(app)) is (state == "stopped"), pilot)
            await pilot.press(key)
            asked.append(("vision", cast(Verb, verb)))
            assert fleet.controlled == asked
            await until(lambda verb=verb: "↻" in rail(app) and f"{verb}ing" in rail(app), pilot)
            fleet.say(AgentChanged(agent="vision", state=AgentState.READY, at=NOON))
            await until(lambda: "↻" not in rail(app), pilot)
        # A reload that failed is over when a notice says so.
        fleet.change("vision", state=AgentState.READY)
        await until(lambda: "stopped" not in rail_details(app), pilot)
        await pilot.press("r")
        await until(lambda: "reloading" in rail(app), pilot)
        fleet.say(Notice(level="error", text="line 3: syntax", agent="vision", at=NOON))
        await until(lambda: "reloading" not in rail(app), pilot)


@pytest.mark.slow
async def test_a_reload_that_failed_says_why_until_the_next_one() -> None:
    fleet = fleet_with_tools()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await at(app, pilot, "vision")
        await pilot.press("r")
        why = "agents/vision.py:3: ImportError: no [x]"
        text = f"vision: reload failed: {why}; the previous version still answers"
        # As it comes: the agent is as before, and only then the reason.
        fleet.say(AgentChanged(agent="vision", state=AgentState.READY, at=NOON))
        fleet.say(Notice(agent="vision", level="error", text=text, at=NOON))
        await until(lambda: text in told(app), pilot)
        await until(lambda: "reload failed" in rail_details(app), pilot)
        await pilot.press("i")
        await until(lambda: isinstance(app.screen, TextScreen) and "no [x]" in screen_text(app), pilot)
        await pilot.press("escape")
        await until(lambda: isinstance(app.focused, AgentTree), pilot)
        await pilot.press("r")
        await until(lambda: "reload failed" not in rail_details(app), pilot)
        # What nobody asked for here is in the top line only.
        fleet.say(Notice(agent="research", level="error", text="research: stop failed: x", at=NOON))
        await until(lambda: "research: stop failed" in screen_text(app).splitlines()[0], pilot)
        assert "stop failed" not in told(app)


@pytest.mark.slow
async def test_what_ends_runs_is_asked_about_once_in_place_and_the_question_follows_the_agent() -> None:
    fleet = fleet_with_tools()
    fleet.change("vision", runs_active=2)
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await at(app, pilot, "vision")
        for key, verb, state in (
            ("x", "stop", AgentState.STOPPED),
            ("R", "restart", AgentState.READY),
        ):
            fleet.controlled.clear()
            await pilot.press(key)
            await until(lambda: "2 runs are in flight and will be cancelled." in app.main.asking, pilot)
            await pilot.press("n")
            assert fleet.controlled == []
            await until(lambda: not app.main.asking and isinstance(app.focused, AgentTree), pilot)
            await pilot.press(key)
            await until(lambda: app.main.asking, pilot)
            await pilot.press("y")
            await until(lambda verb=verb: fleet.controlled == [("vision", verb)], pilot)
            # Once is enough: a second wish waits for the first one's outcome.
            await until(lambda: isinstance(app.focused, AgentTree), pilot)
            await pilot.press("r")
            assert fleet.controlled == [("vision", verb)]
            fleet.say(AgentChanged(agent="vision", state=state, at=NOON))
            await until(lambda: pane_of(app).under_way.verb("vision") is None, pilot)
        fleet.controlled.clear()
        await pilot.press("x")
        await until(lambda: "2 runs are in flight" in screen_text(app), pilot)
        fleet.change("vision", runs_active=1)
        await until(lambda: "1 run is in flight" in screen_text(app), pilot)
        fleet.change("vision", runs_active=0)
        await until(lambda: app.main.asking == "Stop vision?", pilot)
        fleet.change("vision", state=AgentState.STOPPED)
        await until(lambda: "vision is stopped already." in told(app), pilot)
        assert not app.main.asking
        assert fleet.controlled == []
        await until(lambda: isinstance(app.focused, AgentTree), pilot)


async def test_the_cursor_begins_on_an_agent_though_a_server_was_there_first() -> None:
    shop = ServerSnapshot("shop", AgentState.READY, "http://127.0.0.1:24280/mcp")
    fleet = FakeFleet(replace(desk(), servers=(shop,)))
    agents, fleet.current = fleet.current.agents, replace(fleet.current, agents=())
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: names(app) == ["shop"], pilot)
        fleet.add(*agents)
        await until(lambda: len(names(app)) > 1 and "Concierge" in rail_details(app), pilot)
        await pilot.press("f2", "end")
        await until(lambda: "a server of the project" in rail_details(app), pilot)
        fleet.add(agent("another", 24210))
        await until(lambda: "another" in names(app), pilot)
        assert "a server of the project" in rail_details(app)


async def test_a_fleet_that_may_only_be_looked_at_refuses_politely() -> None:
    fleet = fleet_with_tools()
    fleet.can_control = False
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await at(app, pilot, "vision")
        for key in ("r", "x", "R", "s"):
            await pilot.press(key)
        await until(lambda: "this token may only read" in told(app), pilot)
        assert fleet.controlled == []
        assert app.main.asking == ""


async def test_what_makes_no_sense_now_is_told_and_not_asked_for() -> None:
    fleet = fleet_with_tools()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await at(app, pilot, "vision")
        await pilot.press("s")
        await until(lambda: "vision runs already" in told(app), pilot)
        fleet.change("vision", state=AgentState.STOPPED)
        await until(lambda: "stopped" in rail(app), pilot)
        await until(lambda: "s starts it" in screen_text(app), pilot)
        await pilot.press("x")
        await until(lambda: "vision is stopped already" in told(app), pilot)
        assert fleet.controlled == []


class Refusing(FakeFleet):
    """A fleet whose agents cannot be controlled just now."""

    def control(self, agent: str, verb: Verb) -> None:
        raise Fault(FaultType.UPSTREAM, f"{agent} is busy [not markup]")


async def test_a_refusal_by_the_fleet_is_told_and_nothing_stays_under_way() -> None:
    app = workbench(Refusing())
    async with app.run_test(size=WIDE) as pilot:
        await at(app, pilot, "vision")
        await pilot.press("r")
        await until(lambda: "vision is busy [not markup]" in told(app), pilot)
        assert pane_of(app).under_way.verb("vision") is None


@pytest.mark.slow
async def test_the_palette_finds_agents_at_once_and_tools_once_they_are_known_and_none_that_is_gone() -> None:
    fleet = fleet_with_tools()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await at(app, pilot, "vision")
        pane = pane_of(app)
        found = {entity.title: entity.target for entity in pane.entities()}
        assert found["research"] == AgentTarget("research")
        await until(lambda: any(entity.title == "research: docs/search" for entity in pane.entities()), pilot)
        target = next(entity.target for entity in pane.entities() if entity.title == "research: docs/search")
        assert target == ToolTarget("research", "docs", "search")
        app.main.reveal(target)
        await until(lambda: isinstance(app.screen, ToolScreen) and "query*" in screen_text(app), pilot)
        await pilot.press("escape", "escape")
        await until(lambda: isinstance(app.screen, AgentScreen), pilot)
        assert not pane_of(app).reveal(AgentTarget("nobody"))
        assert not pane_of(app).reveal(ToolTarget("nobody", "", "x"))


async def test_editing_without_an_editor_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    (tmp_path / "agents.yaml").write_text("x")
    app = workbench(fleet_with_tools())
    app.root = tmp_path
    async with app.run_test(size=WIDE) as pilot:
        await at(app, pilot, "research")
        await pilot.press("e")
        await until(lambda: "set EDITOR" in told(app), pilot)
        # Nowhere to show an editor: this application has no terminal.
        monkeypatch.setenv("EDITOR", "true")
        await pilot.press("e")
        await until(lambda: "an editor cannot take this screen" in told(app), pilot)
