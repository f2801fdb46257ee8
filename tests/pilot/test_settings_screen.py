"""Every setting can be looked at and changed on one screen, and the user's file keeps the rest of itself."""

from pathlib import Path

import pytest
from support.notices import noticed
from support.shell import screen_text, workbench
from support.waiting import until
from textual.command import CommandPalette
from textual.widgets import Input

from pallas_tui.app import Workbench
from pallas_tui.screens.settings_screen import (
    SettingLine,
    SettingsList,
    SettingsScreen,
    parsed,
    shown_as,
    typed_as,
)
from pallas_tui.settings import load_settings
from pallas_tui.settings.settings_schema import BY_KEY, SCHEMA, ModelPrice

WIDE = (120, 40)
NARROW = (60, 20)


async def opened(app: Workbench, pilot: object) -> SettingsList:
    await until(lambda: isinstance(app.focused, Input), pilot)  # type: ignore[arg-type]
    await pilot.press("f11")  # type: ignore[attr-defined]
    await until(lambda: isinstance(app.screen, SettingsScreen) and app.screen.query(SettingsList), pilot)  # type: ignore[arg-type]
    return app.screen.query_one(SettingsList)


def go_to(rows: SettingsList, key: str) -> None:
    found = rows.find(key)
    assert found is not None
    rows.action_move_to(found)


async def test_every_setting_stands_there_with_its_value() -> None:
    app = workbench()
    async with app.run_test(size=(120, 45)) as pilot:
        await opened(app, pilot)
        text = screen_text(app)
        for setting in SCHEMA:
            line = next(line for line in text.splitlines() if f" {setting.key} " in line)
            assert shown_as(setting, app.settings.get(setting.key))[:20] in line


