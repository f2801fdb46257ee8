"""A real fleet in the workbench: runs of every surface are seen and cancelled; threads outlast the fleet."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.live import ERAS, agent_module, client
from support.offline import model_record, offline_project
from support.shell import screen_text
from support.virtual import virtual
from support.waiting import until
from textual.pilot import Pilot

from pallas.fleet.fleet import Fleet
from pallas.fleet.thread import FleetThread
from pallas.model import FleetState
from pallas_tui.app import Workbench
from pallas_tui.launch import late_panes
from pallas_tui.runs.run import Run
from pallas_tui.screens.run import RunScreen
from pallas_tui.screens.threads import ThreadsScreen
from pallas_tui.settings import Settings
from pallas_tui.widgets.chat import ChatPane
from pallas_tui.widgets.chat.prompt import Prompt
from pallas_tui.widgets.chat.view import ConversationView
from pallas_tui.widgets.feed import FeedPane
from pallas_tui.widgets.pane import Pane

SCRIPT = """
rules:
  - when: {last: user, text: slow tool}
    call: [{tool: echo__slow, arguments: {text: "x"}}]
  - when: {last: user, text: use your tool}
    call: [{tool: echo__echo, arguments: {text: "deep"}}]
  - when: {last: user}
    say: "turn {{ turns }}"
  - when: {last: tool}
    say: "It said deep."
"""


class Desk:
    """The workbench over a fleet in its own thread."""

    def __init__(self, app: Workbench, pilot: Pilot[Any], fleet: Fleet) -> None:
        self.app, self.pilot, self.fleet = app, pilot, fleet

    async def until(self, condition: Callable[[], Any]) -> Any:
        return await until(condition, self.pilot, 60)

    async def sees(self, *texts: str) -> None:
        try:
            await self.until(lambda: all(text in screen_text(self.app) for text in texts))
        except AssertionError as error:
            raise AssertionError(f"{texts} not on the screen:\n{screen_text(self.app)}") from error

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    def http(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=f"{self.fleet.doors.origin}/api/v1", trust_env=False, timeout=60)

    @property
    def feed(self) -> FeedPane:
        return self.app.main.query_one(FeedPane)

    @property
    def view(self) -> ConversationView:
        view = self.app.main.query_one(ChatPane)._current
        assert view is not None
        return view

    async def ask(self, text: str) -> None:
        await self.until(lambda: not self.view._prompt.disabled)
        self.view.focus_prompt()
        self.view._prompt.insert(text)
        await self.press("enter")
        await self.until(lambda: self.view.conversation.run is None)


@asynccontextmanager
async def desk(root: Path, home: Path | None = None) -> AsyncIterator[Desk]:
    before = Path.cwd()
    thread = FleetThread(root)
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
            await until(lambda: app.main.query(Prompt), pilot)
            fleet = thread._fleet
            assert fleet is not None
            yield Desk(app, pilot, fleet)
    finally:
        await asyncio.to_thread(thread.stop, 10)
        os.chdir(before)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    return offline_project(root, {"worker": agent_module("worker", ("echo",))}, SCRIPT)


async def test_a_run_of_any_surface_is_seen_opened_and_cancelled(project: Path) -> None:
    # UN-2
    async with desk(project) as here:

        async def rest() -> None:
            async with here.http() as http:
                await http.post("/agents/worker/chat", json={"message": "slow tool"})

        def mcp(era: str) -> Callable[[], Awaitable[None]]:
            async def send() -> None:
                async with client(here.fleet, "worker", era=era) as connected:
                    await connected.call_tool("send_message", {"message": "slow tool"})

            return send

        async def as_tool() -> None:
            async with virtual(here.fleet, "/virtual/agent-worker/mcp", era=ERAS[0]) as connected:
                await connected.call_tool("chat", {"message": "slow tool"})

        surfaces: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("rest", rest),
            *(("mcp", mcp(era)) for era in ERAS),
            ("agent-tool", as_tool),
        ]
        await here.press("f4")
        for number, (surface, send) in enumerate(surfaces, 1):
            await here.press("f")
            asked = asyncio.ensure_future(send())
            try:

                def newest(number: int = number) -> Run | None:
                    runs = here.feed.feed.runs
                    found = runs[-1] if len(runs) == number else None
                    calling = found is not None and any(step.call_id for step in found.steps)
                    return found if calling else None

                run: Run = await here.until(newest)
                assert run.surface == surface
                await here.sees("echo/slow", "running")
                if surface != "mcp":
                    await here.sees(f"{surface} · slow")
                here.feed.reveal(_target(run))
                await here.press("enter")
                await here.until(lambda: isinstance(here.app.screen, RunScreen))
                await here.sees("surface", surface, "slow tool", run.id)
                await here.press("escape")
                await here.until(lambda: here.app.screen is here.app.main)
                await here.press("x")
                await here.sees("Cancel the run of worker")
                await here.press("y")
                await here.until(lambda run=run: run.state == "cancelled")
                await asyncio.wait_for(asyncio.shield(_over(asked)), 30)
            finally:
                asked.cancel()
        await here.sees("cancelled")


async def _over(asked: asyncio.Future[None]) -> None:
    await asyncio.wait({asked})


def _target(run: Run) -> Any:
    from pallas_tui.targets import RunTarget

    return RunTarget(run.id)


async def test_threads_of_every_surface_outlast_the_fleet_and_are_gone_on_with(
    project: Path, tmp_path: Path
) -> None:
    home = tmp_path / "workbench.yaml"
    async with desk(project, home) as here:
        await here.ask("said in the workbench")
        await here.until(lambda: here.view.conversation.thread)
        async with here.http() as http:
            answer = await http.post("/agents/worker/chat", json={"message": "use your tool, over REST"})
            assert answer.status_code == 200, answer.text
            other = answer.json()["threadId"]
        await here.press("alt+t")
        await here.until(lambda: isinstance(here.app.screen, ThreadsScreen))
        await here.sees("use your tool, over REST", "said in the workbench", "rest", "mcp", "2 threads")
        mine = here.view.conversation.thread
        assert {record.id for record in here.app.threads.records} == {mine, other}
        await here.press("escape")

    async with desk(project, home) as here:
        # The tab of before is there again, with what was said.
        await here.sees("said in the workbench", "turn 1")
        assert here.view.conversation.thread == mine
        await here.ask("and now?")
        await here.sees("turn 2")
        assert here.view.conversation.thread == mine
        said = [message["content"] for message in model_record(here.fleet).requests[-1]["messages"]]
        assert any("said in the workbench" in str(each) for each in said)

        await here.ask("/resume " + other)
        await here.until(lambda: here.view.conversation.thread == other)
        await here.sees("use your tool, over REST", "echo/echo", "It said deep.")
        await here.ask("go on")
        await here.sees("turn 2")
        assert here.app.fleet is not None
        page = await here.app.fleet.thread_messages(other)
        assert [row.role for row in page.items if row.role == "user"] == ["user", "user"]
