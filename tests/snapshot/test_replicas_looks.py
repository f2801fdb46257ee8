"""How the screen of replicas looks: serving, starting, draining and dead ones, with two releases."""

from typing import Any

import pytest
from support.fake_fleet import NOON, FakeFleet
from support.looks import EACH_LOOK, Pictures
from support.pane_app import still
from support.shell import screen_text, workbench
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input

from pallas.model import ReplicaRecord

ALL = [
    ReplicaRecord("1f0c9a3e", "desk-1", 312, "0.2.0", "serving", NOON - 7_200, 0.4, 3, 1, 5, is_here=True),
    ReplicaRecord("b44d07c1", "desk-2.example", 287, "0.1.9", "draining", NOON - 86_400, 0.7, 1),
    ReplicaRecord("07aa51d2", "desk-3.example", 41_877, "0.1.9", "dead", NOON - 90_000, 4.2, 2),
    ReplicaRecord("e3b0c442", "desk-2.example", 302, "0.2.0", "starting", NOON - 3, 0.1),
]


@pytest.mark.slow
async def test_replicas(pictures: Pictures) -> None:
    fleet = FakeFleet()
    fleet.others = ALL
    app = workbench(fleet)

    async def before(pilot: Pilot[Any]) -> None:
        await until(lambda: isinstance(app.focused, Input) and ":24200" in screen_text(app), pilot)
        app.action_replicas()
        await until(lambda: "e3b0c442" in screen_text(app), pilot)
        still(app)
        for _ in range(3):
            await pilot.pause()

    await pictures(app, before, EACH_LOOK)
