"""How edits, broken edits, crash loops, blocked loops and a paused watch look."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.fake_fleet import FILE, INSTRUCTION, NEW_TOOL, NOON, TOOL, FakeFleet, failed, held, live
from support.looks import EACH_LOOK, Before, Pictures
from support.pane_app import still
from support.shell import screen_text, workbench
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input

from pallas.model import AgentState, FleetState, LoopBlocked, ServerSnapshot
from pallas_tui.app import Workbench
from pallas_tui.settings import Notify, Settings


def app_over(fleet: FakeFleet, theme: str = "textual-dark", plain: bool = False) -> Workbench:
    # What is told above the panes goes by itself, and a picture must not depend on when.
    app = workbench(fleet, settings=Settings(theme, ascii=plain, notify=Notify(agents=False, runs=False)))
    app.animation_level = "none"
    return app


def after(fleet: FakeFleet, happen: Callable[[FakeFleet], None], *keys: str, words: str) -> Before:
    """Let something happen, press keys, wait for words."""

    async def before(pilot: Pilot[Any]) -> None:
        app: Any = pilot.app
        await until(lambda: isinstance(app.focused, Input), pilot)
        await until(lambda: app.main.query_one("#agents").agents.agents, pilot)
        happen(fleet)
        await until(lambda: app.main.history.frame.snapshot is fleet.current, pilot)
        await pilot.press(*keys)
        await until(lambda: words in screen_text(app), pilot)
        still(app)
        for _ in range(3):
            await pilot.pause()

    return before


def edited(fleet: FakeFleet) -> None:
    """Some edits, the last of which is broken."""
    fleet.reload("research", 2, FILE)
    fleet.reload("research", 3, INSTRUCTION, TOOL, NEW_TOOL, FILE)
    fleet.reload("research", 2, INSTRUCTION, rolled_back=True)
    fleet.change("research", version=4)
    fleet.say(live("research", 4, TOOL), failed("research", 5, INSTRUCTION))
    fleet.watch("paused", waiting=("desk/agents/research.py", "agents.yaml"))


def unwell(fleet: FakeFleet) -> None:
    """Everything that supervision shows, at once."""
    fleet.change("concierge", state=AgentState.READY, isolation="process", pid=4711)
    fleet.change(
        "research", state=AgentState.BACKOFF, restart_at=NOON + 4, crashes=2, restarts=1, error="exited: 139"
    )
    fleet.change(
        "vision", state=AgentState.CRASH_LOOP, crashes=5, restarts=4, error="segmentation fault", since=NOON
    )
    shop = ServerSnapshot(
        "shop", AgentState.CRASH_LOOP, "http://127.0.0.1:24280/mcp", None, "exited: 3", since=NOON, crashes=6
    )
    fleet.current = replace(fleet.current, servers=(shop,))
    fleet.say(LoopBlocked(at=NOON, seconds=2.1, agent="concierge", place="desk/tools.py:40", stack="stack"))


@pytest.mark.slow
async def test_a_broken_edit_in_the_list(pictures: Pictures) -> None:
    fleet = FakeFleet()
    before = after(fleet, edited, "f2", "down", words="v4 answers")
    await pictures(app_over(fleet), before, EACH_LOOK)


@pytest.mark.slow
async def test_what_changed(pictures: Pictures) -> None:
    fleet = FakeFleet()
    before = after(fleet, edited, "f2", "down", "c", *["down"] * 3, words="Answer in one")
    await pictures(app_over(fleet), before, EACH_LOOK)


@pytest.mark.slow
async def test_why_an_edit_failed(pictures: Pictures) -> None:
    fleet = FakeFleet()
    before = after(fleet, edited, "f2", "C", words="v4 answers as before")
    await pictures(app_over(fleet), before, EACH_LOOK)


def held_back(fleet: FakeFleet) -> None:
    """An edit that a test holds back, and one whose tests run."""
    fleet.change("research", version=3, previous=2)
    fleet.say(live("research", 3, TOOL), held("research", 3, FILE))
    fleet.watch(testing=("vision",), held=("research",))


@pytest.mark.slow
async def test_an_edit_that_a_test_holds_back_in_the_list(pictures: Pictures) -> None:
    fleet = FakeFleet()
    before = after(fleet, held_back, "f2", "down", words="v3 answers")
    await pictures(app_over(fleet), before, EACH_LOOK)


@pytest.mark.slow
async def test_why_an_edit_is_held_back(pictures: Pictures) -> None:
    fleet = FakeFleet()
    before = after(fleet, held_back, "f2", "C", words="v3 answers as before")
    await pictures(app_over(fleet), before, EACH_LOOK)


@pytest.mark.slow
async def test_an_unwell_fleet(pictures: Pictures) -> None:
    fleet = FakeFleet()
    before = after(fleet, unwell, "f2", *["down"] * 6, words="crash loop: 5")
    await pictures(app_over(fleet), before, EACH_LOOK)


@pytest.mark.slow
async def test_the_feed_with_versions(pictures: Pictures) -> None:
    fleet = FakeFleet()

    def happen(fleet: FakeFleet) -> None:
        edited(fleet)
        unwell(fleet)

    before = after(fleet, happen, "f4", words="rolled back to v2")
    await pictures(app_over(fleet), before, EACH_LOOK)


async def test_what_changed_in_ascii(pictures: Pictures) -> None:
    fleet = FakeFleet()
    before = after(fleet, edited, "f2", "C", words="v4 answers as before")
    app = app_over(fleet, plain=True)
    await pictures(app, before)


async def test_a_draining_fleet(pictures: Pictures) -> None:
    fleet = FakeFleet()
    fleet.change("research", runs_active=2)

    def drain(fleet: FakeFleet) -> None:
        fleet.current = replace(fleet.current, state=FleetState.DRAINING)

    before = after(fleet, drain, "f2", "ctrl+q", words="Quit? (research 2)")
    await pictures(app_over(fleet), before)
