"""How the feed and a run look. Intended changes: ``make test ARGS="tests/snapshot --snapshot-update"``."""

import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from support.fake_fleet import NOON, FakeFleet, step_event
from support.looks import EACH_LOOK, Pictures, in_sizes
from support.shell import screen_text, workbench
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from benchmarks.invented_runs import Call, Plot, Turn, recorded
from pallas.model import Event, Exchange, RunFinished, RunStarted, ToolEvent
from pallas.recordings.run_diff import diff
from pallas_tui.runs.run_comparison import Comparison, DiffSource
from pallas_tui.screens.run_screen import DiffScreen
from pallas_tui.settings import Settings


def story() -> Iterator[Event]:
    """A call through three agents, one step of which failed; another one still runs."""
    top, mid = {"run_id": "r1", "agent": "concierge"}, {"run_id": "r2", "agent": "research"}
    low: dict[str, Any] = {"run_id": "r3", "agent": "engineering"}
    trace: dict[str, Any] = {"trace_id": "0af7651916cd43dd8448eb211c80319c"}
    to_mid: dict[str, Any] = {
        "server": "research",
        "tool": "send_message",
        "call_id": "a",
        "span_id": "s1",
        **top,
    }
    to_low: dict[str, Any] = {"server": "engineering", "tool": "ask", "call_id": "c", "span_id": "s2", **mid}
    docs: dict[str, Any] = {"server": "docs", "tool": "search", "call_id": "b", **mid}
    yield RunStarted(
        at=NOON - 8,
        preview="Which customers were hit by the May invoice bug?",
        caller="inspector",
        **trace,
        **top,
    )
    yield step_event("r1", 1, NOON - 8, seconds=1.0)
    ask = {"parent": 1, "kind": "tool", "name": "research__ask", "call_id": "a", "span_id": "s1"}
    yield step_event("r1", 2, NOON - 7, **ask)
    yield ToolEvent(at=NOON - 7, phase="started", **to_mid)
    yield RunStarted(
        at=NOON - 7, preview="customers hit by the bug", parent_span="s1", caller="pallas", **trace, **mid
    )
    yield step_event("r2", 1, NOON - 7, agent="research", seconds=1.0)
    search = {"agent": "research", "parent": 1, "kind": "tool", "name": "docs__search", "call_id": "b"}
    yield step_event("r2", 2, NOON - 6, **search, seconds=1.5, state="failed")
    yield ToolEvent(at=NOON - 6, phase="started", **docs)
    yield ToolEvent(at=NOON - 4.5, phase="failed", **docs)
    engineering = {"agent": "research", "parent": 1, "kind": "agent", "name": "engineering", "call_id": "c"}
    yield step_event("r2", 3, NOON - 4, **engineering, span_id="s2", seconds=1.0)
    yield ToolEvent(at=NOON - 4, phase="started", **to_low)
    yield RunStarted(at=NOON - 4, preview="tickets of May", parent_span="s2", **trace, **low)
    yield RunFinished(
        at=NOON - 3, outcome="error", seconds=1.0, fault="UPSTREAM: tickets: connection refused", **low
    )
    yield ToolEvent(at=NOON - 3, phase="completed", **to_low)
    yield step_event("r2", 4, NOON - 3, agent="research", seconds=2.0)
    yield RunFinished(at=NOON - 1, outcome="ok", seconds=6.0, **mid)
    yield step_event("r1", 2, NOON - 7, **ask, seconds=6.0)
    yield ToolEvent(at=NOON - 1, phase="completed", **to_mid)
    yield step_event("r1", 3, NOON - 1)


def busy() -> FakeFleet:
    fleet = FakeFleet()
    fleet.change("concierge", runs_active=1)
    fleet.say(*story())
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "send_message"}}
    known: dict[str, Any] = {"run_id": "r1", "method": "tools/call", "request": json.dumps(asked)}
    fleet.wire["r1"] = (
        Exchange(at=NOON - 8, side="inbound", peer="inspector", **known),
        Exchange(
            at=NOON - 7,
            side="downstream",
            peer="research",
            status=200,
            seconds=5.9,
            response="{}",
            span_id="s1",
            **known,
        ),
    )
    return fleet


def pressing(*keys: str, until_text: str) -> Callable[[Pilot[Any]], Awaitable[None]]:
    async def before(pilot: Pilot[Any]) -> None:
        app: Any = pilot.app
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f4")
        await until(lambda: app.main.query_one("FeedPane").feed.active == 1, pilot)
        await pilot.press(*keys)
        await until(lambda: until_text in screen_text(app), pilot)
        for _ in range(3):
            await pilot.pause()

    return before


