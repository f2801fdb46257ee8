"""The shell with the real chat and the real log."""

from collections import Counter
from pathlib import Path

import pytest
from support.fake_fleet import NOON, FakeFleet
from support.shell import screen_text
from support.waiting import until
from textual.widgets import TextArea

from pallas_tui.app import Workbench
from pallas_tui.launch import late_panes
from pallas_tui.palette import commands
from pallas_tui.screens.help_screen import HelpScreen
from pallas_tui.settings import Settings
from pallas_tui.widgets.pane import Pane

SIZES = [(120, 40), (80, 24)]
PANES = {"f2": "agents", "f3": "chat", "f4": "feed", "f5": "logs", "f6": "credentials"}
"""By the key that goes there."""


def whole(tmp_path: Path, fleet: FakeFleet | None = None) -> Workbench:
    log = tmp_path / "pallas.log"
    log.write_text(
        '{"time": "2026-01-01T00:00:00Z", "level": "INFO", "logger": "x", "message": "a record"}\n'
    )
    fleet = fleet or FakeFleet()
    settings = Settings("textual-dark", False)
    return Workbench(
        lambda: fleet, name="desk", late=late_panes(log), settings=settings, clock=lambda: NOON, strict=True
    )


def panes(app: Workbench) -> set[str]:
    """The panes that are there."""
    return {str(pane.id) for pane in app.main.query(Pane)}


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
async def test_every_pane_can_be_reached_and_has_help_and_escape_never_quits(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    app = whole(tmp_path)
    async with app.run_test(size=size) as pilot:
        await until(lambda: panes(app) == set(PANES.values()) and ":24200" in screen_text(app), pilot)
        for key, pane_id in PANES.items():
            await pilot.press(key)
            pane = app.main.query_one(f"#{pane_id}", Pane)
            await until(lambda pane=pane: pane.is_showing and pane.has_focus_within, pilot)
            await pilot.press("f1")
            await until(lambda: isinstance(app.screen, HelpScreen), pilot)
            assert pane.HELP
            await pilot.press("escape")
            await until(lambda: app.screen is app.main, pilot)
            await pilot.press("escape", "escape", "escape")
        assert app.is_running
        assert app.return_value is None


async def test_the_palette_names_each_action_once(tmp_path: Path) -> None:
    app = whole(tmp_path)
    async with app.run_test(size=SIZES[0]) as pilot:
        await until(lambda: panes(app) == set(PANES.values()), pilot)
        titles = Counter(command.title for command in commands(app, app.screen))
        assert not [title for title, number in titles.items() if number > 1]
        assert {"Chat: Back", "Find in log"} <= set(titles)


async def test_enter_on_an_agent_leads_to_a_conversation_with_it(tmp_path: Path) -> None:
    app = whole(tmp_path)
    async with app.run_test(size=SIZES[0]) as pilot:
        await until(lambda: panes(app) == set(PANES.values()) and ":24200" in screen_text(app), pilot)
        await pilot.press("f2", "end", "enter")
        await until(lambda: app.main.current == "chat", pilot)
        await until(lambda: "Write to vision" in screen_text(app), pilot)


@pytest.mark.slow
async def test_the_function_keys_go_to_every_pane_also_while_one_types(tmp_path: Path) -> None:
    app = whole(tmp_path)
    async with app.run_test(size=SIZES[1]) as pilot:
        await until(lambda: panes(app) == set(PANES.values()) and ":24200" in screen_text(app), pilot)
        for key, pane_id in PANES.items():
            await pilot.press("f3")
            await until(lambda: isinstance(app.focused, TextArea), pilot)
            await pilot.press(key)
            await until(lambda pane_id=pane_id: app.main.current == pane_id, pilot)
