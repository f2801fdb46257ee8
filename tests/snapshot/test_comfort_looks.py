"""How the shell looks, by size and by theme of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.fake_fleet import FakeFleet
from support.pane_app import still
from support.shell import screen_text, workbench
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input

from pallas_tui import diagnostics
from pallas_tui.screens import about
from pallas_tui.settings import Settings

SIZES = {"60x20": (60, 20), "80x24": (80, 24), "120x40": (120, 40)}
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
    monkeypatch.setattr(about, "versions", diagnostics.versions)
    monkeypatch.setattr(about, "process", diagnostics.process)
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


# The main screen in every size and theme; the others in every size, and in every theme at one of them.
LOOKS = [
    (screen, theme, size)
    for screen in SCREENS
    for theme in THEMES
    for size in SIZES
    if screen == "main" or theme == THEMES[0] or size == "80x24"
]


@pytest.mark.parametrize(("screen", "theme", "size"), LOOKS)
def test_the_shell(snap_compare: Callable[..., bool], screen: str, theme: str, size: str) -> None:
    app = workbench(
        FakeFleet(), settings=Settings(theme, ascii=False), paths={"log": Path("/var/log/pallas.log")}
    )
    do, shown = SCREENS[screen]

    async def before(pilot: Pilot[Any]) -> None:
        await until(lambda: isinstance(app.focused, Input) and ":24200" in screen_text(app), pilot)
        if do.startswith("f"):
            await pilot.press(do)
        elif do:
            await app.run_action(do)
        await until(lambda: shown in screen_text(app), pilot)
        still(app)
        await pilot.pause()

    assert snap_compare(app, terminal_size=SIZES[size], run_before=before)
