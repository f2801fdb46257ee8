"""The screen of replicas by keyboard: listed, followed, drained, refused."""

from dataclasses import replace
from typing import Any

import pytest
from support.fake_fleet import NOON, FakeFleet
from support.shell import sees, workbench
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input

from pallas.model import Fault, FaultType, ReplicaRecord
from pallas_tui.app import Workbench
from pallas_tui.palette import commands
from pallas_tui.screens.main_screen import MainScreen
from pallas_tui.screens.record_screens import ReplicasScreen
from pallas_tui.screens.sheet_screen import TextScreen
from pallas_tui.widgets.replicas import ReplicasPane, replicas_pane

WIDE, SMALL = (120, 40), (80, 24)
HOSTILE = "\x1b]52;c;cm0gLXJmIC8=\x07[@click=app.quit]quit[/] \u202eksed"
HERE = ReplicaRecord("1f0c9a3e", "desk-1", 312, "0.2.0", "serving", NOON - 7_200, 0.4, 3, 1, 5, is_here=True)
OTHER = ReplicaRecord("b44d07c1", "desk-2", 287, "0.2.0", "serving", NOON - 60, 0.7, 1)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas_pane, "READ_EVERY", 0.2)


async def opened(app: Workbench, pilot: Pilot[Any]) -> ReplicasPane:
    await until(lambda: isinstance(app.focused, Input), pilot)
    await pilot.press("alt+l")  # works while one writes, too
    await until(
        lambda: isinstance(app.screen, ReplicasScreen) and app.screen.query("#replica-details"), pilot
    )
    return app.screen.query_one(ReplicasPane)


@pytest.mark.slow
@pytest.mark.parametrize("size", [WIDE, SMALL], ids=["120x40", "80x24"])
async def test_replicas_are_listed_and_followed(size: tuple[int, int]) -> None:
    fleet = FakeFleet()
    fleet.others = [HERE, replace(OTHER, host=HOSTILE)]
    app = workbench(fleet)
    async with app.run_test(size=size) as pilot:
        await opened(app, pilot)
        text = await sees(
            app, pilot, "1f0c9a3e", "b44d07c1", "(here)", "3 runs", "1 run", "2 h", "2 replicas"
        )
        text = await sees(app, pilot, "5 runs of dead replicas")
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "releases" not in text
        fleet.others = [HERE, replace(OTHER, state="dead", release="0.1.9")]
        text = await sees(app, pilot, "dead", "0.1.9")
        assert "releases" not in text  # a dead one does not count
        fleet.others = [HERE, replace(OTHER, state="draining", release="0.1.9")]
        await sees(app, pilot, "draining", "2 releases")
        await pilot.press("down", "enter")
        await until(lambda: isinstance(app.screen, TextScreen), pilot)
        await sees(app, pilot, "process 287 on desk-2")
        await pilot.press("escape", "slash", *"0.1.9", "enter")
        await sees(app, pilot, "1 of 2 replicas")
        await pilot.press("escape", "escape")
        await until(lambda: isinstance(app.screen, MainScreen), pilot)


@pytest.mark.slow
async def test_any_living_replica_is_drained_after_a_question() -> None:
    fleet = FakeFleet()
    fleet.others = [HERE, OTHER, replace(OTHER, id="00000001", state="dead")]
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        pane = await opened(app, pilot)
        await sees(app, pilot, "1f0c9a3e")
        await pilot.press("x")
        await sees(app, pilot, "Drain replica 1f0c9a3e on desk-1, with 3 runs under way?")
        await pilot.press("n", "x", "y")
        await until(lambda: fleet.drained == ["1f0c9a3e"], pilot)
        await pilot.press("down", "x")
        await sees(app, pilot, "Drain replica b44d07c1 on desk-2, with 1 run under way?")
        await pilot.press("y")
        await until(lambda: fleet.drained == ["1f0c9a3e", "b44d07c1"], pilot)
        await pilot.press("down")
        await until(lambda: pane.check_action("drain", ()) is False, pilot)
        fleet.others[1] = replace(OTHER, state="draining")
        await pilot.press("up")
        await sees(app, pilot, "draining")
        await until(lambda: pane.check_action("drain", ()) is False, pilot)
        await pilot.press("up")
        fleet.kept.problem = Fault(FaultType.AUTH, "read-only: this token may only read")
        await pilot.press("x", "y")
        await sees(app, pilot, "read-only: this token may only read")
        assert fleet.drained == ["1f0c9a3e", "b44d07c1"]


async def test_a_fleet_without_a_database_says_so_and_the_list_has_a_bound() -> None:
    fleet = FakeFleet()
    fleet.kept.problem = Fault(FaultType.CONFIG, "this fleet keeps nothing")
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        pane = await opened(app, pilot)
        await sees(app, pilot, "this fleet keeps nothing", "r reads again")
        fleet.kept.problem = None
        fleet.others = [replace(OTHER, id=f"{number:08x}") for number in range(300)]
        await sees(app, pilot, "the first 200 replicas")
        assert pane.rows.line_count() == 200
        titles = [each.title for each in commands(app, app.main)]
        assert "Replicas" in titles
