"""The feed as a tree with bars on the screen: runs within calls, the filter, and who comes from elsewhere."""

from collections.abc import Iterator

import pytest
from support.fake_fleet import NOON, FakeFleet
from support.shell import screen_text, workbench
from support.waiting import until
from textual.widgets import Input, Static

from pallas.model import Event, RunFinished, RunStarted, ToolEvent
from pallas_tui.app import Workbench
from pallas_tui.targets import Reveal, RunTarget
from pallas_tui.widgets.feed import FeedPane

SMALL = (80, 24)
LARGE = (160, 40)


def begin(run: str, agent: str = "concierge", parent: str = "", at: float = NOON) -> RunStarted:
    return RunStarted(
        at=at, run_id=run, agent=agent, preview=f"message {run}", trace_id="ab" * 16, parent_span=parent
    )


def call(run: str, agent: str, span: str, phase: str = "started", at: float = NOON) -> ToolEvent:
    ids = {"run_id": run, "agent": agent, "call_id": f"{run}.{span}", "span_id": span}
    return ToolEvent(at=at, server="research", tool="send_message", phase=phase, **ids)  # type: ignore[arg-type]


def end(run: str, agent: str, at: float, seconds: float) -> RunFinished:
    return RunFinished(at=at, run_id=run, agent=agent, outcome="ok", seconds=seconds)


def delegation() -> Iterator[Event]:
    """Ten seconds, of which another agent took the second half."""
    yield begin("top", at=NOON - 10)
    yield call("top", "concierge", "c1", at=NOON - 5)
    yield begin("mid", "research", "c1", at=NOON - 5)
    yield end("mid", "research", NOON, 5.0)
    yield call("top", "concierge", "c1", "completed", at=NOON)
    yield end("top", "concierge", NOON, 10.0)


async def feed_of(app: Workbench, pilot: object) -> FeedPane:
    await until(lambda: isinstance(app.focused, Input), pilot)  # type: ignore[arg-type]
    await pilot.press("f4")  # type: ignore[attr-defined]
    pane = app.main.query_one(FeedPane)
    await until(lambda: app.focused is pane.runs, pilot)  # type: ignore[arg-type]
    return pane


def line_with(app: Workbench, text: str) -> str:
    return next(line for line in screen_text(app).splitlines() if text in line)


async def test_where_there_is_room_bars_show_when_each_part_was() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=LARGE) as pilot:
        pane = await feed_of(app, pilot)
        fleet.say(*delegation())
        await until(lambda: "message mid" in screen_text(app), pilot)
        top, mid = (line_with(app, f"message {run}") for run in ("top", "mid"))
        assert top.count("█") == 2 * mid.count("█") + mid.count("▐") > 10
        assert top.index("█") < mid.index("█")
        assert top.rindex("█") == mid.rindex("█")
        assert top.index("10.0 s") == mid.index(" 5.0 s")
        # Unfolding and folding the inner one leaves the outer one as it is.
        await pilot.press("up", "up", "up", "left")
        assert pane.runs.selected is not None
        await until(lambda: "message mid" not in screen_text(app), pilot)
        await pilot.press("space")
        await until(lambda: "message mid" in screen_text(app), pilot)


async def test_in_a_narrow_terminal_there_are_no_bars_and_the_words_stay() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=(60, 20)) as pilot:
        await feed_of(app, pilot)
        fleet.say(*delegation())
        await until(lambda: "research" in screen_text(app), pilot)
        assert "█" not in screen_text(app)
        assert "5.0 s ● ok" in line_with(app, "▾ research")


async def test_a_run_that_its_call_turns_up_for_later_moves_below_it() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        pane = await feed_of(app, pilot)
        fleet.say(begin("mid", "research", "c1"), begin("top"))
        await until(lambda: len(pane.feed.roots) == 2 and "message top" in screen_text(app), pilot)
        fleet.say(call("top", "concierge", "c1"))
        await until(lambda: "└ ▾ research message mid" in screen_text(app), pilot)
        lines = screen_text(app).splitlines()
        assert lines.index(line_with(app, "message top")) < lines.index(line_with(app, "message mid"))


@pytest.mark.slow
async def test_a_mistake_in_the_filter_is_told_in_place_and_changes_nothing() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        pane = await feed_of(app, pilot)
        fleet.say(begin("other", "vision"), *delegation())
        await until(lambda: "message other" in screen_text(app), pilot)
        await pilot.press("slash", *"agent:research")
        await until(lambda: "message other" not in screen_text(app), pilot)
        assert "message top" in screen_text(app)  # the other stands within it
        await pilot.press("ctrl+u", *"agnt:x")
        await until(lambda: "no field agnt:" in screen_text(app), pilot)
        assert "message other" not in screen_text(app)
        await pilot.press("ctrl+u", *"-agent:con")
        await until(lambda: "message other" in screen_text(app), pilot)
        assert not pane.query_one("#feed-mistake", Static).display
        assert "message mid" not in screen_text(app)
        await pilot.press("escape")
        await until(lambda: "message mid" in screen_text(app), pilot)


@pytest.mark.slow
async def test_a_run_is_revealed_from_elsewhere_through_folds_and_filters() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        pane = await feed_of(app, pilot)
        fleet.say(*delegation())
        for number in range(40):
            fleet.say(begin(f"r{number}", "vision", at=NOON + 1), end(f"r{number}", "vision", NOON + 1, 0.1))
        await until(lambda: "message r39" in screen_text(app), pilot)
        await pilot.press("slash", *"agent:vision", "enter", "f2")
        app.main.post_message(Reveal(RunTarget("mid")))
        await until(lambda: app.focused is pane.runs, pilot)
        await until(lambda: pane.runs.selected is pane.feed.run("mid"), pilot)
        await until(lambda: "message mid" in screen_text(app), pilot)
        assert pane.filter.value == ""
        assert not pane.reveal(RunTarget("never"))


@pytest.mark.slow
async def test_the_palette_finds_the_last_runs() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        pane = await feed_of(app, pilot)
        fleet.say(*(begin(f"r{number}") for number in range(150)))
        await until(lambda: len(pane.feed.runs) == 150, pilot)
        found = list(pane.entities())
        assert len(found) == 100
        assert found[0].target == RunTarget("r149")
        assert found[0].title == "concierge: message r149"


async def test_log_and_hops_of_a_run_are_asked_for_in_their_panes() -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=SMALL) as pilot:
        pane = await feed_of(app, pilot)
        fleet.say(*delegation())
        await until(lambda: pane.runs.selected is not None, pilot)
        await pilot.press("l")
        await until(lambda: app.main.current == "logs", pilot)
        app.main.show("feed")
        await until(lambda: app.focused is pane.runs, pilot)
        await pilot.press("t")
        await until(lambda: app.main.current == "credentials", pilot)
