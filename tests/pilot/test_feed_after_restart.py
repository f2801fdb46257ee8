"""The feed after a restart: the last runs of the ledger, marked, before what happens from then on."""

import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import time

import pytest
from support.live import ERAS
from support.recorded import recorded_project
from support.served import Served, served
from support.shell import line_with, screen_text, workbench
from support.waiting import until
from textual.pilot import Pilot

from pallas.fleet.threaded_fleet import ThreadedFleet
from pallas.model import FleetState, RunningFleet
from pallas.surfaces.control import control_tokens
from pallas_tui.app import Workbench
from pallas_tui.remote.remote_fleet import RemoteFleet
from pallas_tui.remote.token_source import TokenSource
from pallas_tui.screens.run_screen import RunScreen
from pallas_tui.widgets.feed import FeedPane

TOKEN = "the-control-token-of-the-tests"


async def ask(fleet: Served, text: str, agent: str = "lead") -> None:
    async with fleet.client(agent, ERAS[0]) as client:
        await client.call_tool("send_message", {"message": text})


async def quits(fleet: Served) -> None:
    fleet.send(signal.SIGTERM)
    await fleet.ended()


@asynccontextmanager
async def screen_of(make: Callable[[], RunningFleet]) -> AsyncIterator[tuple[FeedPane, Pilot[None]]]:
    app: Workbench = workbench(make, clock=time)
    async with app.run_test(size=(120, 40)) as pilot:
        try:
            running = FleetState.RUNNING
            await until(lambda: app.fleet is not None and app.fleet.snapshot().state is running, pilot, 60)
            await pilot.press("f4")
            yield app.main.query_one(FeedPane), pilot
        finally:
            if app.fleet is not None:
                app.fleet.stop(30)


def told(pane: FeedPane) -> list[tuple[str, str, bool]]:
    return [(run.preview, run.state, run.is_before) for run in pane.feed.roots]


@pytest.mark.slow
async def test_the_runs_from_before_a_restart_are_in_the_feed_with_their_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALLAS_LOG_FILE", str(tmp_path / "pallas.log"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(control_tokens, "_taken", {})
    root = recorded_project(tmp_path / "desk", top={"database_url": f"sqlite:///{tmp_path}/ledger.db"})
    with served(root, PALLAS_CONTROL_TOKEN=TOKEN) as first:
        await first.says("] running")
        await ask(first, "what is there?")
        await ask(first, "broken", "keeper")
        await quits(first)
    before = [("what is there?", "ok", True), ("broken", "error", True)]

    async with screen_of(lambda: ThreadedFleet(root)) as (pane, pilot):
        app = pane.app
        assert isinstance(app, Workbench)
        await until(lambda: told(pane) == before, pilot, 60)
        lead, _ = pane.feed.roots
        assert {run.agent for run in lead.children()} == {"clerk", "keeper"}
        assert any(step.label == "shelf/find" for run in lead.family() for step in run.steps)
        await until(lambda: "what is" in screen_text(app), pilot, 60)
        await ask(first, "hello", "keeper")
        await until(lambda: told(pane) == [*before, ("hello", "ok", False)], pilot, 60)
        await until(lambda: "hello" in screen_text(app), pilot, 60)
        assert "earlier" not in line_with(app, "hello")
        pane.runs.go_to(lead)
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, RunScreen), pilot)
        await until(lambda: "scripted" in screen_text(app), pilot, 60)  # the model of its steps

    with served(root, PALLAS_CONTROL_TOKEN=TOKEN) as third:
        await third.says("] running")
        link = TokenSource(third.registry, given=TOKEN)
        async with screen_of(lambda: RemoteFleet(third.registry, link)) as (pane, pilot):
            await until(lambda: told(pane) == [*before, ("hello", "ok", True)], pilot, 60)
