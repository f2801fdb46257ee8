"""How the shell looks, by size and by theme of its own."""

from pathlib import Path
from typing import Any

import pytest
from support.fake_fleet import FakeFleet
from support.looks import Pictures, cells
from support.pane_app import still
from support.shell import screen_text, workbench
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input

from pallas_tui import diagnostics
from pallas_tui.screens.about_screen import AboutScreen
from pallas_tui.screens.help_screen import HelpScreen
from pallas_tui.screens.jump_screen import JumpScreen
from pallas_tui.screens.settings_screen import SettingsScreen
from pallas_tui.settings import Settings

THEMES = ("pallas-dark", "pallas-light", "pallas-contrast-dark")
SCREENS = {
    "main": ("", ":24200"),
    "settings": ("f11", "esc back"),
    "about": ("about", "esc back"),
    "help": ("f1", "esc back"),
    "jump": ("f12", " a "),
}


@pytest.fixture(autouse=True)
def same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts that differ from machine to machine."""
    monkeypatch.setattr(
        diagnostics, "versions", lambda: ("Versions", (("pallas-mcp", "1.0"), ("python", "3.13.0")))
    )
    monkeypatch.setattr(diagnostics, "process", lambda: ("Process", (("pid", "1"), ("threads", "4"))))
    for name in (
        "TMUX",
        "SSH_CONNECTION",
        "SSH_TTY",
        "TERM_PROGRAM",
        "TERM_PROGRAM_VERSION",
        "LANG",
        "LC_ALL",
    ):
        monkeypatch.delenv(name, raising=False)


async def show(pilot: Pilot[Any], screen: str) -> None:
    """Leave the screen that was shown before, and open this one."""
    app: Any = pilot.app
    do, shown = SCREENS[screen]
    if isinstance(app.screen, SettingsScreen | AboutScreen | HelpScreen | JumpScreen):
        await app.pop_screen()
    await until(lambda: isinstance(app.focused, Input) and ":24200" in screen_text(app), pilot)
    if do.startswith("f"):
        await pilot.press(do)
    elif do:
        await app.run_action(do)
    await until(lambda: shown in screen_text(app), pilot)
    still(app)


@pytest.mark.slow
@pytest.mark.parametrize("theme", THEMES)
async def test_the_shell(pictures: Pictures, theme: str) -> None:
    app = workbench(
        FakeFleet(), settings=Settings(theme, ascii=False), paths={"log": Path("/var/log/pallas.log")}
    )
    sizes = ("80x24", "60x20", "120x40") if theme == THEMES[0] else ("80x24",)
    async with pictures.of(app, sizes[0]) as pilot:
        for size in sizes:
            await pilot.resize_terminal(*cells(size))
            for screen in SCREENS:
                await show(pilot, screen)
                await pictures.take(pilot, f"{screen}-{size}")
