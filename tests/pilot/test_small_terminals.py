"""Small terminals: nothing is lost at 60x20, and nothing crashes however small it gets."""

import pytest
from support.fake_fleet import FakeFleet
from support.shell import FakeChat, screen_text, workbench
from support.waiting import until
from textual.scrollbar import ScrollBar, ScrollBarRender
from textual.widgets import Input

from pallas_tui.screens.about_screen import AboutScreen
from pallas_tui.screens.help_screen import HelpScreen
from pallas_tui.screens.settings_screen import SettingsScreen
from pallas_tui.settings import Settings
from pallas_tui.widgets.agents import AgentsPane

NARROW = (60, 20)
SMALL = (80, 24)
WIDE = (120, 40)


async def test_at_60_by_20_the_top_and_bottom_line_say_what_matters() -> None:
    app = workbench()
    async with app.run_test(size=NARROW) as pilot:
        await until(lambda: ":24200" in screen_text(app).splitlines()[0], pilot)
        top, *_, bottom = screen_text(app).splitlines()
        assert all(word in top for word in ("desk", "●", "3", "◐", "1", "0 runs", "^p"))
        await pilot.press("f4")
        await until(lambda: "12345 panes" in screen_text(app).splitlines()[-1], pilot)
        bottom = screen_text(app).splitlines()[-1]
        assert "^q quit" in bottom
        assert "f1 help" in bottom


async def test_the_agents_open_as_a_drawer_over_what_is_there_and_close_again() -> None:
    app = workbench()
    async with app.run_test(size=NARROW) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("escape", "b")
        await until(lambda: "concierge" in screen_text(app), pilot)
        # It lies above the chat, which keeps its width.
        assert app.main.query_one(FakeChat).is_showing
        assert app.main.query_one("#talk").size.width == NARROW[0]
        assert app.main.query_one("#rail").outer_size.width == 36
        assert app.focused is app.main.query_one(AgentsPane).agents
        assert app.main.current == "chat"
        await pilot.press("escape")
        await until(lambda: "concierge" not in screen_text(app), pilot)
        assert "A conversation stands here." in screen_text(app)
        # Choosing one closes it too.
        await pilot.press("escape", "b")
        await until(lambda: "concierge" in screen_text(app), pilot)
        await pilot.press("enter")
        await until(lambda: app.main.query_one(FakeChat).opened == ["concierge"], pilot)
        await until(lambda: "research" not in screen_text(app), pilot)


@pytest.mark.slow
async def test_a_drawer_is_gone_when_the_terminal_grows_and_when_another_pane_is_gone_to() -> None:
    app = workbench()
    async with app.run_test(size=NARROW) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f4", "b")
        await until(lambda: "concierge" in screen_text(app), pilot)
        await pilot.press("f5")
        await until(lambda: "The log stands here." in screen_text(app), pilot)
        assert "concierge" not in screen_text(app)
        await pilot.press("b")
        await until(lambda: "concierge" in screen_text(app), pilot)
        await pilot.resize_terminal(*WIDE)
        await until(lambda: "2 Chat" in screen_text(app), pilot)
        assert not app.main.has_class("-drawer")
        assert app.main.query_one("#rail").outer_size.width == 32


@pytest.mark.slow
async def test_sheets_fit_and_scroll_at_60_by_20() -> None:
    app = workbench()
    async with app.run_test(size=NARROW) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        for action, screen in (("help", HelpScreen), ("settings", SettingsScreen), ("about", AboutScreen)):
            key = {"help": "f1", "settings": "f11"}.get(action)
            await (pilot.press(key) if key else app.run_action(action))
            await until(
                lambda screen=screen: isinstance(app.screen, screen) and "esc back" in screen_text(app), pilot
            )
            before = screen_text(app)
            await pilot.press("end")
            await until(lambda before=before: screen_text(app) != before, pilot)
            await pilot.press("escape")
            await until(lambda: app.screen is app.main, pilot)


@pytest.mark.slow
async def test_below_40_by_10_it_says_so_and_comes_back() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f4")
        for runs, size in enumerate(((39, 20), (60, 9), (20, 5), (8, 3), (1, 1)), 1):
            await pilot.resize_terminal(*size)
            await until(lambda: app.main.has_class("-tiny"), pilot)
            if size[0] >= 20 and size[1] >= 5:
                await until(lambda: "Too small" in screen_text(app), pilot)
            # Frames and keys go on.
            fleet.change("vision", runs_active=runs)
            await pilot.press("f5", "f2", "f12", "escape", "f1", "escape", "f4")
            await until(lambda: app.screen is app.main, pilot)
            await pilot.resize_terminal(*SMALL)
            await until(lambda: "No calls yet" in screen_text(app), pilot)
            await until(lambda runs=runs: f"{runs} run" in screen_text(app).splitlines()[0], pilot)
            assert not app.main.has_class("-tiny")
            assert app.main.current == "feed"


@pytest.mark.slow
async def test_the_focus_survives_a_terminal_that_was_too_small() -> None:
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        for keys in ("f4", "f2"):
            await pilot.press(keys)
            await until(lambda: not isinstance(app.focused, Input), pilot)
            before = app.focused
            await pilot.resize_terminal(30, 8)
            await until(lambda: app.main.has_class("-tiny"), pilot)
            await until(lambda: app.focused is None, pilot)
            await pilot.resize_terminal(*WIDE)
            await until(lambda before=before: app.focused is before, pilot)


async def test_a_workbench_that_begins_too_small_grows() -> None:
    app = workbench()
    async with app.run_test(size=(10, 4)) as pilot:
        await until(lambda: app.main.has_class("-tiny"), pilot)
        await pilot.resize_terminal(*WIDE)
        await until(lambda: ":24201" in screen_text(app) and "2 Chat" in screen_text(app), pilot)


@pytest.mark.slow
async def test_a_storm_of_sizes_ends_in_the_last_one() -> None:
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        for step in range(30):
            await pilot.resize_terminal(*((30, 8), NARROW, WIDE, (170, 55), SMALL)[step % 5])
        await pilot.resize_terminal(*WIDE)
        await until(lambda: "1 Agents" in screen_text(app) and ":24201" in screen_text(app), pilot)
        assert len(screen_text(app).splitlines()) == WIDE[1]


async def test_a_terminal_of_ascii_has_scrollbars_without_blocks() -> None:
    def bar() -> str:
        segments = ScrollBar.renderer.render_bar(size=20, virtual_size=95, window_size=20, position=33)
        return "".join(segment.text for segment in segments.segments)

    async with workbench(settings=Settings(theme="textual-dark", ascii=False)).run_test(size=SMALL):
        assert not bar().isascii()
    async with workbench(settings=Settings(theme="textual-dark", ascii=True)).run_test(size=SMALL):
        assert bar().isascii()
    ScrollBar.renderer = ScrollBarRender