@pytest.mark.slow
@pytest.mark.parametrize("size", [WIDE, NARROW])
async def test_a_change_holds_at_once_and_is_written_with_the_comments_kept(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    home = tmp_path / "workbench.yaml"
    home.write_text("# mine\nvim: true  # of course\n")
    heard: list[bool] = []
    app = workbench(home=home)
    async with app.run_test(size=size) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        app.settings_changed.subscribe(app.main, lambda settings: heard.append(settings.vim))
        rows = await opened(app, pilot)
        go_to(rows, "vim")
        await pilot.press("enter")
        await until(lambda: app.settings.vim is False and heard == [False], pilot)
        assert home.read_text() == "# mine\nvim: false # of course\n"
        go_to(rows, "protocol")
        await pilot.press("space")
        await until(lambda: app.settings.protocol == "modern", pilot)
        go_to(rows, "notify.after")
        await pilot.press("enter")
        await until(lambda: isinstance(app.focused, SettingLine), pilot)
        await pilot.press("backspace", "backspace", *"25", "enter")
        await until(lambda: app.settings.notify.after == 25, pilot)
        assert app.focused is rows
        # Back to the default: out of the file.
        go_to(rows, "protocol")
        await pilot.press("r")
        await until(lambda: app.settings.protocol == "auto", pilot)
    assert home.read_text() == "# mine\nvim: false # of course\nnotify:\n  after: 25\n"
    assert load_settings(home).mistakes == ()


@pytest.mark.slow
async def test_a_mistake_is_told_in_place_and_nothing_is_written(tmp_path: Path) -> None:
    home = tmp_path / "workbench.yaml"
    app = workbench(home=home)
    async with app.run_test(size=WIDE) as pilot:
        rows = await opened(app, pilot)
        go_to(rows, "notify.after")
        await pilot.press("enter", *"x")
        await until(lambda: "notify.after: must be a number from 0 to 86400" in screen_text(app), pilot)
        await pilot.press("enter")
        assert isinstance(app.focused, SettingLine)
        assert app.settings.notify.after == 10
        await pilot.press("escape")
        await until(lambda: app.focused is rows, pilot)
        assert isinstance(app.screen, SettingsScreen)
        go_to(rows, "keys")
        await pilot.press("enter")
        await until(lambda: isinstance(app.focused, SettingLine), pilot)
        app.screen.query_one(SettingLine).value = "{zoom: [z]}"
        await until(lambda: "keys: zoom: must be a key or several" in screen_text(app), pilot)
        app.screen.query_one(SettingLine).value = "{zoom: f6"
        await until(lambda: "keys: cannot be read" in screen_text(app), pilot)
        app.screen.query_one(SettingLine).value = "{zom: f6}"
        await until(lambda: "keys: zom: no such action; did you mean zoom?" in screen_text(app), pilot)
        app.screen.query_one(SettingLine).value = "{zoom: b}"
        await until(lambda: "keys: zoom: b is the key of rail.toggle" in screen_text(app), pilot)
        await pilot.press("enter")
        assert app.settings.keys == {}
        app.screen.query_one(SettingLine).value = "{zoom: f6}"
        await pilot.press("enter")
        await until(lambda: app.settings.keys == {"zoom": "f6"}, pilot)
        await pilot.press("escape", "f6")
        await until(lambda: app.screen is app.main and not app.main.query_one("#rail").display, pilot)
    assert load_settings(home).keys == {"zoom": "f6"}


@pytest.mark.slow
async def test_a_file_that_cannot_be_changed_is_told_and_the_change_holds_for_now(tmp_path: Path) -> None:
    home = tmp_path / "workbench.yaml"
    home.write_text("a: [")
    app = workbench(home=home)
    async with app.run_test(size=WIDE) as pilot:
        rows = await opened(app, pilot)
        go_to(rows, "wrap")
        await pilot.press("enter")
        await noticed(app, pilot, "wrap holds for now only")
        assert app.settings.wrap is True
    assert home.read_text() == "a: ["


async def test_a_tick_while_the_workbench_ends_asks_for_no_screen() -> None:
    app = workbench()
    async with app.run_test(size=WIDE):
        pass
    assert not app.screen_stack
    app.look_elsewhere()


@pytest.mark.slow
async def test_the_theme_is_chosen_by_looking_and_kept(tmp_path: Path) -> None:
    home = tmp_path / "workbench.yaml"
    (tmp_path / "themes").mkdir()
    (tmp_path / "themes" / "sea.yaml").write_text('primary: "#2299aa"\n')
    (tmp_path / "themes" / "bad.yaml").write_text("primary: blurple\n")
    app = workbench(home=home)
    async with app.run_test(size=WIDE) as pilot:
        await noticed(app, pilot, "themes/bad.yaml: primary: blurple is not a colour")
        rows = await opened(app, pilot)
        go_to(rows, "theme")
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, CommandPalette), pilot)
        await pilot.press(*"sea")
        await until(lambda: app.theme == "sea", pilot)
        await pilot.press("enter")
        await until(lambda: app.screen is app.main, pilot)
    assert load_settings(home).theme == "sea"


@pytest.mark.slow
async def test_headings_are_passed_over_in_both_directions() -> None:
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        rows = await opened(app, pilot)
        for key in ("down", "up"):
            for _ in range(len(SCHEMA) + 6):
                assert rows.selected is not None
                await pilot.press(key)
        await pilot.press("home")
        await until(lambda: rows.selected is BY_KEY["theme"], pilot)


def test_what_is_typed_reads_back_as_what_it_was() -> None:
    values = {
        "keys": {"zoom": "f6,ctrl+g", "chat.new": "a: b"},
        "prices": {"gpt-5*": ModelPrice(1.25, 10), "m": ModelPrice(0, 0.5)},
        "notify.after": 2.5,
        "editor": "code -w",
        "theme": "nord",
    }
    for key, value in values.items():
        assert parsed(BY_KEY[key], typed_as(value)) == (value, "")
    for setting in SCHEMA:
        assert parsed(setting, " ") == (setting.default, "")
