"""A run goes on from a step of another one: what is asked for, what the fleet is told, and what is shown."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_fleet import NOON, FakeFleet
from support.notices import notices_of
from support.offline import offline_project
from support.reloading import module
from support.shell import line_with, screen_text, workbench
from support.waiting import until
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from benchmarks.invented_runs import Call, Plot, Turn, recorded
from pallas.model import Fault, FaultType, RunFinished, RunStarted, StepDetail
from pallas_tui.app import Workbench
from pallas_tui.runs.fork_change import MAX_EDITED, fork_step
from pallas_tui.screens.main_screen import MainScreen
from pallas_tui.screens.run_screen import DiffScreen, RunScreen, StepScreen
from pallas_tui.widgets.dialogs.fork_dialog import ForkScreen
from pallas_tui.widgets.feed import FeedPane
from pallas_tui.widgets.feed.run_pane import RunPane

LAMPS = Call("find", {"what": "lamps"}, "three lamps")
PLOT = Plot("How many?", (Turn("I look.", (LAMPS,)), Turn("Three lamps.")))
OTHER = Plot("How many?", (Turn("I look.", (replace(LAMPS, result="four lamps"),)), Turn("Four lamps.")))
SIZE = (80, 24)


def fleet_of(plot: Plot = PLOT) -> FakeFleet:
    """A fleet that ran this."""
    fleet = FakeFleet()
    fleet.recordings["run-1"] = recorded(plot, 1)
    fleet.model_steps["run-1"] = fleet.recordings["run-1"].first.steps
    began(fleet, "run-1")
    ended(fleet, "run-1")
    return fleet


def began(fleet: FakeFleet, run: str, **more: str | int) -> None:
    fleet.say(RunStarted(at=NOON, run_id=run, agent="research", preview="How many?", **more))  # type: ignore[arg-type]


def ended(fleet: FakeFleet, run: str) -> None:
    fleet.say(RunFinished(at=NOON + 1, run_id=run, agent="research", outcome="ok", seconds=0.5))


def goes_on(fleet: FakeFleet, plot: Plot = OTHER) -> None:
    """The run begins that was asked for first."""
    fleet.recordings["fork-1"] = recorded(plot, 2)
    began(fleet, "fork-1", forked_from="run-1", forked_at=2, surface="fork")


async def at_step(app: Workbench, pilot: Pilot[None], number: int) -> RunPane:
    """The screen of the run, with the cursor on a step."""
    await until(lambda: isinstance(app.focused, Input), pilot)
    await pilot.press("f4")
    feed = app.main.query_one(FeedPane)
    await until(lambda: feed.feed.run("run-1") is not None, pilot)
    await pilot.press("enter")
    await until(lambda: isinstance(app.screen, RunScreen) and app.screen.query(RunPane), pilot)
    pane = app.screen.query_one(RunPane)
    await until(lambda: pane.rows.go_to_step(number), pilot)
    return pane


async def asking(app: Workbench, pilot: Pilot[None], number: int) -> ForkScreen:
    """The dialog of a step."""
    await at_step(app, pilot, number)
    await until(lambda: "F from here" in screen_text(app), pilot)
    await pilot.press("F")
    await until(lambda: isinstance(app.screen, ForkScreen) and app.screen.query("#fork-text"), pilot)
    assert isinstance(app.screen, ForkScreen)
    return app.screen


@pytest.mark.slow
async def test_a_call_has_another_result_and_both_runs_are_compared() -> None:
    fleet = fleet_of()
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        await asking(app, pilot, 2)
        text = screen_text(app)
        assert "From step 2: find" in text
        assert "three lamps" in line_with(app, "three")
        assert "[ ] Make the call again, instead of this result" in text
        assert "Nothing is called: this text is the result." in text
        await pilot.press(*["backspace"] * len("three lamps"), *"four", "alt+enter", *"lamps", "enter")
        await until(lambda: fleet.forks, pilot)
        assert fleet.forks == [("run-1", 2, "", "four\nlamps", "")]
        goes_on(fleet)
        await until(lambda: isinstance(app.screen, RunScreen) and app.screen.run.id == "fork-1", pilot)
        await until(lambda: "forked from   run-1 at step 2" in screen_text(app), pilot)
        ended(fleet, "fork-1")
        await until(lambda: isinstance(app.screen, DiffScreen), pilot)
        await until(lambda: "They differ first at step 2: tool find" in screen_text(app), pilot)
        assert "- research run-1" in screen_text(app)
        assert "+ research fork-1" in screen_text(app)
        # One step back each: the new run, the first one, the feed with its details.
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, RunScreen) and app.screen.run.id == "fork-1", pilot)
        await pilot.press("i")
        await until(lambda: "forked from run-1 at step 2" in screen_text(app), pilot)
        await pilot.press("escape", "escape")
        await until(lambda: isinstance(app.screen, RunScreen) and app.screen.run.id == "run-1", pilot)


@pytest.mark.slow
async def test_an_unchanged_result_calls_nothing_and_a_call_is_made_only_if_it_is_chosen() -> None:
    fleet = fleet_of()
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        await asking(app, pilot, 2)
        await pilot.press("enter")
        await until(lambda: fleet.forks, pilot)
        await until(lambda: isinstance(app.screen, RunScreen), pilot)
        await pilot.press("F")
        await until(lambda: isinstance(app.screen, ForkScreen) and app.screen.query("#fork-text"), pilot)
        await pilot.press("ctrl+r")
        await until(lambda: "[x] Make the call again" in screen_text(app), pilot)
        assert "find is called for real, with the arguments of step 2." in screen_text(app)
        await pilot.press("space")
        await until(lambda: "[ ] Make the call again" in screen_text(app), pilot)
        await pilot.click("#fork-again")
        await until(lambda: "[x] Make the call again" in screen_text(app), pilot)
        await pilot.press("enter")
        await until(lambda: len(fleet.forks) == 2, pilot)
    assert fleet.forks == [("run-1", 2, "", "three lamps", ""), ("run-1", 2, "", None, "")]


@pytest.mark.slow
async def test_a_question_and_a_model_are_other_ones_and_what_is_not_changed_is_not_sent() -> None:
    fleet = fleet_of()
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        await asking(app, pilot, 1)
        assert "How many?" in line_with(app, "│  How")
        assert "as it was: scripted" in screen_text(app)
        await pilot.press("tab", *"gpt-5", "enter")
        await until(lambda: fleet.forks, pilot)
        await until(lambda: isinstance(app.screen, RunScreen), pilot)
        await pilot.press("F")
        await until(lambda: isinstance(app.screen, ForkScreen) and app.screen.query("#fork-text"), pilot)
        await pilot.press(*["backspace"] * len("How many?"), "enter")
        await until(lambda: "A question is missing" in screen_text(app), pilot)
        assert isinstance(app.screen, ForkScreen)
        await pilot.press(*"Why?", "enter")
        await until(lambda: len(fleet.forks) == 2, pilot)
    assert fleet.forks == [("run-1", 1, "", None, "gpt-5"), ("run-1", 1, "Why?", None, "")]


async def test_escape_leaves_and_nothing_goes_on() -> None:
    fleet = fleet_of()
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        dialog = await asking(app, pilot, 2)
        # Keys typed at once act in their order.
        for key in ("backspace", "backspace", "x", "home", "y"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await until(lambda: dialog.query_one(TextArea).text == "ythree lamx", pilot)
        await pilot.press("ctrl+r", "escape")
        await until(lambda: isinstance(app.screen, RunScreen), pilot)
        assert fleet.forks == []


@pytest.mark.slow
async def test_who_looks_at_something_else_is_told() -> None:
    fleet = fleet_of()
    app = workbench(fleet)
    async with app.run_test(size=(120, 40)) as pilot:
        await asking(app, pilot, 2)
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, RunScreen), pilot)
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, StepScreen), pilot)
        goes_on(fleet)
        await until(lambda: "research run fork-1 continues from step 2 of run-1." in told(app), pilot)
        assert isinstance(app.screen, StepScreen)
        ended(fleet, "fork-1")
        over = "research run fork-1, from step 2 of run-1: ok after 0.5 s. d on it compares it with run-1."
        await until(lambda: over in told(app), pilot)
        assert isinstance(app.screen, StepScreen)
        await pilot.press("escape", "escape")
        await until(lambda: isinstance(app.screen, MainScreen), pilot)
        feed = app.main.query_one(FeedPane)
        fork = feed.feed.run("fork-1")
        assert fork is not None
        feed.runs.go_to(fork)
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, DiffScreen), pilot)


def told(app: Workbench) -> list[str]:
    return [each.message for each in notices_of(app)]


async def test_a_step_that_no_run_goes_on_from_and_a_refusal_say_why() -> None:
    fleet = fleet_of(Plot("How many?", (Turn("I look.", (LAMPS,)), Turn("Three lamps."))))
    recording = fleet.recordings["run-1"]
    first = recording.first
    summary = StepDetail(replace(first.steps[2].step, kind="compaction", name=""), "{}", "{}")
    steps = (*first.steps[:2], summary)
    fleet.recordings["run-1"] = replace(recording, runs=(replace(first, steps=steps),))
    app = workbench(fleet)
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await at_step(app, pilot, 3)
        await pilot.press("F")
        why = (
            "run run-1: no run can continue from step 3, of kind compaction; take a question of research to "
            "its model (1), or one of its calls"
        )
        await until(lambda: why in told(app), pilot)
        assert isinstance(app.screen, RunScreen)
        assert pane.rows.go_to_step(1)
        fleet.refusal = Fault(FaultType.TRANSPORT, "the fleet is stopping; try again when it is back")
        await pilot.press("F")
        await until(lambda: isinstance(app.screen, ForkScreen) and app.screen.query("#fork-text"), pilot)
        await pilot.press("enter")
        refused = "No run can continue from step 1 of run-1: the fleet is stopping; try again when it is back"
        await until(lambda: refused in told(app), pilot)
        del fleet.recordings["run-1"]
        await pilot.press("F")
        await until(lambda: any("run not found" in each for each in told(app)), pilot)
        fleet.can_control = False
        await pilot.press("F")
        await until(lambda: "read-only: this token may only read" in told(app), pilot)
        # Nothing else on the screen can be gone on from.
        pane.rows.action_move_to(0)
        await until(lambda: "from here" not in screen_text(app), pilot)


async def test_a_question_that_cannot_be_changed_says_why() -> None:
    fleet = fleet_of()
    recording = fleet.recordings["run-1"]
    given = replace(recording.first, params={"messages": [{"role": "user", "content": "How many?"}]})
    fleet.recordings["run-1"] = replace(recording, runs=(given,))
    app = workbench(fleet)
    async with app.run_test(size=SIZE) as pilot:
        dialog = await asking(app, pilot, 1)
        await until(lambda: "whole conversation as" in screen_text(app), pilot)
        assert app.focused is dialog.query_one(Input)
        await pilot.press(*"gpt-5", "enter")
        await until(lambda: fleet.forks, pilot)
    assert fleet.forks == [("run-1", 1, "", None, "gpt-5")]


@pytest.mark.parametrize(
    ("response", "result", "remark"),
    [
        ('{"content": [{"type": "text", "text": "a\\u001b[2J"}]}', "a␛[2J", ""),
        (
            '{"content": [{"type": "text", "text": "a"}, {"type": "image", "data": "x", "mimeType": "i"}]}',
            "a",
            "Pictures and data of the recorded result are not in it.",
        ),
        ("", "it broke", ""),
        (
            f'{{"content": [{{"type": "text", "text": "{"x" * (MAX_EDITED + 1)}"}}]}}',
            "",
            "The recorded one has 100001 characters, too many to edit here: write another one.",
        ),
    ],
)
def test_the_recorded_result_is_text_to_edit(response: str, result: str, remark: str) -> None:
    recording = recorded(PLOT, 1)
    steps = list(recording.first.steps)
    steps[1] = replace(steps[1], step=replace(steps[1].step, fault="it broke"), response=response)
    found = fork_step(replace(recording, runs=(replace(recording.first, steps=tuple(steps)),)), 2)
    assert (found.result, found.remark) == (result, remark)


SCRIPT = """
rules:
  - when: {system: You are brief.}
    say: "Three."
  - say: "Three lamps."
