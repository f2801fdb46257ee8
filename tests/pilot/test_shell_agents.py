"""The agents pane: who is there, how they are, why, and what enter does."""

from dataclasses import replace

import pytest
from support.fake_fleet import NOON, FakeFleet, agent, desk
from support.shell import FakeChat, screen_text, workbench
from support.waiting import until
from textual.widgets import Input

from pallas.model import AgentState, Health, HealthStatus, ServerSnapshot
from pallas_tui.screens.sheet_screen import TextScreen
from pallas_tui.settings import Settings
from pallas_tui.widgets.agents import AgentsPane

WIDE = (120, 40)
SMALL = (80, 24)


def line_of(app: object, name: str) -> str:
    """The line of the list that an agent stands in, without what is right of the rail."""
    text = screen_text(app)  # type: ignore[arg-type]
    return next(line[:31] for line in text.splitlines()[2:14] if name in line[:31])


async def test_each_agent_shows_its_shape_port_and_runs_in_its_place_in_the_tree() -> None:
    # PI-17
    fleet = FakeFleet()
    fleet.change("concierge", runs_active=12)
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: "12▶" in line_of(app, "concierge"), pilot)
        assert line_of(app, "concierge").split() == ["●", "concierge", ":24201", "12▶"]
        assert line_of(app, "research").split() == ["├", "●", "research", ":24202"]
        assert line_of(app, "engineering").split() == ["└", "◐", "engineering", ":24203"]
        fleet.change("vision", health=Health(HealthStatus.ERROR, "no key", NOON, NOON))
        await until(lambda: "✖" in line_of(app, "vision"), pilot)


async def test_numbers_do_not_move_what_stands_beside_them() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: ":24201" in screen_text(app), pilot)
        before = line_of(app, "concierge").index(":24201")
        for runs in (1, 10, 150):
            fleet.change("concierge", runs_active=runs)
            shown = f"{min(runs, 99)}▶"
            await until(lambda shown=shown: shown in line_of(app, "concierge"), pilot)
            assert line_of(app, "concierge").index(":24201") == before
            assert line_of(app, "concierge").rstrip().endswith("▶")
        fleet.change("concierge", runs_queued=7)
        await until(lambda: "99▶+7" in line_of(app, "concierge"), pilot)
        assert line_of(app, "concierge").index(":24201") == before


@pytest.mark.slow
async def test_the_details_of_the_selected_agent_name_the_reason_first() -> None:
    # PI-17
    app = workbench()
    async with app.run_test(size=SMALL) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f2")
        await until(lambda: "needs   research, engineering" in screen_text(app), pilot)
        await pilot.press(*["down"] * 4)
        await until(lambda: "tickets: connection refused" in screen_text(app), pilot)
        text = screen_text(app)
        assert "degraded since 15:01" in text
        assert text.index("tickets: connection refused") < text.index("degraded since")
        assert "http  unreachable" in text
        await pilot.press("down", "down")
        await until(
            lambda: "vision" in screen_text(app) and "generic.scripted · vision" in screen_text(app), pilot
        )


@pytest.mark.slow
async def test_enter_on_a_healthy_agent_opens_a_chat_with_it() -> None:
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f2", "down", "enter")
        chat = app.main.query_one(FakeChat)
        await until(lambda: chat.opened == ["research"], pilot)
        assert app.main.current == "chat"
        # degraded: it works, so one may talk to it
        await pilot.press("f2", "down", "down", "down", "enter")
        await until(lambda: chat.opened == ["research", "engineering"], pilot)


async def test_enter_on_a_failed_agent_tells_the_whole_story_and_y_copies_it() -> None:
    # PI-17
    story = "ModuleNotFoundError: No module named 'desk.agents.vison'\n" + "\n".join(
        f"  line {number} of the traceback [not markup]" for number in range(60)
    )
    fleet = FakeFleet()
    fleet.change("vision", state=AgentState.ERROR, error=story)
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f2", "end")
        await until(lambda: "ModuleNotFoundError" in screen_text(app), pilot)
        assert "failed" in line_of(app, "vision")
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, TextScreen), pilot)
        await until(lambda: "line 0 of the traceback [not markup]" in screen_text(app), pilot)
        assert "line 59" not in screen_text(app)
        await pilot.press("end")
        await until(lambda: "line 59 of the traceback" in screen_text(app), pilot)
        await pilot.press("y")
        await until(lambda: story in app.clipboard, pilot)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main, pilot)
        assert app.main.query_one(FakeChat).opened == []


