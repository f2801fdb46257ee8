"""Two runs of the feed are compared: one is marked, the other one opens their difference."""

from dataclasses import replace

import pytest
from support.fake_fleet import NOON, FakeFleet
from support.shell import screen_text, workbench
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input

from benchmarks.invented_runs import Call, Plot, Turn, long_plot, recorded
from pallas.model import RunFinished, RunStarted
from pallas_tui.app import Workbench
from pallas_tui.screens.main_screen import MainScreen
from pallas_tui.screens.run_screen import DiffScreen, RunScreen
from pallas_tui.widgets.diff import DiffPane
from pallas_tui.widgets.feed import FeedPane
from pallas_tui.widgets.folded_lines import FoldedLines

LAMPS = Call("find", {"what": "lamps"}, "three lamps")
PLOT = Plot("How many?", (Turn("I look.", (LAMPS,)), Turn("I look again.", (LAMPS,)), Turn("Three lamps.")))
OTHER = replace(
    PLOT,
    turns=(
        PLOT.turns[0],
        replace(PLOT.turns[1], calls=(replace(LAMPS, result="four lamps"), Call("lend", {"to": "me"}))),
        Turn("Four lamps."),
    ),
)


def fleet_of(*plots: Plot) -> FakeFleet:
    """A fleet that ran these, one after the other."""
    fleet = FakeFleet()
    for number, plot in enumerate(plots, 1):
        run = f"run-{number}"
        fleet.recordings[run] = recorded(plot, number)
        fleet.say(
            RunStarted(at=NOON + number, run_id=run, agent=plot.agent, preview=plot.question),
            RunFinished(at=NOON + number, run_id=run, agent=plot.agent, outcome="ok", seconds=0.5),
        )
    return fleet


async def at_run(app: Workbench, pilot: Pilot[None], run: str) -> FeedPane:
    """The feed with the cursor on a run."""
    if not isinstance(app.focused, Input | type(None)):
        await pilot.press("f4")
    else:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f4")
    pane = app.main.query_one(FeedPane)
    await until(lambda: pane.feed.run(run) is not None, pilot)
    found = pane.feed.run(run)
    assert found is not None
    pane.runs.go_to(found)
    return pane


async def opened(app: Workbench, pilot: Pilot[None]) -> DiffPane:
    """The difference of the first two runs, which has been read."""
    await at_run(app, pilot, "run-1")
    await pilot.press("d")
    await until(lambda: "d compares with research run-1" in screen_text(app), pilot)
    await at_run(app, pilot, "run-2")
    await pilot.press("d")
    await until(lambda: isinstance(app.screen, DiffScreen) and app.screen.query(DiffPane), pilot)
    pane = app.screen.query_one(DiffPane)
    await until(lambda: bool(pane.view.rows) or "could not" in pane.view.hint, pilot)
    return pane


def details(pane: DiffPane) -> str:
    view = pane.query_one(FoldedLines)
    return "\n".join(
        "".join(text for text, _ in view.line_at(index, 80)) for index in range(view.line_count())
    )


@pytest.mark.slow
async def test_a_marked_run_is_compared_with_another_one() -> None:
    app = workbench(fleet_of(PLOT, OTHER))
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await opened(app, pilot)
        text = screen_text(app)
        for words in (
            "- research run-1  5 steps,",
            "+ research run-2  6 steps,",
            "They differ first at step 3: model scripted",
            "~   3   3    model scripted  answer",
            "~   4   4      tool find  result",
            '+       5      tool lend  {"to": "me"}',
            "~   5   6    model scripted  answer",
            "= 2 steps",
            "5 differences",
        ):
            assert words in text, words
        # The cursor is where the runs diverge.
        await until(lambda: 'call lend {"to": "me"}' in details(pane), pilot)
        await pilot.press("n")
        await until(lambda: "[-three-]{+four+} lamps" in details(pane), pilot)
        await pilot.press("N", "N")
        await until(lambda: "run of research" in details(pane).split("\n")[0], pilot)
        # All steps, with the cursor on the same line.
        await pilot.press("o")
        await until(lambda: len(pane.view.rows) == 7, pilot)
        assert pane.view.cursor == 0
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, MainScreen), pilot)
        # The mark stays, for a third run, and is taken away on the run itself.
        assert app.main.query_one(FeedPane).runs.marked is not None
        feed = await at_run(app, pilot, "run-1")
        await pilot.press("d")
        await until(lambda: feed.runs.marked is None and "d compares" not in feed.caption, pilot)


@pytest.mark.slow
async def test_it_fits_a_small_terminal_and_is_copied() -> None:
    app = workbench(fleet_of(PLOT, OTHER))
    async with app.run_test(size=(80, 24)) as pilot:
        pane = await opened(app, pilot)
        await until(lambda: 'call lend {"to": "me"}' in details(pane), pilot)
        assert pane.text.region.y > pane.view.region.y
        assert pane.view.region.height >= 8
        assert pane.text.region.height >= 5
        text = screen_text(app)
        assert "~   3   3    model scripted  answer" in text
        assert 'call lend {"to": "me"}' in text
        await pilot.press("y")
        await until(lambda: 'call lend {"to": "me"}' in app.clipboard, pilot)
        assert app.clipboard.startswith("~ step 3: model scripted")


@pytest.mark.slow
async def test_a_run_is_marked_and_compared_on_its_own_screen_too() -> None:
    app = workbench(fleet_of(PLOT, OTHER))
    async with app.run_test(size=(100, 40)) as pilot:
        feed = await at_run(app, pilot, "run-1")
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, RunScreen), pilot)
        await pilot.press("d", "escape")
        await until(lambda: isinstance(app.screen, MainScreen), pilot)
        assert feed.runs.marked is feed.feed.run("run-1")
        await at_run(app, pilot, "run-2")
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, RunScreen), pilot)
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, DiffScreen), pilot)


@pytest.mark.slow
async def test_what_cannot_be_read_is_said_and_read_again() -> None:
    fleet = fleet_of(PLOT, PLOT)
    known = fleet.recordings.pop("run-2")
    app = workbench(fleet)
    async with app.run_test(size=(100, 40)) as pilot:
        pane = await opened(app, pilot)
        await until(lambda: "The runs could not be compared: run not found" in screen_text(app), pilot)
        fleet.recordings["run-2"] = known
        await pilot.press("r")
        await until(lambda: "Nothing differs but ids, tokens and time." in screen_text(app), pilot)
        assert pane.caption == "0 differences"


@pytest.mark.slow
async def test_long_runs_are_shown() -> None:
    plot = long_plot(200)
    app = workbench(fleet_of(plot, replace(plot, turns=plot.turns[1:])))
    async with app.run_test(size=(100, 40)) as pilot:
        pane = await opened(app, pilot)
        await pilot.press("o")
        await until(lambda: len(pane.view.rows) == 201, pilot)
