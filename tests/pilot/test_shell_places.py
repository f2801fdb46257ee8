"""Where the panes are, how one gets from one to the other, and how one leaves."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_fleet import NOON, FakeFleet, desk
from support.notices import noticed, notices_of
from support.shell import FakeChat, screen_text, workbench
from support.waiting import until
from textual.events import AppBlur, AppFocus
from textual.widgets import Input

from pallas.model import AgentState, FleetSnapshot, FleetState
from pallas_tui.actions import ACTIONS
from pallas_tui.palette import commands
from pallas_tui.screens.help_screen import HelpScreen
from pallas_tui.screens.sheet_screen import TextScreen
from pallas_tui.settings import Settings, load_settings
from pallas_tui.widgets.agents.agent_tree import AgentTree
from pallas_tui.widgets.feed import FeedPane
from pallas_tui.widgets.start_failure import Failure
from pallas_tui.widgets.status_line import QuestionLine, StatusLine

WIDE = (120, 40)
SMALL = (80, 24)


async def test_the_screen_stands_before_the_fleet_is_made_and_the_fleet_is_started_once() -> None:
    fleet = FakeFleet()
    seen: list[str] = []

    def make() -> FakeFleet:
        seen.append(screen_text(app))
        return fleet

    app = workbench(make)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: fleet.started == 1, pilot)
        assert "1 Agents" in seen[0]
        assert "starting" in seen[0]
        await until(lambda: ":24201" in screen_text(app), pilot)
        assert fleet.started == len(seen) == 1


async def test_what_the_start_made_is_settled_once_when_the_fleet_runs() -> None:
    fleet = FakeFleet(replace(desk(), state=FleetState.STARTING))
    settled: list[int] = []
    app = workbench(fleet, settle=lambda: settled.append(1))
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: ":24201" in screen_text(app), pilot)
        assert settled == []
        fleet.current = desk()
        await until(lambda: settled == [1], pilot)
        fleet.change("vision", runs_active=1)
        await until(lambda: "1 run" in screen_text(app).splitlines()[0], pilot)
        assert settled == [1]


async def test_a_large_terminal_shows_all_places_and_a_small_one_shows_one() -> None:
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input) and ":24201" in screen_text(app), pilot)
        for text in ("1 Agents", "2 Chat", "3 Feed", "4 Logs", ":24201", "No calls yet"):
            assert text in screen_text(app)
        await pilot.resize_terminal(*SMALL)
        await until(lambda: "1 Agents" not in screen_text(app), pilot)
        assert "A conversation stands here." in screen_text(app)
        assert "No calls yet" not in screen_text(app)
        assert "desk" in screen_text(app).splitlines()[0]


async def test_the_pane_of_a_small_terminal_stays_when_it_grows() -> None:
    app = workbench()
    async with app.run_test(size=SMALL) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f5")
        await until(lambda: app.main.current == "logs", pilot)
        await pilot.resize_terminal(*WIDE)
        await until(lambda: app.main.visible_panes() == {"agents", "chat", "logs"}, pilot)
        assert app.main.current == "logs"


@pytest.mark.slow
async def test_digits_and_function_keys_go_to_each_pane() -> None:
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        for size in (WIDE, SMALL):
            await pilot.resize_terminal(*size)
            for key, pane in (
                ("f2", "agents"),
                ("3", "feed"),
                ("4", "logs"),
                ("1", "agents"),
                ("f4", "feed"),
            ):
                await pilot.press(key)
                await until(lambda pane=pane: app.main.current == pane, pilot)
                shown = app.main.query_one(f"#{pane}")
                await until(lambda shown=shown: shown.is_showing, pilot)  # type: ignore[attr-defined]


async def test_a_digit_in_a_line_of_text_is_text_and_escape_leaves_the_line_but_never_quits() -> None:
    app = workbench()
    async with app.run_test(size=SMALL) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("3")
        prompt = app.main.query_one("#prompt", Input)
        assert prompt.value == "3"
        await pilot.press("escape")
        assert app.focused is not prompt
        await pilot.press("escape", "escape", "3")
        assert app.main.current == "feed"
        assert app.is_running


async def test_a_hidden_pane_gets_every_frame_and_knows_that_it_is_hidden() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        chat = app.main.query_one(FakeChat)
        await pilot.press("f4")
        assert chat.shown == [True, False]
        before = len(chat.frames)
        fleet.change("vision", runs_total=9)
        await until(lambda: len(chat.frames) > before, pilot)
        assert not chat.is_showing
        await pilot.press("f3")
        assert chat.is_showing


@pytest.mark.slow
async def test_zoom_gives_one_pane_the_screen_and_escape_takes_it_back() -> None:
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f4", "z")
        await until(lambda: "A conversation" not in screen_text(app), pilot)
        assert "1 Agents" not in screen_text(app)
        assert "zoomed" in screen_text(app).splitlines()[1]
        await pilot.press("escape")
        await until(lambda: "1 Agents" in screen_text(app), pilot)
        assert "zoomed" not in screen_text(app)
        # The agents get the width of the screen too.
        rail, details = app.main.query_one("#rail"), app.main.query_one("#agent-details")
        await pilot.press("f2", "greater_than_sign", "z")
        await until(lambda: rail.outer_size.width == WIDE[0], pilot)
        assert details.region.y == app.main.query_one("#agent-list").region.y  # beside it
        await pilot.press("f4")
        await until(lambda: not rail.display, pilot)
        await pilot.press("f2", "z")
        await until(lambda: rail.outer_size.width == 34, pilot)


@pytest.mark.slow
async def test_dock_and_rail_change_size_within_bounds_and_the_rail_can_go() -> None:
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f4")
        dock, rail = app.main.query_one("#dock"), app.main.query_one("#rail")
        before = dock.size.height
        await pilot.press("plus")
        await until(lambda: dock.size.height == before + 2, pilot)
        for _ in range(20):
            await pilot.press("minus")
        await until(lambda: dock.size.height == 5, pilot)
        await pilot.press("greater_than_sign")
        await until(lambda: rail.outer_size.width == 34, pilot)
        await pilot.press("b")
        await until(lambda: "1 Agents" not in screen_text(app), pilot)
        await pilot.press("1")
        await until(lambda: "1 Agents" in screen_text(app), pilot)


@pytest.mark.slow
async def test_every_action_is_in_the_palette_also_those_of_other_panes_and_it_runs_them() -> None:
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        found = {command.title: command for command in commands(app, app.screen)}
        for action in ACTIONS:
            if action.scope in ("app", "agents", "feed"):
                assert action.title in found
                assert found[action.title].help
        fresh = next(action.title for action in ACTIONS if action.id == "chat.new")
        assert fresh in found
        await pilot.press("f2")
        await found[fresh].run()
        assert app.main.query_one(FakeChat).fresh == 1
        assert app.main.current == "chat"
        await pilot.press("ctrl+p", *"dark or", "enter")
        await until(lambda: app.theme == "textual-light", pilot)


@pytest.mark.slow
async def test_help_tells_what_the_focused_pane_is_and_its_keys_and_does_not_pile_up() -> None:
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f4", "question_mark")
        await until(lambda: "Every call of every agent" in screen_text(app), pilot)
        assert isinstance(app.screen, HelpScreen)
        text = screen_text(app)
        assert "Ask for the selected run to stop" not in text  # nothing runs
        assert "Show or hide its steps" in text
        # Panes do not change below it, and help above help does not pile up.
        await pilot.press("2", "z")
        assert isinstance(app.screen, HelpScreen)
        assert app.main.current == "feed"
        await pilot.press("f1")
        await until(lambda: app.screen is app.main, pilot)
        await pilot.press("f3", "f1")
        await until(lambda: "Talk to agents here." in screen_text(app), pilot)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main, pilot)


async def test_keys_are_the_users_to_change() -> None:
    app = workbench(settings=Settings("textual-dark", False, {"show.feed": "f6", "help": "ctrl+g"}))
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f4")
        assert app.main.current == "chat"
        await pilot.press("f6")
        assert app.main.current == "feed"
        await pilot.press("ctrl+g")
        await until(lambda: isinstance(app.screen, HelpScreen), pilot)


@pytest.mark.slow
async def test_an_action_is_put_on_another_key_in_the_settings_file(tmp_path: Path) -> None:
    home = tmp_path / "workbench.yaml"
    home.write_text("keys: {zoom: Z, show.threads: alt+a, list.last: ctrl+e, sheet.leave: X}\n")
    app = workbench(home=home, settings=load_settings(home))
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: ":24201" in screen_text(app), pilot)
        await pilot.press("f2", "z")
        await until(lambda: app.main.current == "agents", pilot)
        assert "New conversation" not in screen_text(app)
        assert "1 Agents" in screen_text(app) and "3 Feed" in screen_text(app)  # the old key zooms no longer
        assert "Z zoom" in screen_text(app).splitlines()[-1]
        await pilot.press("Z")
        await until(lambda: "3 Feed" not in screen_text(app), pilot)
        await pilot.press("Z")
        await until(lambda: "3 Feed" in screen_text(app), pilot)
        rows = app.main.query_one(AgentTree)
        await pilot.press("home", "end")
        assert rows.cursor == 0
        await pilot.press("ctrl+e")
        assert rows.cursor == rows.line_count() - 1
        await pilot.press("f1")
        await until(lambda: isinstance(app.screen, HelpScreen), pilot)
        await pilot.press("G")
        await until(lambda: re.search(r"  Z {10,}Show the focused pane", screen_text(app)), pilot)
        await pilot.press("escape", "q")
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("X")
        await until(lambda: app.screen is app.main, pilot)


async def test_the_title_of_a_screen_has_the_key_that_its_user_chose() -> None:
    app = workbench(settings=Settings(keys={"show.instances": "alt+i", "show.feed": "alt+f,f4"}))
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: "alt+f Feed" in screen_text(app), pilot)
        await pilot.press("alt+i")
        await until(lambda: "alt+i Instances" in screen_text(app), pilot)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main, pilot)
        app.keep_setting("keys", {"show.feed": "alt+g"})
        await until(lambda: "alt+g Feed" in screen_text(app), pilot)


async def test_an_unknown_action_and_a_key_that_is_taken_are_told_at_the_start(tmp_path: Path) -> None:
    home = tmp_path / "workbench.yaml"
    home.write_text("keys: {feed.folow: e, jump: b}\n")
    app = workbench(home=home, settings=load_settings(home))
    async with app.run_test(size=WIDE) as pilot:
        await noticed(app, pilot, "keys: feed.folow: no such action; did you mean feed.follow?")
        await noticed(
            app,
            pilot,
            "keys: jump: b is the key of rail.toggle; choose another key, or another one for rail.toggle",
        )


async def test_mistakes_in_the_settings_are_told_and_the_rest_holds() -> None:
    keys = {"chat.neu": "f7", "chat.new": "f6"}
    settings = Settings("no-such-theme", False, keys, mistakes=("workbench.yaml: colour: unknown",))
    app = workbench(settings=settings)
    async with app.run_test(size=WIDE) as pilot:
        await noticed(app, pilot, "workbench.yaml: colour: unknown")
        await noticed(app, pilot, "no such theme: no-such-theme")
        await noticed(app, pilot, "chat.neu: no such action; did you mean")
        await until(lambda: app.main.query_one("#prompt").has_focus, pilot)
        await pilot.press("f6")
        assert app.main.query_one(FakeChat).fresh == 1


async def test_the_bottom_line_offers_the_keys_that_work_now_and_can_be_clicked() -> None:
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: "f2-f6 panes" in screen_text(app).splitlines()[-1], pilot)
        await pilot.press("f4")
        await until(lambda: "12345 panes" in screen_text(app).splitlines()[-1], pilot)
        bottom = screen_text(app).splitlines()[-1]
        assert "follow" in bottom
        assert "cancel" not in bottom
        await pilot.click("#status", offset=(bottom.index("12345"), 0))
        await until(lambda: app.main.current == "agents", pilot)
        await pilot.click("#dock-title", offset=(11, 0))
        await until(lambda: app.main.current == "logs", pilot)
        last = app.main.query_one("#status")
        await until(lambda: last.region.width and "12345" in screen_text(app).splitlines()[-1], pilot)
        bottom = screen_text(app).splitlines()[-1]
        await pilot.click("#status", offset=(bottom.index("12345") + 4, 0))
        await until(lambda: app.main.current == "credentials", pilot)


async def test_at_80_columns_the_keys_of_the_pane_and_of_the_panes_all_have_room() -> None:
    app = workbench()
    async with app.run_test(size=SMALL) as pilot:
        await until(lambda: "f2-f6 panes" in screen_text(app).splitlines()[-1], pilot)
        await pilot.press("f4")
        await until(lambda: "12345 panes" in screen_text(app).splitlines()[-1], pilot)
        bottom = screen_text(app).splitlines()[-1]
        assert all(word in bottom for word in ("^q quit", "f1 help", "z zoom")), bottom
        # What the pane does stands first, as much of it as there is room for.
        assert bottom.index("^q quit") > 24


# Leaving


@pytest.mark.slow
async def test_ctrl_q_quits_at_once_when_nothing_runs() -> None:
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("ctrl+q")
        await until(lambda: app.return_value == 0, pilot)


async def test_ctrl_c_quits_only_when_pressed_twice() -> None:
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("ctrl+c")
        await noticed(app, pilot, "ctrl+c again")
        assert app.return_value is None
        await pilot.press("ctrl+c")
        await until(lambda: app.return_value == 0, pilot)


async def test_with_runs_in_flight_quitting_asks_once_and_the_last_ones_end_answers_it() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        fleet.change("concierge", runs_active=2)
        lines = len(screen_text(app).splitlines())
        await pilot.press("ctrl+q")
        await until(lambda: "2 runs are in flight" in screen_text(app).splitlines()[lines - 1], pilot)
        await pilot.press("n")
        await until(lambda: "in flight" not in screen_text(app), pilot)
        assert isinstance(app.focused, Input)
        # Who said no stays when the runs end.
        fleet.change("concierge", runs_active=0)
        await until(lambda: " 0 runs" in screen_text(app).splitlines()[0], pilot)
        assert app.return_value is None
        assert not app.main.asking
        # The question follows the runs.
        fleet.change("concierge", runs_active=2)
        await pilot.press("ctrl+q")
        await until(lambda: "2 runs are in flight" in screen_text(app), pilot)
        fleet.change("concierge", runs_active=1)
        await until(lambda: "1 run is in flight" in screen_text(app), pilot)
        assert app.return_value is None
        fleet.change("concierge", runs_active=0)
        await until(lambda: app.return_value == 0, pilot)


@pytest.mark.slow
async def test_a_question_survives_another_window_and_only_yes_is_an_answer_to_it() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        fleet.change("concierge", runs_active=2)
        await pilot.press("ctrl+q")
        await until(lambda: isinstance(app.focused, QuestionLine), pilot)
        app.post_message(AppBlur())
        await until(lambda: app.focused is None, pilot)
        app.post_message(AppFocus())
        await until(lambda: isinstance(app.focused, QuestionLine), pilot)
        assert "2 runs are in flight" in screen_text(app)
        await pilot.press("n")
        await until(lambda: isinstance(app.focused, Input), pilot)
        assert app.return_value is None
        # Who looks at something else meanwhile has not said yes.
        await pilot.press("ctrl+q")
        await until(lambda: app.main.asking, pilot)
        await pilot.press("f1")
        await until(lambda: app.screen is not app.main, pilot)
        await until(lambda: not app.main.asking, pilot)
        fleet.change("concierge", runs_active=0)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main, pilot)
        await until(lambda: " 0 runs" in screen_text(app).splitlines()[0], pilot)
        await until(lambda: isinstance(app.focused, Input), pilot)
        assert app.return_value is None
        # Nor has who goes to another pane.
        fleet.change("concierge", runs_active=1)
        await pilot.press("ctrl+q")
        await until(lambda: app.main.asking, pilot)
        await pilot.press("f2")
        await until(lambda: not app.main.asking, pilot)
        assert app.main.current == "agents"
        assert "panes" in screen_text(app).splitlines()[-1]
        await pilot.press("ctrl+q", "y")
        await until(lambda: app.return_value == 0, pilot)


@pytest.mark.slow
async def test_no_key_on_the_bottom_line_stands_without_its_word() -> None:
    app = workbench()
    async with app.run_test(size=(60, 20)) as pilot:
        await until(lambda: isinstance(app.focused, Input) and "f2" in screen_text(app), pilot)
        whole = app.main.query_one(StatusLine)
        for width in range(40, 60):
            await pilot.resize_terminal(width, 20)
            await until(lambda width=width: whole.size.width == width, pilot)
            await pilot.pause()
            line = screen_text(app).splitlines()[-1]
            assert ("f2" in line) == ("panes" in line), line


async def test_quitting_from_a_sheet_with_runs_in_flight_still_asks() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        fleet.change("concierge", runs_active=1)
        await pilot.press("f1", "ctrl+q")
        await until(lambda: app.main.asking.startswith("1 run is in flight"), pilot)
        await pilot.press("ctrl+q")
        await until(lambda: app.return_value == 0, pilot)


# A fleet that cannot start

MISTAKES = "agents.yaml:3: prot: unknown key; did you mean port\nagents.yaml:9: port: 24201 is used twice"


def broken() -> FleetSnapshot:
    return FleetSnapshot("desk", FleetState.FAILED, NOON, "", error=MISTAKES)


async def test_every_mistake_is_shown_in_full_with_what_to_do() -> None:
    app = workbench(FakeFleet(broken()))
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Failure), pilot)
        for size in (WIDE, SMALL):
            await pilot.resize_terminal(*size)
            for line in ("The fleet could not start", *MISTAKES.splitlines(), "2 mistakes"):
                await until(lambda line=line: line in screen_text(app), pilot)
            for line in ("press r to try again", "did not start"):
                await until(lambda line=line: line in screen_text(app), pilot)


async def test_after_mending_the_project_r_starts_it_without_leaving() -> None:
    fleets = [FakeFleet(broken()), FakeFleet()]
    settled: list[FleetState] = []
    app = workbench(
        lambda: fleets[len(started)],
        settle=lambda: settled.append(fleets[len(started)].current.state),
    )
    started: list[int] = []
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Failure), pilot)
        assert settled == [FleetState.FAILED]
        started.append(1)
        await pilot.press("r")
        await until(lambda: ":24201" in screen_text(app), pilot)
        assert settled == [FleetState.FAILED, FleetState.RUNNING]
        assert (fleets[0].stopped, fleets[1].started) == (1, 1)
        await until(lambda: isinstance(app.focused, Input), pilot)
        assert app.fleet is fleets[1]


async def test_a_fleet_that_cannot_even_be_made_is_told_and_the_workbench_lives() -> None:
    def make() -> FakeFleet:
        raise RuntimeError("no room left")

    app = workbench(make)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: "RuntimeError: no room left" in screen_text(app), pilot)
        assert app.is_running


async def test_the_start_of_each_agent_is_visible_step_by_step() -> None:
    snapshot = replace(desk(), state=FleetState.STARTING)
    fleet = FakeFleet(snapshot)
    for name, state in (
        ("concierge", AgentState.WAITING),
        ("research", AgentState.IMPORTING),
        ("engineering", AgentState.CONNECTING),
    ):
        fleet.change(name, state=state, since=NOON - 3)
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: "import 3 s" in screen_text(app), pilot)
        text = screen_text(app)
        assert "waiting" in text
        assert "connect 3 s" in text
        assert "3 starting" in text
        fleet.change("research", state=AgentState.READY)
        await until(lambda: ":24202" in screen_text(app), pilot)


@pytest.mark.slow
async def test_a_pane_that_breaks_ends_the_workbench_without_showing_local_variables(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    with pytest.raises(ValueError, match="broken pane"):
        async with app.run_test(size=WIDE) as pilot:
            await until(lambda: isinstance(app.focused, Input), pilot)

            def fail(frame: object) -> None:
                secret = "sk-do-not-show"  # noqa: F841
                raise ValueError("broken pane")

            app.main.query_one(FeedPane).absorb = fail  # type: ignore[assignment]
            fleet.change("vision", runs_total=5)
            await until(lambda: app.failure is not None, pilot)
    assert isinstance(app.failure, ValueError)
    assert "sk-do-not-show" not in "".join(capsys.readouterr())


async def test_the_sheet_with_a_whole_story_can_be_left_with_escape() -> None:
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await until(lambda: ":24201" in screen_text(app), pilot)
        await pilot.press("f2", "i")
        await until(lambda: isinstance(app.screen, TextScreen), pilot)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main, pilot)


async def test_what_is_selected_with_the_mouse_is_copied_with_a_word() -> None:
    app = workbench(FakeFleet())
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: ":24202" in screen_text(app), pilot)
        await pilot.press("f1")
        await until(lambda: isinstance(app.screen, HelpScreen), pilot)
        await pilot.mouse_down(offset=(20, 10))
        await pilot.hover(offset=(40, 20))
        await pilot.mouse_up(offset=(40, 20))
        await pilot.pause()
        assert app.screen.get_selected_text()
        await pilot.press("ctrl+c")
        await until(lambda: any(note.message.startswith("Copied ") for note in notices_of(app)), pilot)
        assert app.clipboard
