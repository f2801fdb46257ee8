"""The whole workbench over a fleet that really runs, in its own thread."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from textual.pilot import Pilot

from pallas.fleet.fleet import Fleet
from pallas.fleet.reload.verdict_judge import VerdictJudge
from pallas.fleet.threaded_fleet import ThreadedFleet
from pallas.model import FleetState
from pallas_tui.app import Workbench
from pallas_tui.launch import late_panes
from pallas_tui.settings import Settings
from pallas_tui.widgets.chat import ChatPane
from pallas_tui.widgets.chat.conversation_view import ConversationView
from pallas_tui.widgets.chat.prompt_area import PromptArea
from pallas_tui.widgets.feed import FeedPane
from pallas_tui.widgets.pane import Pane

from .shell import DrivenWorkbench
from .waiting import until


class Desk(DrivenWorkbench):
    """The workbench over a fleet in its own thread."""

    def __init__(self, app: Workbench, pilot: Pilot[Any], fleet: Fleet) -> None:
        super().__init__(app, pilot)
        self.fleet = fleet

    def http(self) -> httpx2.AsyncClient:
        """A client of the fleet's REST API."""
        return httpx2.AsyncClient(base_url=f"{self.fleet.ports.origin}/api/v1", trust_env=False, timeout=60)

    @property
    def feed(self) -> FeedPane:
        """The feed."""
        return self.app.main.query_one(FeedPane)

    @property
    def view(self) -> ConversationView:
        """The conversation in front."""
        view = self.app.main.query_one(ChatPane)._current
        assert view is not None
        return view

    async def ask(self, text: str) -> None:
        """Ask in the conversation in front, and wait for the end of it."""
        await self.until(lambda: not self.view._prompt.disabled)
        self.view.focus_prompt()
        self.view._prompt.insert(text)
        await self.press("enter")
        await self.until(lambda: self.view.conversation.run is None)


@asynccontextmanager
async def desk(
    root: Path, home: Path | None = None, *, watch: bool = False, judge: VerdictJudge | None = None
) -> AsyncIterator[Desk]:
    """The workbench once the fleet of the project at ``root`` runs, which may watch its files and judge."""
    before = Path.cwd()
    thread = ThreadedFleet(root, watch=watch, judge=judge)
    log = root / "pallas.log"
    log.touch()
    app = Workbench(
        lambda: thread,
        name="test",
        root=root,
        late=late_panes(log),
        settings=Settings("textual-dark", False),
        home=home,
        strict=True,
    )
    try:
        async with app.run_test(size=(120, 40)) as pilot:
            await until(lambda: len(app.main.query(Pane)) == 5, pilot)
            await until(lambda: thread.snapshot().state is FleetState.RUNNING, pilot, 60)
            await until(lambda: app.main.query(PromptArea), pilot)
            await until(lambda: app.main.query_one(ChatPane)._current is not None, pilot)
            fleet = thread._fleet
            assert fleet is not None
            yield Desk(app, pilot, fleet)
    finally:
        await asyncio.to_thread(thread.stop, 10)
        os.chdir(before)
