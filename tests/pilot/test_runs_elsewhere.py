"""Runs of other replicas, and runs from before a restart, in the feed and on their screen."""

from collections.abc import Callable
from dataclasses import replace
from time import localtime, strftime
from typing import Any

import pytest
from support.fake_fleet import NOON, FakeFleet, desk
from support.notices import notices_of
from support.shell import line_with, screen_text, workbench
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input

from pallas.model import (
    Event,
    Fault,
    FaultType,
    MessageRecord,
    PastRun,
    RunElsewhere,
    RunFinished,
    RunRecord,
    RunStarted,
    ToolEvent,
)
from pallas.model.codec import decode_event, encode_event
from pallas_tui import app as workbench_app
from pallas_tui.app import Workbench
from pallas_tui.runs.past_runs import ATTEMPTS
from pallas_tui.screens.run_screen import RunScreen
from pallas_tui.targets import RunTarget
from pallas_tui.widgets.feed import FeedPane

HERE, THERE = "1f0c9a3e", "b44d07c1"
RUN = RunRecord("run-7", "research", "", "thread-of", "mcp", started_at=NOON - 3)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbench_app, "LOOK_EVERY", 0.05)


def replicated(number: int = 2) -> FakeFleet:
    return FakeFleet(replace(desk(), replica=HERE, replicas=number))


def puts(fleet: FakeFleet, run: RunRecord, replica: str = THERE) -> None:
    fleet.runs_there[run.id] = RunElsewhere(run, replica)


def row(number: int, role: Any, text: str) -> MessageRecord:
    return MessageRecord(str(number), "thread", number, role, text, "pending", run="run-7")


async def feed_of(app: Workbench, pilot: Pilot[Any]) -> FeedPane:
    await until(lambda: isinstance(app.focused, Input), pilot)
    await pilot.press("f4")
    pane = app.main.query_one(FeedPane)
    await until(lambda: app.focused is pane.runs, pilot)
    return pane


def notices(app: Workbench) -> str:
    return "\n".join(notice.message for notice in notices_of(app))


async def looked(fleet: FakeFleet, pilot: Pilot[Any]) -> None:
    """Wait until all that the fleet has by now was read."""
    before = len(fleet.asked_there)
    await until(lambda: len(fleet.asked_there) > before + 1, pilot)


@pytest.mark.slow
async def test_a_run_of_another_replica_is_in_the_feed_and_on_its_screen() -> None:
    fleet = replicated()
    app = workbench(fleet)
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await feed_of(app, pilot)
        puts(fleet, RUN)
        fleet.rows["run-7"] = (row(1, "user", "Who wrote it?"), row(2, "assistant", "One moment."))
        await until(lambda: f"at {THERE}" in screen_text(app), pilot)
        await pilot.press("end", "enter")
        await until(lambda: isinstance(app.screen, RunScreen), pilot)
        has: Callable[[str], Any] = lambda text: until(lambda: text in screen_text(app), pilot)  # noqa: E731
        for text in (f"replica       {THERE}", "question      Who wrote it?", "text          One moment."):
            await has(text)
        await has(f"Replica {THERE} has them")
        fleet.rows["run-7"] += (row(3, "assistant", "Ada did."),)
        puts(fleet, replace(RUN, status="ok", finished_at=NOON, seconds=3.0))
        await has("text          Ada did.")
        await has("ok after 3.0 s")
        (run,) = pane.feed.runs
        assert (run.state, run.replica) == ("ok", THERE)


