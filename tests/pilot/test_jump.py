"""Jump mode: letters on every place in view, one keystroke to go there. And the keys of vi."""

import pytest
from support.fake_fleet import NOON, FakeFleet
from support.shell import screen_text, workbench
from support.waiting import until
from textual.app import App, ComposeResult
from textual.containers import Horizontal
from textual.widgets import Button, Input

from pallas.model import RunStarted
from pallas_tui.screens.help_screen import HelpScreen
from pallas_tui.screens.jump_screen import LETTERS, JumpScreen, labels
from pallas_tui.settings import Settings
from pallas_tui.widgets.agents import AgentsPane
from pallas_tui.widgets.chat.tab_strip import Tab, TabStrip
from pallas_tui.widgets.feed import FeedPane

WIDE = (120, 40)
SMALL = (80, 24)
NARROW = (60, 20)


@pytest.mark.parametrize("size", [WIDE, SMALL, NARROW])
async def test_a_letter_goes_to_its_place_and_the_letters_are_gone(size: tuple[int, int]) -> None:
    app = workbench()
    async with app.run_test(size=size) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f4", "f12")
        await until(lambda: isinstance(app.screen, JumpScreen), pilot)
        titles = app.main.query_one("#dock-title").region
        found = {label.x: label for label in labels(app.main) if label.y == titles.y}
        # The second title of the dock is that of the log.
        _, logs, *_ = (found[x] for x in sorted(found))
        assert f" {logs.letter} " in screen_text(app).splitlines()[titles.y]
        await pilot.press(logs.letter)
        await until(lambda: app.screen is app.main and app.main.current == "logs", pilot)


async def test_every_pane_in_view_and_no_hidden_one_has_a_letter() -> None:
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        wide = labels(app.main)
        assert len({(label.x, label.y) for label in wide}) == len(wide)
        assert [label.letter for label in wide] == list(LETTERS[: len(wide)])
        rows = {label.y for label in wide}
        for title in ("#rail-title", "#talk-title", "#dock-title"):
            assert app.main.query_one(title).region.y in rows
        await pilot.press("f4", "z")
        await until(lambda: not app.main.query_one("#rail").display, pilot)
        zoomed = labels(app.main)
        assert all(label.y >= app.main.query_one("#dock-title").region.y for label in zoomed)
        assert len(zoomed) < len(wide)


@pytest.mark.slow
async def test_any_other_key_a_click_and_a_resize_leave_everything_as_it_was() -> None:
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f4")
        focused = app.focused
        for leave in ("escape", "5", "Z"):
            await pilot.press("J")
            await until(lambda: isinstance(app.screen, JumpScreen), pilot)
            await pilot.press(leave)
            await until(lambda: app.screen is app.main, pilot)
            assert app.main.current == "feed"
            assert app.focused is focused
        await pilot.press("J")
        await until(lambda: isinstance(app.screen, JumpScreen), pilot)
        await pilot.click(offset=(60, 10))
        await until(lambda: app.screen is app.main, pilot)
        await pilot.press("J")
        await until(lambda: isinstance(app.screen, JumpScreen), pilot)
        await pilot.resize_terminal(*SMALL)
        await until(lambda: app.screen is app.main, pilot)
        assert app.main.current == "feed"


class Crowd(App[None]):
    """More places than there are letters."""

    CSS = "Horizontal { height: 1; } Button { width: 1; min-width: 1; height: 1; border: none; }"

    def compose(self) -> ComposeResult:
        with Horizontal():
            for _ in range(60):
                yield Button("x")


async def test_there_are_never_more_labels_than_letters_and_none_hides_another() -> None:
    app = Crowd()
    async with app.run_test(size=(80, 10)) as pilot:
        await pilot.pause()
        found = labels(app.screen)
        cells = [(label.x + step, label.y) for label in found for step in range(3)]
        assert len(found) == len(LETTERS)
        assert len(set(cells)) == len(cells)


# The keys of vi


@pytest.mark.slow
async def test_the_keys_of_vi_move_in_lists_and_in_sheets() -> None:
    app = workbench()
    async with app.run_test(size=SMALL) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f2")
        agents = app.main.query_one(AgentsPane).agents
        await until(lambda: agents.line_count() > 3, pilot)
        await pilot.press("j", "j")
        await until(lambda: agents.cursor == 2, pilot)
        await pilot.press("k")
        await until(lambda: agents.cursor == 1, pilot)
        await pilot.press("G")
        await until(lambda: agents.cursor == agents.line_count() - 1, pilot)
        await pilot.press("g")
        await until(lambda: agents.cursor == 0, pilot)
        await pilot.press("f1", "G")
        await until(lambda: isinstance(app.screen, HelpScreen), pilot)
        scroll = app.screen.query_one("VerticalScroll")
        await until(lambda: scroll.scroll_y > 0, pilot)
        await pilot.press("g")
        await until(lambda: scroll.scroll_y == 0, pilot)


async def test_in_the_feed_k_goes_up_and_cancels_nothing() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        for number in range(3):
            fleet.say(RunStarted(at=NOON, run_id=f"r{number}", agent="vision", preview=f"no {number}"))
        await pilot.press("f4")
        rows = app.main.query_one(FeedPane).runs
        await until(lambda: rows.line_count() >= 3 and rows.cursor == rows.line_count() - 1, pilot)
        last = rows.cursor
        await pilot.press("k")
        await until(lambda: rows.cursor == last - 1, pilot)
        assert not app.main.asking


async def test_in_a_line_of_text_they_are_letters() -> None:
    app = workbench()
    async with app.run_test(size=SMALL) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press(*"jkgG")
        await until(lambda: app.main.query_one("#prompt", Input).value == "jkgG", pilot)


async def test_they_can_be_turned_off_while_the_workbench_runs() -> None:
    app = workbench(settings=Settings("textual-dark", False, vim=False))
    async with app.run_test(size=SMALL) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f2")
        agents = app.main.query_one(AgentsPane).agents
        await until(lambda: agents.line_count() > 3, pilot)
        await pilot.press("G", "j", "down")
        await until(lambda: agents.cursor == 1, pilot)
        app.keep_setting("vim", True)
        await pilot.press("G")
        await until(lambda: agents.cursor == agents.line_count() - 1, pilot)


class Strip(App[None]):
    """The tabs of the chat."""

    def __init__(self) -> None:
        super().__init__()
        self.went: list[object] = []

    def compose(self) -> ComposeResult:
        yield TabStrip()

    def on_mount(self) -> None:
        """Two conversations."""
        tabs = tuple(Tab(("●", ""), name) for name in ("concierge", "vision"))
        self.query_one(TabStrip).show(tabs, 0)

    def on_tab_strip_tab_chosen(self, event: TabStrip.TabChosen) -> None:
        """Note it."""
        self.went.append(event.index)

    def on_tab_strip_new_tab_wanted(self) -> None:
        """Note it."""
        self.went.append("new")


async def test_each_tab_of_the_chat_has_a_letter_and_so_has_a_new_one() -> None:
    app = Strip()
    async with app.run_test(size=(80, 4)) as pilot:
        found = await until(lambda: labels(app.screen), pilot)
        assert len(found) == 3
        for label in found:
            label.go()
        await until(lambda: app.went == [0, 1, "new"], pilot)
