"""How the logs pane looks; `make test ARGS="tests/snapshot --snapshot-update"` after an intended change."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.looks import EACH_SIZE, Pictures, in_sizes, in_themes
from support.pane_app import PaneApp, still
from support.waiting import until
from textual.pilot import Pilot

from pallas_tui.widgets.logs import LogsPane

LEVELS = ("INFO", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
SAID = (
    "run 7f3a of concierge started",
    "docs/search answered in 0.4 s",
    "run 7f3a of concierge answered in 3.1 s with 4 steps and 3 tool calls, among them one of another agent",
    "tickets does not answer: connection refused",
    "run 7f3b of engineering failed",
    "the fleet cannot go on",
)
TRACE = (
    'Traceback (most recent call last):\n  File "agents/engineering.py", line 31, in ask\n    raise Refused\n'
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    lines = []
    for number in range(60):
        record: dict[str, object] = {
            "time": f"2026-06-01T12:{number:02}:07.{number:03}+00:00",
            "level": LEVELS[number % 6],
            "logger": ("pallas.fleet", "pallas.executors.fastagent.instance_pool", "mcp")[number % 3],
            "message": SAID[number % 6],
        }
        if number % 2 == 0:
            record["agent"] = "concierge"
        if number % 6 == 4:
            record["exc"] = f"{TRACE}pallas.model.fault.Fault: tickets: connection refused"
        lines.append(json.dumps(record))
    lines.insert(58, "a line that something else wrote [bold]as it stands[/]")
    path = tmp_path / "pallas.log"
    path.write_text("\n".join(lines) + "\n")
    return path


async def settle(pilot: Pilot[Any], text: str, *keys: str) -> None:
    app = pilot.app
    assert isinstance(app, PaneApp)
    pane = app.query_one(LogsPane)
    pane.focus_pane()
    await until(lambda: pane.lines.line_count() == (61 if pane._source.path.exists() else 0), pilot)
    await pilot.press(*keys)
    await until(lambda: text in app.screen_text() and not pane._source.busy, pilot)
    still(app)
    await pilot.pause()


@pytest.mark.slow
async def test_the_log(pictures: Pictures, log: Path) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        await settle(pilot, "12:59:07.059", "up", "up", "up")

    await pictures(PaneApp(LogsPane(log)), before, in_sizes("80x24") + in_themes("80x24"))
    for look in in_sizes("60x20", "120x40"):
        await pictures(PaneApp(LogsPane(log)), before, (look,))


@pytest.mark.slow
async def test_a_record_in_full(pictures: Pictures, log: Path) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        await settle(pilot, "Traceback", "up", "enter")

    for look in EACH_SIZE:
        await pictures(PaneApp(LogsPane(log)), before, (look,))


@pytest.mark.slow
async def test_a_filtered_log(pictures: Pictures, log: Path) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        await settle(pilot, "12:57:07.057", "l", "l", "slash", *"refused")

    await pictures(PaneApp(LogsPane(log)), before, in_sizes("80x24", "120x40"))
    await pictures(PaneApp(LogsPane(log)), before, in_sizes("60x20"))


@pytest.mark.slow
async def test_what_is_found_in_wrapped_records(pictures: Pictures, log: Path) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        keys = ("w", "slash", *"level>=info agent:*", "enter", "s", *"run 7f3[ab]", "enter")
        await settle(pilot, "run 7f3b", *keys)
        pane = pilot.app.query_one(LogsPane)
        await until(lambda: "found" in pane.caption and not pane._source.finding, pilot)

    await pictures(PaneApp(LogsPane(log)), before, in_sizes("80x24", "60x20"))
    await pictures(PaneApp(LogsPane(log)), before, in_sizes("120x40"))


@pytest.mark.slow
async def test_a_mistake_in_the_filter(pictures: Pictures, log: Path) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        await settle(pilot, "no such level", "slash", *"refused level>=grave")

    await pictures(PaneApp(LogsPane(log)), before)


async def test_no_log_yet(pictures: Pictures) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        await settle(pilot, "There is no log yet")

    path = Path("/nowhere/.local/state/pallas/pallas.log")
    await pictures(PaneApp(LogsPane(path)), before)