@pytest.mark.slow
async def test_one_that_this_fleet_takes_over_is_told_by_its_own_events_and_stays_one() -> None:
    fleet = replicated()
    app = workbench(fleet)
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await feed_of(app, pilot)
        puts(fleet, RUN)
        await until(lambda: pane.feed.run("run-7") is not None, pilot)
        puts(fleet, RUN, HERE)
        fleet.say(RunStarted(at=NOON, run_id="run-7", agent="research", preview="Who?"))
        await until(lambda: "continues at this fleet" in screen_text(app), pilot)
        assert f"at {THERE}" not in screen_text(app)
        puts(fleet, replace(RUN, status="ok", finished_at=NOON), HERE)
        await looked(fleet, pilot)
        (run,) = pane.feed.runs
        assert (run.state, run.replica) == ("running", "")
        fleet.say(RunFinished(at=NOON, run_id="run-7", agent="research", outcome="ok", seconds=3))
        await until(lambda: run.state == "ok", pilot)


async def test_a_run_that_was_handed_over_goes_on_in_its_line() -> None:
    fleet = replicated()
    fleet.say(
        RunStarted(at=NOON - 3, run_id="run-7", agent="research", preview="Who?", trace_id="7" * 32),
        RunFinished(at=NOON - 2, run_id="run-7", agent="research", outcome="error", seconds=1, fault="moved"),
    )
    app = workbench(fleet)
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await feed_of(app, pilot)
        puts(fleet, RUN)
        await until(lambda: f"continues at replica {THERE}" in screen_text(app), pilot)
        (run,) = pane.feed.runs
        assert (run.state, run.preview, run.fault, pane.feed.active) == ("running", "Who?", "", 1)
        del fleet.runs_there["run-7"]
        await until(lambda: run.state == "error", pilot)
        assert (run.fault, pane.feed.active) == ("it was deleted with its thread", 0)


@pytest.mark.slow
async def test_a_run_that_ended_while_nothing_was_heard_gets_its_end_and_old_ones_get_no_line() -> None:
    fleet = replicated(number=1)
    fleet.say(RunStarted(at=NOON - 3, run_id="run-7", agent="research", preview="Who?"))
    app = workbench(fleet)
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await feed_of(app, pilot)
        run = pane.feed.run("run-7")
        assert run is not None
        await until(lambda: app.fleet is not None, pilot)
        assert fleet.asked_there == []  # it has no other replica
        ended = replace(RUN, status="ok", finished_at=NOON - 1, seconds=2.0)
        puts(fleet, ended, HERE)
        puts(fleet, replace(ended, id="run-6"))
        run.lose()
        await until(lambda: run.state == "ok", pilot)
        assert (run.seconds, len(pane.feed.runs)) == (2.0, 1)
        assert fleet.asked_there == ["run-7"]


@pytest.mark.slow
async def test_a_fleet_that_cannot_tell_is_asked_less_often_and_nothing_is_said_of_it() -> None:
    fleet = replicated()
    fleet.refusal = Fault(FaultType.TRANSPORT, "there is no such page")
    app = workbench(fleet)
    async with app.run_test(size=(120, 40)) as pilot:
        await feed_of(app, pilot)
        await looked(fleet, pilot)
        assert "no such page" not in screen_text(app)
        fleet.refusal = None
        puts(fleet, RUN)
        await until(lambda: f"at {THERE}" in screen_text(app), pilot)


async def test_a_run_of_the_ledger_that_the_feed_never_had_is_found_when_one_goes_to_it() -> None:
    fleet = replicated(number=1)
    app = workbench(fleet)
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await feed_of(app, pilot)
        app.main.reveal(RunTarget("run-7"))
        await until(lambda: "no longer in the feed" in notices(app), pilot)
        puts(fleet, replace(RUN, status="error", fault="too late", finished_at=NOON, seconds=3.0))
        app.main.reveal(RunTarget("run-7"))
        await until(lambda: "too late" in screen_text(app), pilot)
        assert pane.runs.selected is pane.feed.run("run-7")
        assert f"at {THERE}" in screen_text(app)


LONG_AGO = NOON - 3 * 24 * 3600


def past(run: RunRecord, *events: Event, replica: str = "") -> PastRun:
    return PastRun(RunElsewhere(run, replica), tuple(encode_event(each) for each in events))


