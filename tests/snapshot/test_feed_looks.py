"""How the feed and a run look. Intended changes: ``make test ARGS="tests/snapshot --snapshot-update"``."""

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from support.fake_fleet import NOON, FakeFleet
from support.looks import EACH_LOOK, Pictures
from support.shell import screen_text, workbench
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input

from pallas.model import Event, Exchange, RunFinished, RunStarted, StepStarted, ToolEvent
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
    yield StepStarted(at=NOON - 8, actor="concierge", step=1, kind="llm", **top)
    yield ToolEvent(at=NOON - 7, phase="started", **to_mid)
    yield RunStarted(
        at=NOON - 7, preview="customers hit by the bug", parent_span="s1", caller="pallas", **trace, **mid
    )
    yield StepStarted(at=NOON - 7, actor="research", step=1, kind="llm", **mid)
    yield ToolEvent(at=NOON - 6, phase="started", **docs)
    yield ToolEvent(at=NOON - 4.5, phase="failed", **docs)
    yield ToolEvent(at=NOON - 4, phase="started", **to_low)
    yield RunStarted(at=NOON - 4, preview="tickets of May", parent_span="s2", **trace, **low)
    yield RunFinished(
        at=NOON - 3, outcome="error", seconds=1.0, fault="UPSTREAM: tickets: connection refused", **low
    )
    yield ToolEvent(at=NOON - 3, phase="completed", **to_low)
    yield StepStarted(at=NOON - 3, actor="research", step=2, kind="llm", **mid)
    yield RunFinished(at=NOON - 1, outcome="ok", seconds=6.0, **mid)
    yield ToolEvent(at=NOON - 1, phase="completed", **to_mid)
    yield StepStarted(at=NOON - 1, actor="concierge", step=2, kind="llm", **top)


def busy() -> FakeFleet:
    fleet = FakeFleet()
    fleet.change("concierge", runs_active=1)
    fleet.say(*story())
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "send_message"}}
    known: dict[str, Any] = {"run_id": "r1", "method": "tools/call", "request": json.dumps(asked)}
    fleet.wire["r1"] = (
        Exchange(at=NOON - 8, side="inbound", peer="inspector", **known),
        Exchange(
            at=NOON - 7, side="downstream", peer="research", status=200, seconds=6.0, response="{}", **known
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


async def test_the_feed_as_a_tree_with_its_waterfall(pictures: Pictures) -> None:
    app = workbench(busy(), settings=Settings("textual-dark", ascii=False))
    await pictures(app, pressing("f", until_text="research"), EACH_LOOK)


async def test_the_feed_with_bars_in_ascii(pictures: Pictures) -> None:
    app = workbench(busy(), settings=Settings(theme="textual-light", ascii=True))
    before = pressing("z", until_text="connection refused")
    await pictures(app, before, size="120x40")


async def test_a_run_on_its_own_screen(pictures: Pictures) -> None:
    app = workbench(busy(), settings=Settings("textual-dark", ascii=False))
    before = pressing("home", "enter", until_text="inspector")
    await pictures(app, before, EACH_LOOK)