async def test_the_servers_of_the_project_stand_below_the_agents_and_enter_tells_their_story() -> None:
    fleet = FakeFleet()
    server = ServerSnapshot(
        "shop", AgentState.ERROR, "http://127.0.0.1:24280/mcp", None, "exited with status 3"
    )
    fleet.current = replace(fleet.current, servers=(server,))
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f2", "end")
        await until(lambda: "exited with status 3" in screen_text(app), pilot)
        assert line_of(app, "shop").split() == ["✖", "shop", "failed"]
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, TextScreen), pilot)
        assert app.main.query_one(FakeChat).opened == []


@pytest.mark.slow
async def test_the_list_filters_and_keeps_the_selected_agent() -> None:
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f2", "end", "slash", *"vis")
        pane = app.main.query_one(AgentsPane)
        await until(lambda: len(pane.agents.rows) == 1, pilot)
        await pilot.press("enter")
        assert app.focused is pane.agents
        assert "vis" in screen_text(app)
        selected = pane.agents.selected
        assert selected is not None
        assert selected.item.name == "vision"
        await pilot.press("escape")
        await until(lambda: len(pane.agents.rows) == 7, pilot)
        selected = pane.agents.selected
        assert selected is not None
        assert selected.item.name == "vision"


@pytest.mark.slow
async def test_a_filter_that_matches_nobody_says_how_to_get_them_back() -> None:
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f2", "slash", *"zzz")
        await until(lambda: "No agent matches." in screen_text(app), pilot)
        await pilot.press("escape")
        await until(lambda: ":24201" in screen_text(app), pilot)


async def test_the_cursor_stays_on_its_agent_when_others_come() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f2", "end")
        pane = app.main.query_one(AgentsPane)
        current = desk()
        fleet.current = replace(current, agents=(agent("aaa", 24210), agent("bbb", 24211), *current.agents))
        await until(lambda: len(pane.agents.rows) == 9, pilot)
        selected = pane.agents.selected
        assert selected is not None
        assert selected.item.name == "vision"


async def test_remote_text_is_never_markup() -> None:
    fleet = FakeFleet()
    fleet.change(
        "vision",
        title="[bold red]Vision[/]",
        health=Health(HealthStatus.DEGRADED, "[link=x]click[/link] [/nothing]", NOON, NOON),
    )
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f2", "end")
        await until(lambda: "[link=x]click[/link] [/nothing]" in screen_text(app), pilot)
        assert "[bold red]Vision[/]" in screen_text(app)


async def test_ascii_draws_no_character_outside_ascii_in_the_shell() -> None:
    fleet = FakeFleet()
    fleet.change("concierge", runs_active=1)
    app = workbench(fleet, settings=Settings("textual-dark", ascii=True))
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input) and ":24201" in screen_text(app), pilot)
        await pilot.press("f2")
        await until(lambda: line_of(app, "engineering").split()[:3] == ["`", "~", "engineering"], pilot)
        rail = [line[:32] for line in screen_text(app).splitlines()]
        assert all(line.isascii() for line in rail), rail


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["ansi-dark", "ansi-light", "textual-light"])
async def test_every_theme_shows_the_same_words(theme: str) -> None:
    app = workbench(settings=Settings(theme, ascii=False))
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: ":24201" in screen_text(app) and "1 degraded" in screen_text(app), pilot)


async def test_without_colours_shapes_still_tell_how_agents_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        assert app.no_color
        await until(lambda: "◐" in line_of(app, "engineering"), pilot)
        await until(lambda: "●" in line_of(app, "concierge"), pilot)
