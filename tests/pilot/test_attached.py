"""What the workbench shows differently of a fleet that runs elsewhere."""

import asyncio
from dataclasses import replace

import pytest
from support.fake_fleet import NOON, FakeFleet, desk
from support.notices import notices_of
from support.shell import screen_text, workbench
from support.waiting import until
from textual.widgets import Input

from pallas.model import Attachment, FleetState, Notice, RunStarted, TokenScope
from pallas_tui.app import Workbench
from pallas_tui.state import attached_words
from pallas_tui.widgets.feed import FeedPane

SIZES = [(60, 20), (80, 24), (120, 40)]


def elsewhere() -> FakeFleet:
    fleet = FakeFleet()
    fleet.outlives = True  # type: ignore[attr-defined]
    return fleet


def top(app: Workbench) -> str:
    return screen_text(app).split("\n")[0]


@pytest.mark.slow
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


WHERE = "desk.example:24200 (pid 4242 of ann)"
HOST = Attachment(WHERE, NOON - 60, TokenScope.FULL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attachment", "stale", "narrow", "broad"),
    [
        (
            HOST,
            "",
            "desk  attached  ● 3",
            f"{WHERE} since 15:05, full access  ● 3",
        ),
        (
            replace(HOST, access=TokenScope.READ, late=21),
            "",
            "desk (read-only)  attached ◐ 21 s behind",
            f"desk (read-only)  attached to {WHERE} ◐ 21 s behind  ● 3",
        ),
        (
            replace(HOST, lost_at=NOON),
            "connection lost, trying again: nothing answers",
            "desk  no contact since 15:06:40  ✖ connection lost, trying again: noth",
            "no contact since 15:06:40   ✖ connection lost, trying again: nothing answers",
        ),
    ],
)
async def test_whose_fleet_it_is_stays_on_screen(
    attachment: Attachment, stale: str, narrow: str, broad: str
) -> None:
    fleet = elsewhere()
    fleet.attachment, fleet.current = attachment, replace(desk(), stale=stale)
    app = workbench(fleet)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: narrow in top(app) and "^p" in top(app), pilot)
        await pilot.resize_terminal(120, 40)
        await until(lambda: broad in top(app) and "^p" in top(app), pilot)
        await pilot.resize_terminal(200, 50)
        whole = attached_words(attachment, NOON)[0]
        await until(lambda: whole in top(app) and "^p palette" in top(app), pilot)
        assert not stale or stale in top(app)
        assert stale or ":24200  " in top(app).partition("full access")[2] or "registry :24200" in top(app)


async def test_a_problem_leaves_only_a_word_of_whose_fleet_it_is() -> None:
    fleet = elsewhere()
    fleet.attachment = HOST
    app = workbench(fleet)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "full access" in top(app), pilot)
        fleet.say(Notice(at=NOON, level="error", text="research could not be reached any more"))
        await until(lambda: "desk  attached  ●" in top(app) or "desk   attached   " in top(app), pilot)
        assert "research could not be reached any more" in top(app)


@pytest.mark.slow
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
                lambda: any("this token may only read" in each.message for each in notices_of(app)), pilot
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


@pytest.mark.slow
async def test_a_fleet_that_could_not_be_attached_says_what_to_mend() -> None:
    fleet = elsewhere()
    error = "the fleet at http://desk.example:1 needs a token: put it into PALLAS_CONTROL_TOKEN"
    fleet.current = replace(
        desk(), state=FleetState.FAILED, error=error, stale="could not be attached", agents=()
    )
    app = workbench(fleet)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "needs a token" in screen_text(app), pilot)
        shown = screen_text(app)
        assert "The fleet could not be attached" in shown
        assert "could not be attached" in top(app)
        assert "did not start" not in shown
        assert "Fix that, then press r" in shown
        assert "Fix the files" not in shown
