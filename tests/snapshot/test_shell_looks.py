"""How the shell looks. After an intended change: ``make test ARGS="tests/snapshot --snapshot-update"``."""

from dataclasses import replace
from typing import Any

import pytest
from support.fake_fleet import NOON, FakeFleet, desk, step_event
from support.looks import Before, Pictures, in_sizes, in_themes
from support.shell import screen_text, workbench
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input

from pallas.model import (
    AgentState,
    FleetSnapshot,
    FleetState,
    RunFinished,
    RunStarted,
    ToolEvent,
)
from pallas_tui.settings import Settings
from pallas_tui.widgets.start_failure import Failure

DARK_AND_LIGHT = in_sizes("80x24") + in_themes("80x24", "light")


def busy() -> FakeFleet:
    """A fleet in the middle of a call that goes through two agents, with a failed call behind it."""
    fleet = FakeFleet()
    for name in ("concierge", "research"):
        fleet.change(name, runs_active=1)
    one, two = {"run_id": "r1", "agent": "concierge"}, {"run_id": "r2", "agent": "research"}
    fleet.say(
        RunStarted(at=NOON - 30, run_id="r0", agent="vision", preview="What is on this picture?", images=1),
        RunFinished(
            at=NOON - 29,
            run_id="r0",
            agent="vision",
            outcome="error",
            seconds=1.2,
            fault="AUTH: the provider refused the key; set GENERIC_API_KEY",
        ),
        RunStarted(at=NOON - 4, preview="Which customers were hit by the May invoice bug?", **one),
        step_event(one["run_id"], 1, NOON - 4, seconds=0.8),
        ToolEvent(at=NOON - 3.2, server="research", tool="ask", phase="started", call_id="a", **one),
        RunStarted(at=NOON - 3.1, preview="customers hit by the May invoice bug", **two),
        step_event(two["run_id"], 1, NOON - 3, agent="research", seconds=0.9),
        ToolEvent(at=NOON - 2, server="docs", tool="search", phase="started", call_id="b", **two),
        ToolEvent(at=NOON - 1.6, server="docs", tool="search", phase="completed", call_id="b", **two),
        ToolEvent(at=NOON - 1, server="vault", tool="lookup", phase="started", call_id="c", **two),
        ToolEvent(at=NOON - 0.9, server="vault", tool="lookup", phase="failed", call_id="c", **two),
    )
    return fleet


def pressing(*keys: str, until_text: str = "2 runs") -> Before:
    """Wait for the panes and the fleet, press keys, wait for a text."""

    async def before(pilot: Pilot[Any]) -> None:
        app: Any = pilot.app
        await until(lambda: isinstance(app.focused, Input | Failure), pilot)
        await pilot.press(*keys)
        await until(lambda: until_text in screen_text(app), pilot)
        # Until the bottom line and the title bars have followed the focus.
        for _ in range(3):
            await pilot.pause()

    return before


@pytest.mark.slow
async def test_the_main_screen(pictures: Pictures) -> None:
    app = workbench(busy(), settings=Settings("textual-dark", ascii=False))
    await pictures(app, pressing(), in_sizes("80x24", "120x40", "200x50") + in_themes("80x24", "light"))


async def test_the_main_screen_while_faults_are_injected(pictures: Pictures) -> None:
    fleet = busy()
    fleet.current = replace(fleet.current, faults="429 to gpt-5 at call 1 (faults.yaml)")
    app = workbench(fleet, settings=Settings("textual-dark", ascii=False))
    await pictures(app, pressing(until_text="faults"), in_sizes("80x24", "120x40"))


@pytest.mark.slow
async def test_the_agents_in_a_small_terminal(pictures: Pictures) -> None:
    app = workbench(busy(), settings=Settings("textual-dark", ascii=False))
    before = pressing("f2", "down", "down", "down", "down", until_text="tickets: connection refused")
    await pictures(app, before, DARK_AND_LIGHT)


async def test_the_feed_in_a_small_terminal(pictures: Pictures) -> None:
    app = workbench(busy(), settings=Settings("textual-dark", ascii=False))
    before = pressing("f4", until_text="vault/lookup")
    await pictures(app, before, DARK_AND_LIGHT)


@pytest.mark.slow
async def test_the_feed_while_it_is_filtered_and_read(pictures: Pictures) -> None:
    app = workbench(busy())

    async def before(pilot: Pilot[Any]) -> None:
        await pressing("f4", "home", until_text="vault/lookup")(pilot)
        fleet: Any = app.fleet
        fleet.say(RunStarted(at=NOON, run_id="r9", agent="research", preview="customers in June"))
        await until(lambda: "1 new below" in screen_text(app), pilot)
        await pilot.press("slash", *"customers")
        await until(lambda: "filter: customers" in screen_text(app), pilot)
        app.main.query_one("#feed-filter", Input).cursor_blink = False
        await pilot.pause()

    await pictures(app, before, size="120x40")


async def test_ascii_and_no_colour(pictures: Pictures, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = workbench(busy(), settings=Settings("textual-dark", ascii=True))
    await pictures(app, pressing("f2"), size="120x40")


async def test_sixteen_colours(pictures: Pictures) -> None:
    app = workbench(busy(), settings=Settings("ansi-dark", ascii=False))
    await pictures(app, pressing("f2"), size="120x40")


async def test_the_start(pictures: Pictures) -> None:
    fleet = FakeFleet(replace(desk(), state=FleetState.STARTING))
    states = (AgentState.WAITING, AgentState.IMPORTING, AgentState.CONNECTING, AgentState.READY)
    for agent, state in zip(desk().agents, states, strict=True):
        fleet.change(agent.name, state=state, since=NOON - 2, started_in=None)
    app = workbench(fleet)
    await pictures(app, pressing(until_text="import 2 s"), size="120x40")


async def test_a_fleet_that_cannot_start(pictures: Pictures) -> None:
    error = (
        "agents.yaml:3: agents.research.prot: unknown key; allowed are module, port; did you mean port?\n"
        "agents.yaml:9: agents.vision.port: 24202 is also the port of research; each agent needs its own"
    )
    for look in in_sizes("80x24", "120x40"):
        app = workbench(FakeFleet(FleetSnapshot("desk", FleetState.FAILED, NOON, "", error=error)))
        await pictures(app, pressing(until_text="did not start"), (look,))


async def test_the_help(pictures: Pictures) -> None:
    app = workbench(busy())
    before = pressing("f4", "f1", until_text="Every call of every agent")
    await pictures(app, before, size="120x40")


async def test_the_whole_story(pictures: Pictures) -> None:
    app = workbench(busy())
    before = pressing("f2", "down", "down", "down", "down", "i", until_text="Downstreams:")
    await pictures(app, before)


async def test_a_question_in_place(pictures: Pictures) -> None:
    app = workbench(busy())
    before = pressing("f4", "ctrl+q", until_text="2 runs are in flight")
    await pictures(app, before)