@pytest.mark.slow
async def test_the_feed_as_a_tree_with_its_waterfall(pictures: Pictures) -> None:
    app = workbench(busy(), settings=Settings("textual-dark", ascii=False))
    await pictures(app, pressing("f", until_text="research"), EACH_LOOK)


async def test_the_feed_with_bars_in_ascii(pictures: Pictures) -> None:
    app = workbench(busy(), settings=Settings(theme="textual-light", ascii=True))
    before = pressing("z", until_text="connection refused")
    await pictures(app, before, size="120x40")


@pytest.mark.slow
async def test_a_run_on_its_own_screen(pictures: Pictures) -> None:
    app = workbench(busy(), settings=Settings("textual-dark", ascii=False))
    before = pressing("home", "enter", until_text="inspector")
    await pictures(app, before, EACH_LOOK)


def forkable() -> FakeFleet:
    """A run of two steps that is over."""
    lamps = Call("shelf__find", {"what": "lamps"}, "three lamps")
    fleet, run = FakeFleet(), {"run_id": "r1", "agent": "research"}
    plot = Plot("How many lamps are on the shelf?", (Turn("", (lamps,)), Turn("Three.")))
    fleet.recordings["r1"] = recorded(plot, 1)
    first = fleet.recordings["r1"].first
    fleet.model_steps["r1"] = first.steps
    fleet.say(
        RunStarted(at=NOON - 8, preview=first.question, **run),  # type: ignore[arg-type]
        RunFinished(at=NOON, outcome="ok", seconds=8.0, **run),  # type: ignore[arg-type]
    )
    return fleet


def from_step(number: int, *keys: str, until_text: str) -> Callable[[Pilot[Any]], Awaitable[None]]:
    async def before(pilot: Pilot[Any]) -> None:
        app: Any = pilot.app
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("f4")
        await until(lambda: app.main.query_one("FeedPane").feed.run("r1") is not None, pilot)
        await pilot.press("enter")
        await until(lambda: app.screen.query_one("#run-list").go_to_step(number), pilot)
        await pilot.press("F")
        await until(lambda: app.screen.query("#fork-text"), pilot)
        app.screen.query_one(TextArea).cursor_blink = False
        await pilot.press(*keys)
        await until(lambda: until_text in screen_text(app), pilot)

    return before


@pytest.mark.slow
async def test_a_call_from_which_a_run_goes_on(pictures: Pictures) -> None:
    app = workbench(forkable(), settings=Settings("textual-dark", ascii=False))
    await pictures(app, from_step(2, until_text="Nothing is called"), EACH_LOOK)


async def test_a_call_that_is_made_again(pictures: Pictures) -> None:
    app = workbench(forkable(), settings=Settings("textual-dark", ascii=False))
    await pictures(app, from_step(2, "ctrl+r", until_text="called for real"), in_sizes("80x24"))


@pytest.mark.slow
async def test_a_question_from_which_a_run_goes_on(pictures: Pictures) -> None:
    app = workbench(forkable(), settings=Settings("textual-light", ascii=True))
    await pictures(app, from_step(1, until_text="as it was"), in_sizes("80x24"))


@pytest.mark.slow
async def test_a_replay_beside_its_recording(pictures: Pictures) -> None:
    lamps = Call("find", {"what": "lamps"}, "three lamps")
    plot = Plot("How many?", (Turn("I look.", (lamps,)), Turn("Three lamps.")))
    other = replace(plot, turns=(plot.turns[0], Turn("Four lamps.")))
    app = workbench(FakeFleet())

    async def read() -> Comparison:
        verdict = "it differs from the recording: step 3 of research: another answer of scripted: answer is "
        verdict += '"Four lamps.", and was "Three lamps."'
        return Comparison(diff(recorded(plot, 1), recorded(other, 2)), verdict, is_same=False)

    async def before(pilot: Pilot[Any]) -> None:
        await until(lambda: isinstance(app.focused, Input), pilot)
        names = ("research 3f1c9a0e7b52", "replay of research 3f1c9a0e7b52")
        app.push_screen(DiffScreen(DiffSource(names, read, 60.0, kind="replay"), app.glyphs))
        await until(lambda: "Four lamps." in screen_text(app), pilot)
        for _ in range(3):
            await pilot.pause()

    await pictures(app, before, in_sizes("80x24", "120x40"))
