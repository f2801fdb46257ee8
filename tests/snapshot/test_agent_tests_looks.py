"""How the screen of tests looks: tests that passed, failed and were skipped, and one that has not run."""

from pathlib import Path
from typing import Any

import pytest
from support.fake_fleet import NOON, FakeFleet
from support.live import write_project
from support.looks import EACH_LOOK, Pictures
from support.pane_app import still
from support.shell import screen_text, workbench
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input

from pallas_tui.records.agent_test_book import AgentTestOutcome

WHY = 'recording: the model request of clerk is not in the recording: messages[0].content is "You are Clark."'
WENT = {
    "refund": AgentTestOutcome("failed", 0.41, NOON - 4, (WHY, "most.steps: 7, and may be 5")),
    "greeting": AgentTestOutcome("passed", 0.04, NOON - 4),
    "stock-of-lamps": AgentTestOutcome("skipped", 0.0, NOON - 4, ("recording: it has none",)),
}


@pytest.mark.slow
async def test_agent_tests(pictures: Pictures, tmp_path: Path) -> None:
    root = write_project(tmp_path, {"clerk": None})
    folder = root / "tests" / "agents"
    folder.mkdir(parents=True)
    for name in (*WENT, "two-refunds"):
        (folder / f"{name}.yaml").write_text("agent: clerk\nask: Refund orders 7 and 9, please.\n")
    app = workbench(FakeFleet(), root=root)

    async def before(pilot: Pilot[Any]) -> None:
        await until(lambda: isinstance(app.focused, Input) and ":24200" in screen_text(app), pilot)
        app.action_tests()
        assert app.agent_tests is not None
        app.agent_tests.outcomes |= WENT
        await until(lambda: "two-refunds" in screen_text(app), pilot)
        await pilot.press("down")
        still(app)
        for _ in range(3):
            await pilot.pause()

    await pictures(app, before, EACH_LOOK)
