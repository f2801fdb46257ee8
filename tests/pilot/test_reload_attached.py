"""Edits and supervision of a fleet elsewhere, over real HTTP: seen, paused, rolled back, refused."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from support.control import FULL, READ, serving
from support.fake_fleet import INSTRUCTION, NEW_TOOL, NOON, FakeFleet, failed, held
from support.notices import notices_of
from support.shell import screen_text, workbench
from support.waiting import until
from textual.widgets import Input

from pallas.model import AgentState, FleetState, LoopBlocked, Notice
from pallas_tui.app import Workbench
from pallas_tui.remote.fleet_connection import shift_snapshot
from pallas_tui.remote.remote_fleet import RemoteFleet
from pallas_tui.remote.token_source import TokenSource


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def attached(url: str, token: str = FULL) -> tuple[Workbench, RemoteFleet]:
    fleet = RemoteFleet(url, TokenSource(url, token))
    return workbench(lambda: fleet), fleet


async def test_whose_fleet_it_is_and_how_far_behind_is_on_the_top_line() -> None:
    there, seconds = FakeFleet(), [100.0]
    async with serving(there, heartbeat=3600) as served:
        fleet = RemoteFleet(served.url, TokenSource(served.url, FULL), timer=lambda: seconds[0])
        app = workbench(lambda: fleet)
        try:
            async with app.run_test(size=(120, 40)) as pilot:
                place = f"this machine (pid {os.getpid()})"
                await until(lambda: f"desk  attached to {place} since" in top(app), pilot)
                assert ", full access" in top(app)
                assert "behind" not in top(app)
                seconds[0] += 20
                await until(lambda: "full access ◐ 20 s behind" in top(app), pilot)
                await pilot.resize_terminal(80, 24)
                await until(lambda: "desk  attached ◐ 20 s behind" in top(app), pilot)
                assert ", full access, 20 s behind" in app.facts()
                there.say(Notice(level="info", text="here again"))
                await until(lambda: "here again" in top(app) and "behind" not in top(app), pilot)
                assert "desk  attached" in top(app)
                await served.stop()
                await until(lambda: "no contact since" in top(app), pilot)
                assert "✖ connection lost, trying again" in top(app)
        finally:
            fleet.stop(10)


def top(app: Workbench) -> str:
    return screen_text(app).splitlines()[0]


@pytest.mark.slow
async def test_edits_elsewhere_are_seen_and_watching_and_rolling_back_are_asked_for_there() -> None:
    there = FakeFleet()
    there.change("research", version=3, previous=2)
    there.watch()
    async with serving(there) as served:
        app, fleet = attached(served.url)
        try:
            async with app.run_test(size=(120, 40)) as pilot:
                await until(lambda: isinstance(app.focused, Input) and "● 3 " in top(app), pilot)
                await until(lambda: fleet.can_control, pilot)
                there.say(failed("research", 3))
                await until(lambda: "✖ research v4 research.py:12" in top(app), pilot)
                there.reload("research", 4, INSTRUCTION, NEW_TOOL)
                await until(lambda: "v4 live in 0.3 s: instruction, 1 tool" in screen_text(app), pilot)
                await pilot.press("f2", "W")
                await until(lambda: there.fleet_controlled == ["pause"], pilot)
                await until(lambda: "watch paused" in top(app), pilot)
                await pilot.press("U", "W")
                await until(lambda: there.fleet_controlled == ["pause", "reload", "resume"], pilot)
                await pilot.press("down", "B")
                await until(lambda: app.main.asking == "Roll research back to v3, from v4?", pilot)
                await pilot.press("y")
                await until(lambda: there.controlled == [("research", "rollback")], pilot)
                await pilot.press("c")
                await until(lambda: "+Answer in one sentence." in screen_text(app), pilot)
                await pilot.press("e")  # the files are over there
                told = "is not a file of a project on this machine"
                await until(lambda: any(told in note.message for note in notices_of(app)), pilot)
        finally:
            fleet.stop(10)


async def test_an_edit_that_is_held_back_elsewhere_is_seen_and_let_through_there() -> None:
    there = FakeFleet()
    there.change("research", version=3, previous=2)
    there.watch(held=("research",))
    async with serving(there) as served:
        app, fleet = attached(served.url)
        try:
            async with app.run_test(size=(120, 40)) as pilot:
                await until(lambda: isinstance(app.focused, Input) and fleet.can_control, pilot)
                there.say(held("research", 3))
                await until(lambda: "◐ research v4 held back: 1 of 5" in top(app), pilot)
                attempt = app.main.history.versions.broken("research")
                assert attempt is not None
                assert attempt.event.tests == held("research", 3).tests
                await pilot.press("f2", "down", "r")
                await until(lambda: there.controlled == [("research", "reload")], pilot)
        finally:
            fleet.stop(10)


async def test_who_may_only_look_sees_all_of_it_and_changes_nothing() -> None:
    there = FakeFleet()
    there.change("research", version=3, previous=2)
    there.watch("paused", waiting=("a.py",))
    async with serving(there) as served:
        app, fleet = attached(served.url, READ)
        try:
            async with app.run_test(size=(120, 40)) as pilot:
                await until(
                    lambda: isinstance(app.focused, Input) and "watch paused · 1 file" in top(app), pilot
                )
                await pilot.press("f2", "W", "U", "down", "B")
                told = lambda: [n.message for n in notices_of(app) if "may only read" in n.message]  # noqa: E731
                await until(lambda: len(told()) == 3, pilot)
                assert there.fleet_controlled == there.controlled == []
                assert not app.main.asking
        finally:
            fleet.stop(10)


async def test_draining_blocked_loops_and_crash_loops_elsewhere_are_told() -> None:
    there = FakeFleet()
    there.change("research", runs_active=2)
    async with serving(there) as served:
        app, fleet = attached(served.url)
        try:
            async with app.run_test(size=(120, 40)) as pilot:
                await until(lambda: isinstance(app.focused, Input) and "● 3 " in top(app), pilot)
                there.say(LoopBlocked(at=NOON, seconds=2.0, agent="vision", place="t.py:4", stack="s"))
                await until(lambda: "✖ vision blocks the loop: 2 s, t.py:4" in top(app), pilot)
                there.change("vision", state=AgentState.CRASH_LOOP, crashes=4)
                await until(lambda: "crash-loop" in screen_text(app), pilot)
                there.current = replace(there.current, state=FleetState.DRAINING)
                await until(lambda: "draining, 2 runs in flight" in top(app), pilot)
        finally:
            fleet.stop(10)


def test_times_of_supervision_are_moved_to_the_clock_here() -> None:
    there = FakeFleet()
    there.change("research", state=AgentState.BACKOFF, restart_at=NOON + 4)
    there.watch(last=failed("research", 2))
    moved = shift_snapshot(there.current, 100.0)
    research = moved.agent("research")
    assert research is not None
    assert research.restart_at == NOON + 104
    assert moved.watch is not None
    assert moved.watch.since == NOON + 40
    assert moved.watch.last is not None
    assert moved.watch.last.at == NOON + 100