def of_before(number: int, began: float = LONG_AGO, **more: Any) -> PastRun:
    """A run from before, of a question with a call."""
    name = {"run_id": f"old-{number}", "agent": "research"}
    run = RunRecord(
        f"old-{number}", "research", "", status="ok", started_at=began, finished_at=began + 3, seconds=3.0
    )
    call = {**name, "server": "docs", "tool": "search", "call_id": "c"}
    return past(
        run,
        RunStarted(at=began, preview=f"question {number}", **name),
        ToolEvent(at=began + 1, phase="started", **call),
        ToolEvent(at=began + 2, phase="completed", **call),
        RunFinished(at=began + 3, outcome="ok", seconds=3.0, **name),
        **more,
    )


async def test_the_last_runs_of_the_ledger_come_before_those_of_now_and_are_marked() -> None:
    fleet = replicated(1)
    fleet.say(RunStarted(at=NOON, run_id="new", agent="research", preview="now"))
    fleet.past = [of_before(1), of_before(2, LONG_AGO + 60), of_before(3, LONG_AGO + 120, replica=THERE)]
    app = workbench(fleet)
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await feed_of(app, pilot)
        await until(lambda: "earlier \u00b7 question 1" in screen_text(app), pilot)
        assert [run.id for run in pane.feed.runs] == ["old-1", "old-2", "old-3", "new"]
        day = strftime("%d %b", localtime(LONG_AGO))  # it says more than the time
        assert day in line_with(app, "earlier · question 1")
        assert "earlier" not in line_with(app, f"at {THERE}")
        assert "new below" not in screen_text(app)
        assert "docs/search" not in screen_text(app)  # they are folded
        # A fleet that is attached to tells again what its ledger knows.
        again = [decode_event(each) for each in fleet.past[0].events]
        fleet.say(*[each for each in again if each is not None])
        fleet.say(RunFinished(at=NOON + 1, run_id="new", agent="research", outcome="ok", seconds=1))
        new = pane.feed.runs[-1]
        await until(lambda: new.state == "ok", pilot)
        assert [run.id for run in pane.feed.runs] == ["old-1", "old-2", "old-3", "new"]
        assert len(pane.feed.runs[0].steps) == 1
        old = ("earlier · question 1", "earlier · question 2", f"at {THERE}")
        for words, shown in (("tool:docs", old), ("-earlier", old[2:]), ("earlier question", old[:2])):
            pane.filter.value = words
            pane.filter_by(())
            await until(lambda s=shown: tuple(each for each in old if each in screen_text(app)) == s, pilot)
        pane.filter.clear_filter()
        pane.filter_by(())
        pane.runs.go_to(pane.feed.runs[0])
        fleet.rows["old-1"] = ()
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, RunScreen), pilot)


async def test_a_fleet_that_cannot_tell_its_last_runs_is_not_asked_for_ever() -> None:
    fleet = replicated()
    fleet.refusal = Fault(FaultType.UPSTREAM, "there is nothing here")
    app = workbench(fleet)
    async with app.run_test(size=(80, 24)) as pilot:
        pane = await feed_of(app, pilot)
        await until(lambda: fleet.asked_past == ATTEMPTS, pilot)
        fleet.say(RunStarted(at=NOON, run_id="new", agent="research", preview="now"))
        await until(lambda: pane.feed.run("new") is not None, pilot)
        await looked(fleet, pilot)
        assert fleet.asked_past == ATTEMPTS


async def test_a_fleet_without_a_ledger_is_not_asked_for_runs_from_before() -> None:
    fleet = FakeFleet()
    fleet.past = [of_before(1)]
    app = workbench(fleet)
    async with app.run_test(size=(80, 24)) as pilot:
        pane = await feed_of(app, pilot)
        fleet.say(RunStarted(at=NOON, run_id="new", agent="research", preview="now"))
        await until(lambda: pane.feed.run("new") is not None, pilot)
        assert fleet.asked_past == 0
        assert [run.id for run in pane.feed.runs] == ["new"]
