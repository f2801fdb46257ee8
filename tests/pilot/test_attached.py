"""What the workbench shows differently of a fleet that runs elsewhere."""

import asyncio
from dataclasses import replace

import pytest
from support.fake_fleet import NOON, FakeFleet, desk
from support.shell import screen_text, workbench
from support.waiting import until
from textual.widgets import Input

from pallas.model import FleetState, RunStarted
from pallas_tui.app import Workbench
from pallas_tui.widgets.feed import FeedPane

SIZES = [(60, 20), (80, 24), (120, 40)]


def elsewhere() -> FakeFleet:
    fleet = FakeFleet()
    fleet.outlives = True  # type: ignore[attr-defined]
    return fleet


def top(app: Workbench) -> str:
    return screen_text(app).split("\n")[0]


async def test_a_picture_that_is_old_says_so_and_takes_it_back() -> None:
    fleet = elsewhere()
    app = workbench(fleet)
    async with app.run_test(size=SIZES[0]) as pilot:
        await until(lambda: "desk" in top(app), pilot)
        for size in SIZES:
            await pilot.resize_terminal(*size)
            fleet.current = replace(desk(), stale="connection lost, trying again: nothing answers")
            await until(lambda: "✖ connection lost, trying again" in top(app) and "^p" in top(app), pilot)
            fleet.current = desk()
            await until(lambda: "connection lost" not in top(app) and "● 3" in top(app), pilot)


async def test_who_may_only_look_is_told_before_any_question() -> None:
    fleet = elsewhere()
    fleet.can_control = False
    fleet.change("concierge", runs_active=1)
    fleet.say(RunStarted(at=NOON, run_id="r1", agent="concierge", preview="hello"))
    app = workbench(fleet)
    async with app.run_test(size=SIZES[0]) as pilot:
        await until(lambda: "desk" in top(app), pilot)
        await until(lambda: isinstance(app.focused, Input), pilot)
        pane = app.main.query_one(FeedPane)
        for size in SIZES:
            await pilot.resize_terminal(*size)
            app.clear_notifications()
            await pilot.press("f4")
            await until(lambda: app.focused is pane.runs and pane.check_action("cancel", ()), pilot)
            await pilot.press("ctrl+k")
            await until(
                lambda: any("this token may only look" in each.message for each in app._notifications), pilot
            )
            assert not app.main.asking
            assert fleet.cancelled == []


@pytest.mark.parametrize(
    ("away", "says"), [(True, "; those of this chat will be cancelled"), (False, " and will be cancelled")]
)
async def test_leaving_says_what_ends_with_it(away: bool, says: str) -> None:
    fleet = elsewhere() if away else FakeFleet()
    fleet.change("research", runs_active=2)
    app = workbench(fleet)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "desk" in top(app), pilot)
        await pilot.press("ctrl+q")
        await until(lambda: app.main.asking, pilot)
        assert f"2 runs are in flight{says}" in app.main.asking
        await asyncio.sleep(0)


async def test_a_fleet_that_could_not_be_attached_says_what_to_mend() -> None:
    fleet = elsewhere()
    error = "the fleet at http://desk.example:1 wants a token: put it into PALLAS_CONTROL_TOKEN"
    fleet.current = replace(
        desk(), state=FleetState.FAILED, error=error, stale="could not be attached", agents=()
    )
    app = workbench(fleet)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "wants a token" in screen_text(app), pilot)
        shown = screen_text(app)
        assert "The fleet could not be attached" in shown
        assert "could not be attached" in top(app)
        assert "did not start" not in shown
        assert "Fix that, then press r" in shown
        assert "Fix the files" not in shown
