"""How verdicts look: the line that tells of one, their list, and one run of one."""

from collections.abc import Callable
from typing import Any

import pytest
from support.fake_fleet import NOON, FakeFleet
from support.looks import EACH_LOOK, Before, Pictures
from support.pane_app import still
from support.shell import screen_text, workbench
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input

from pallas.model import RunVerdict, VerdictProgress, VerdictReached
from pallas.model.verdict import counts_of, sorted_runs

BEFORE = "You are clerk at Larkmoor.\nAnswer from the documents and from nothing else.\nBe kind."
AFTER = "You are clerk at Larkmoor.\nAnswer from the documents, in one sentence.\nBe kind."
RUNS = (
    RunVerdict("hello", "test", "clerk", "same", agents=("clerk",), seconds=0.1),
    RunVerdict(
        "two-refunds",
        "test",
        "desk",
        "other words",
        "step 1 of clerk",
        "another model request: messages[0].content",
        '…"documents and from nothing else."',
        '…"documents, in one sentence."',
        ("clerk",),
        0.3,
        BEFORE,
        AFTER,
    ),
    RunVerdict(
        "3f1c9a0e7b52",
        "run",
        "clerk",
        "other tool calls",
        "step 1 of clerk",
        "the tool find, which was called in step 2, is not offered any more",
        agents=("clerk",),
    ),
    RunVerdict("stock", "test", "desk", "not decided", what="the server shop changed; shop.py was saved"),
)


def verdict(*runs: RunVerdict, at: float = NOON, **more: Any) -> VerdictReached:
    given: dict[str, Any] = {"files": ("agents/clerk.py",), "seconds": 0.7 + at - NOON, **more}
    return VerdictReached(at=at, agents=("clerk",), runs=sorted_runs(runs), counts=counts_of(runs), **given)


def several(fleet: FakeFleet) -> None:
    """A save without effect, and one that is held back."""
    fleet.watch(held=("clerk",))
    fleet.say(verdict(*RUNS[:1]), verdict(*RUNS, at=NOON + 90, is_held=True))


def judging(fleet: FakeFleet) -> None:
    """A verdict that is under way."""
    fleet.watch(judging=VerdictProgress(("clerk",), 12, judged=4, differing=1))


def after(fleet: FakeFleet, happen: Callable[[FakeFleet], None], *keys: str, words: str) -> Before:
    async def before(pilot: Pilot[Any]) -> None:
        app: Any = pilot.app
        await until(lambda: isinstance(app.focused, Input) and ":24200" in screen_text(app), pilot)
        happen(fleet)
        await until(lambda: app.main.history.frame.snapshot is fleet.current, pilot)
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        await until(lambda: words in screen_text(app), pilot)
        still(app)
        for _ in range(3):
            await pilot.pause()

    return before


@pytest.mark.slow
async def test_a_verdict_under_way(pictures: Pictures) -> None:
    fleet = FakeFleet()
    await pictures(workbench(fleet), after(fleet, judging, words="4 known"), EACH_LOOK)


@pytest.mark.slow
async def test_a_version_that_waits_for_a_verdict(pictures: Pictures) -> None:
    fleet = FakeFleet()
    await pictures(workbench(fleet), after(fleet, several, words="held: clerk waits"), EACH_LOOK)


@pytest.mark.slow
async def test_verdicts(pictures: Pictures) -> None:
    fleet = FakeFleet()
    await pictures(workbench(fleet), after(fleet, several, "alt+j", words="two-refunds"), EACH_LOOK)


@pytest.mark.slow
async def test_no_verdict_yet(pictures: Pictures) -> None:
    fleet = FakeFleet()
    await pictures(
        workbench(fleet), after(fleet, FakeFleet.watch, "alt+j", words="No verdict yet"), EACH_LOOK
    )


@pytest.mark.slow
async def test_one_run_of_a_verdict(pictures: Pictures) -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    await pictures(app, after(fleet, several, "alt+j", "enter", words="what differs"), EACH_LOOK)
