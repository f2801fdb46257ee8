"""Panes are resized by keys and by mouse, maximised, reset, and stand as they were left at the next start."""

import json
from pathlib import Path

import pytest
from support.notices import noticed
from support.shell import screen_text, workbench
from support.waiting import until
from textual.app import App, ComposeResult
from textual.widgets import Input

from pallas_tui.app import Workbench
from pallas_tui.json_file import JsonFile
from pallas_tui.screens.screen_layout import Layout, Layouts, is_tiny, size_class
from pallas_tui.text import width_of
from pallas_tui.widgets.folded_lines import FoldedLines
from pallas_tui.widgets.line_view import LineView
from pallas_tui.widgets.text_lines import TextLines

WIDE = (120, 40)
SMALL = (80, 24)
LARGE = (170, 55)
COLUMNS = (200, 50)


def sizes(app: Workbench) -> tuple[int, int]:
    """Columns of the rail, rows of the dock."""
    rail, dock = app.main.query_one("#rail"), app.main.query_one("#dock")
    return rail.outer_size.width, dock.size.height


@pytest.mark.slow
async def test_sizes_and_tab_are_kept_for_each_size_of_terminal(
    tmp_path: Path,
) -> None:
    home = tmp_path / "workbench.yaml"
    app = workbench(home=home)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        first = sizes(app)
        await pilot.press("f4", "plus", "plus", "greater_than_sign", "f5")
        await until(lambda: sizes(app) == (first[0] + 2, first[1] + 4), pilot)
        wanted = sizes(app)
    app = workbench(home=home)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await until(lambda: sizes(app) == wanted, pilot)
        assert "The log stands here." in screen_text(app)
        # Another size of terminal has an arrangement of its own.
        await pilot.resize_terminal(*LARGE)
        await until(lambda: sizes(app)[0] == first[0], pilot)
        await pilot.press("f4", "b")
        await until(lambda: not app.main.query_one("#rail").display, pilot)
        await pilot.resize_terminal(*WIDE)
        await until(lambda: sizes(app) == wanted, pilot)
    app = workbench(home=home)
    async with app.run_test(size=LARGE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        assert not app.main.query_one("#rail").display
        assert (tmp_path / "workbench.layout.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
async def test_a_maximised_pane_is_so_again_also_one_that_comes_late(
    tmp_path: Path,
) -> None:
    home = tmp_path / "workbench.yaml"
    app = workbench(home=home)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f5", "f8")
        await until(lambda: "A conversation" not in screen_text(app), pilot)
    app = workbench(home=home)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: app.main.current == "logs" and "The log stands" in screen_text(app), pilot)
        assert "A conversation" not in screen_text(app)
        await pilot.press("escape")
        await until(lambda: "A conversation" in screen_text(app), pilot)
    app = workbench(home=home)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        assert "1 Agents" in screen_text(app)


@pytest.mark.slow
async def test_the_mouse_drags_the_edge_of_the_rail_and_the_title_of_the_dock() -> None:
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        rail, title = app.main.query_one("#rail"), app.main.query_one("#dock-title")
        columns, rows = sizes(app)
        edge = rail.region.right - 1
        await pilot.mouse_down(offset=(edge, 10))
        await pilot.hover(offset=(edge + 5, 10))
        await until(lambda: sizes(app)[0] == columns + 5, pilot)
        await pilot.mouse_up(offset=(edge + 5, 10))
        await pilot.hover(offset=(edge + 20, 10))
        await pilot.pause()
        assert sizes(app)[0] == columns + 5
        y = title.region.y
        # On the name of the log: what is dragged is not pressed.
        await pilot.mouse_down(offset=(title.region.x + 11, y))
        await pilot.hover(offset=(title.region.x + 11, y - 3))
        await until(lambda: sizes(app)[1] == rows + 3, pilot)
        await pilot.mouse_up(offset=(title.region.x + 11, y - 3))
        await pilot.pause()
        assert app.main.current == "chat"
        # Without moving it is a click.
        await pilot.click("#dock-title", offset=(11, 0))
        await until(lambda: app.main.current == "logs", pilot)


@pytest.mark.slow
async def test_reset_puts_everything_back() -> None:
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        first = sizes(app)
        await pilot.press("f4", "plus", "greater_than_sign", "z")
        await until(lambda: not app.main.query_one("#rail").display, pilot)
        await app.run_action("reset_layout")
        await until(lambda: sizes(app) == first and app.main.query_one("#rail").display, pilot)


@pytest.mark.slow
async def test_a_tall_dock_never_takes_the_chat_when_the_terminal_shrinks() -> None:
    app = workbench()
    async with app.run_test(size=(120, 48)) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f4", *["plus"] * 20)
        await until(lambda: app.main.query_one("#talk").size.height == 8, pilot)
        await pilot.resize_terminal(120, 32)
        await until(lambda: app.main.query_one("#dock").size.height == 32 - 2 - 8, pilot)
        assert app.main.query_one("#talk").size.height == 8


# Three columns


def dock_width(app: Workbench) -> int:
    """Columns of the dock with its edge."""
    return app.main.query_one("#dock").outer_size.width


@pytest.mark.slow
async def test_from_180_columns_on_the_dock_stands_beside_the_chat() -> None:
    app = workbench()
    async with app.run_test(size=(179, 50)) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        rail, talk, dock = (app.main.query_one(f"#{place}") for place in ("rail", "talk", "dock"))
        assert dock.region.x == talk.region.x
        for columns, rows in ((180, 50), (200, 50), (240, 60), (180, 30)):
            await pilot.resize_terminal(columns, rows)
            await until(lambda columns=columns: dock.region.right == columns, pilot)
            assert rail.region.x == 0
            assert rail.region.right == talk.region.x
            assert talk.region.right == dock.region.x
            assert rail.region.y == talk.region.y == dock.region.y == 1
            assert rail.region.height == talk.region.height == dock.region.height == rows - 2
            assert talk.size.width > dock.size.width >= 60
        # Too few rows for all panes.
        await pilot.resize_terminal(200, 29)
        await until(lambda: app.main.visible_panes() == {"chat"} and talk.size.width == 200, pilot)
        await pilot.press("f4")
        await until(lambda: dock.size.width == 200, pilot)


@pytest.mark.slow
async def test_the_keys_of_the_dock_and_its_edge_change_its_width_in_columns() -> None:
    app = workbench()
    async with app.run_test(size=COLUMNS) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        rail, talk, dock = (app.main.query_one(f"#{place}") for place in ("rail", "talk", "dock"))
        first = dock_width(app)
        await pilot.press("f4", "plus")
        await until(lambda: dock_width(app) == first + 2, pilot)
        await pilot.press("minus", "minus")
        await until(lambda: dock_width(app) == first - 2, pilot)
        edge = dock.region.x
        await pilot.mouse_down(offset=(edge, 10))
        await pilot.hover(offset=(edge - 7, 10))
        await until(lambda: dock_width(app) == first + 5, pilot)
        await pilot.mouse_up(offset=(edge - 7, 10))
        # A title is no edge here, however the mouse moves on it.
        title = app.main.query_one("#dock-title").region
        await pilot.mouse_down(offset=(title.x + 11, title.y))
        await pilot.hover(offset=(title.x + 11, title.y + 3))
        await pilot.mouse_up(offset=(title.x + 11, title.y + 3))
        await pilot.pause()
        assert dock_width(app) == first + 5
        assert dock.outer_size.height == COLUMNS[1] - 2
        # What the other columns need is theirs, also when the agents get more or the terminal shrinks.
        await pilot.mouse_down(offset=(dock.region.x, 10))
        await pilot.hover(offset=(0, 10))
        await until(lambda: talk.size.width == 40, pilot)
        await pilot.mouse_up(offset=(0, 10))
        await pilot.press("greater_than_sign")
        await until(lambda: rail.outer_size.width == 34 and talk.size.width == 40, pilot)
        await pilot.resize_terminal(180, 50)
        await until(lambda: dock_width(app) == 180 - 34 - 40, pilot)
        await pilot.press("b")
        await until(lambda: dock_width(app) == 128 and talk.size.width == 52, pilot)
        await pilot.mouse_down(offset=(dock.region.x, 10))
        await pilot.hover(offset=(178, 10))
        await until(lambda: dock_width(app) == 40 and talk.size.width == 140, pilot)


@pytest.mark.slow
async def test_of_several_keys_at_once_each_counts() -> None:
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        for size in (WIDE, COLUMNS):
            await pilot.resize_terminal(*size)
            await until(lambda size=size: app.main.size == size, pilot)
            await pilot.pause()
            rail, dock = sizes(app)[0], app.main.query_one("#dock").outer_size
            for _ in range(3):
                app.main.resize_dock(2)
                app.main.resize_rail(2)
            more = (6, 0) if size == COLUMNS else (-6, 6)
            wanted = dock.width + more[0], dock.height + more[1]
            await until(lambda wanted=wanted: app.main.query_one("#dock").outer_size == wanted, pilot)
            assert sizes(app)[0] == rail + 6


@pytest.mark.slow
async def test_zoom_and_reset_work_in_columns() -> None:
    app = workbench()
    async with app.run_test(size=COLUMNS) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        first, dock = dock_width(app), app.main.query_one("#dock")
        await pilot.press("f4", "plus", "z")
        await until(lambda: dock.region.x == 0 and dock.size.width == COLUMNS[0], pilot)
        await pilot.press("f3")
        await until(lambda: app.main.query_one("#talk").size.width == COLUMNS[0], pilot)
        await pilot.press("f8")
        await until(lambda: dock_width(app) == first + 2, pilot)
        await app.run_action("reset_layout")
        await until(lambda: dock_width(app) == first, pilot)


@pytest.mark.slow
async def test_columns_are_kept_apart_from_the_lines_of_smaller_terminals(tmp_path: Path) -> None:
    home = tmp_path / "workbench.yaml"
    app = workbench(home=home)
    async with app.run_test(size=COLUMNS) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        first = dock_width(app)
        await pilot.press("f4", "plus", "plus", "greater_than_sign")
        await until(lambda: dock_width(app) == first + 4, pilot)
    app = workbench(home=home)
    async with app.run_test(size=COLUMNS) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await until(lambda: dock_width(app) == first + 4 and sizes(app)[0] == 34, pilot)
        await pilot.press("f4")
        focused = app.focused
        await pilot.resize_terminal(*WIDE)
        await until(
            lambda: app.main.query_one("#dock").region.x == app.main.query_one("#talk").region.x, pilot
        )
        assert sizes(app) == (32, 12)
        assert app.main.current == "feed"
        assert app.focused is focused is not None
        await pilot.press("plus")
        await until(lambda: sizes(app) == (32, 14), pilot)
        await pilot.resize_terminal(*COLUMNS)
        await until(lambda: dock_width(app) == first + 4 and sizes(app)[0] == 34, pilot)
        assert app.main.query_one("#dock").size.height == COLUMNS[1] - 2
        assert app.main.current == "feed"
        assert app.focused is focused


async def test_texts_to_read_are_no_wider_than_one_reads() -> None:
    class Texts(App[None]):
        def compose(self) -> ComposeResult:
            yield TextLines(id="prose")
            yield FoldedLines([(("word " * 60, ""),)], id="folded")

    app = Texts()
    async with app.run_test(size=(200, 30)) as pilot:
        views = app.query(LineView)
        app.query_one(TextLines).put([("word " * 60, "")])
        await until(lambda: all(view.line_count() > 1 for view in views), pilot)
        for view in views:
            widths = [width_of(view.line_at(index, view.line_width)) for index in range(view.line_count())]
            assert max(widths) in range(95, 101)


async def test_a_spoiled_file_is_told_and_the_panes_stand_as_at_first(tmp_path: Path) -> None:
    home = tmp_path / "workbench.yaml"
    (tmp_path / "workbench.layout.json").write_text("{")
    app = workbench(home=home)
    async with app.run_test(size=WIDE) as pilot:
        await noticed(app, pilot, "workbench.layout.json: cannot be read")
        await until(lambda: "1 Agents" in screen_text(app), pilot)


# Without a screen


def test_what_makes_no_sense_in_the_file_is_as_at_first(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "layout.json")
    document = {
        "wide": {"rail": -3, "dock": True, "rail_hidden": "yes", "tab": "../x", "zoomed": 5},
        "large": {"rail": 40, "dock": 12, "rail_hidden": True, "tab": "logs", "zoomed": "feed", "new": 1},
        "columns": {"tab": "traces", "zoomed": "traces"},  # as the pane Credentials was called
        "small": 3,
        "other": {},
    }
    file.path.write_text(json.dumps(document))
    layouts = Layouts(file)
    assert layouts.load() == ""
    assert layouts.of("wide") == Layout()
    assert layouts.of("large") == Layout(40, 12, True, "logs", "feed")
    assert layouts.of("columns") == Layout(tab="credentials", zoomed="credentials")
    assert layouts.of("small") == Layout()
    file.path.write_text("[]")
    assert layouts.load() == "layout.json: does not hold an arrangement of panes; delete it"


def test_only_what_changed_is_written(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "layout.json")
    layouts = Layouts(file)
    layouts.load()
    layouts.save()
    assert not file.path.exists()
    layouts.keep("wide", Layout(rail=30))
    assert layouts.changed
    layouts.save()
    assert not layouts.changed
    again = Layouts(file)
    again.load()
    assert again.of("wide") == Layout(rail=30)


def test_folds_are_kept_and_what_is_no_name_is_left_out(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "layout.json")
    layouts = Layouts(file)
    layouts.folded = frozenset({"b", "a"})
    assert layouts.changed
    layouts.save()
    again = Layouts(file)
    again.load()
    assert again.folded == {"a", "b"}
    assert not again.changed
    file.path.write_text('{"folded": ["a", 3, null, ["b"]]}')
    again.load()
    assert again.folded == {"a"}
    file.path.write_text('{"folded": "ab"}')
    again.load()
    assert again.folded == frozenset()


def test_the_classes_of_sizes() -> None:
    sizes = ((99, 50), (100, 29), (100, 30), (160, 49), (160, 50), (179, 60), (180, 29), (180, 30), (240, 60))
    classes = ["small", "small", "wide", "wide", "large", "large", "small", "columns", "columns"]
    assert [size_class(*size) for size in sizes] == classes
    assert is_tiny(39, 20)
    assert is_tiny(60, 9)
    assert not is_tiny(40, 10)
