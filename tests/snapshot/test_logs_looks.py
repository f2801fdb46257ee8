"""How the logs pane looks; `make test ARGS="tests/snapshot --snapshot-update"` after an intended change."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.looks import CONTRAST
from support.pane_app import PaneApp, still
from support.waiting import until
from textual.pilot import Pilot

from pallas_tui.widgets.logs import LogsPane

TINY, SMALL, WIDE = (60, 20), (80, 24), (120, 40)
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
            "logger": ("pallas.fleet", "pallas.executors.fastagent.pool", "mcp")[number % 3],
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


@pytest.mark.parametrize("size", [TINY, SMALL, WIDE], ids=["tiny", "small", "wide"])
@pytest.mark.parametrize("theme", ["textual-dark", "textual-light", CONTRAST])
def test_the_log(snap_compare: Callable[..., bool], log: Path, size: tuple[int, int], theme: str) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        pilot.app.theme = theme
        await settle(pilot, "12:59:07.059", "up", "up", "up")

    assert snap_compare(PaneApp(LogsPane(log)), terminal_size=size, run_before=before)


@pytest.mark.parametrize("size", [TINY, SMALL, WIDE], ids=["tiny", "small", "wide"])
def test_a_record_in_full(snap_compare: Callable[..., bool], log: Path, size: tuple[int, int]) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        await settle(pilot, "Traceback", "up", "enter")

    assert snap_compare(PaneApp(LogsPane(log)), terminal_size=size, run_before=before)


@pytest.mark.parametrize("size", [TINY, SMALL, WIDE], ids=["tiny", "small", "wide"])
def test_a_filtered_log(snap_compare: Callable[..., bool], log: Path, size: tuple[int, int]) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        await settle(pilot, "12:57:07.057", "l", "l", "slash", *"refused")

    assert snap_compare(PaneApp(LogsPane(log)), terminal_size=size, run_before=before)


@pytest.mark.parametrize("size", [TINY, SMALL, WIDE], ids=["tiny", "small", "wide"])
def test_what_is_found_in_wrapped_records(
    snap_compare: Callable[..., bool], log: Path, size: tuple[int, int]
) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        keys = ("w", "slash", *"level>=info agent:*", "enter", "s", *"run 7f3[ab]", "enter")
        await settle(pilot, "run 7f3b", *keys)
        pane = pilot.app.query_one(LogsPane)
        await until(lambda: "found" in pane.caption and not pane._source.finding, pilot)

    assert snap_compare(PaneApp(LogsPane(log)), terminal_size=size, run_before=before)


def test_a_mistake_in_the_filter(snap_compare: Callable[..., bool], log: Path) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        await settle(pilot, "no such level", "slash", *"refused level>=grave")

    assert snap_compare(PaneApp(LogsPane(log)), terminal_size=SMALL, run_before=before)


def test_no_log_yet(snap_compare: Callable[..., bool]) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        await settle(pilot, "There is no log yet")

    path = Path("/nowhere/.local/state/pallas/pallas.log")
    assert snap_compare(PaneApp(LogsPane(path)), terminal_size=SMALL, run_before=before)