"""


def commit(root: Path) -> None:
    """Make the project a repository of git."""
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "brief")):
        own = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
        subprocess.run(["git", *own, *words], cwd=root, check=True, capture_output=True, timeout=60)


@pytest.mark.slow
async def test_another_version_of_the_project_goes_on_beside_the_fleet(tmp_path: Path) -> None:
    root = offline_project(tmp_path / "p", {"research": module("research", "You are brief.")}, SCRIPT)
    commit(root)
    (root / "agents" / "research.py").write_text(module("research", "You are long-winded."))
    fleet = fleet_of()
    app = workbench(fleet, root=root)
    async with app.run_test(size=(120, 40)) as pilot:
        await asking(app, pilot, 1)
        await pilot.press("tab", "tab", *"HEAD", "enter")
        await until(lambda: isinstance(app.screen, DiffScreen), pilot)
        assert "asked for real" in screen_text(app)
        await until(lambda: "from step 1 on with version" in screen_text(app), pilot, timeout=200)
        assert "+ from step 1 with HEAD" in screen_text(app)
        assert "You are [-a helpful agent-]{+brief+}." in screen_text(app)
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, RunScreen), pilot)
        await pilot.press("F")
        await until(lambda: isinstance(app.screen, ForkScreen) and app.screen.query("#fork-text"), pilot)
        await pilot.press("tab", "tab", *"nosuch", "enter")
        await until(lambda: "The run could not go on: version: nosuch is no" in screen_text(app), pilot)
    assert fleet.forks == []


async def test_another_version_needs_the_project() -> None:
    fleet = fleet_of()
    app = workbench(fleet)
    async with app.run_test(size=(120, 40)) as pilot:
        await asking(app, pilot, 2)
        await pilot.press("tab", "tab", *"HEAD", "enter")
        refused = "Another version runs beside the workbench"
        await until(lambda: any(refused in each for each in told(app)), pilot)
        assert isinstance(app.screen, RunScreen)
    assert fleet.forks == []
