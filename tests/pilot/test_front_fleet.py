"""Agents of every kind in the workbench, and what comes over the bridge: seen, opened, cancelled."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from support import worker_simple
from support.bridged import bridged, tell
from support.fleet_desk import Desk, desk
from support.live import ERAS
from support.notices import notices_of
from support.pictures import picture
from support.ports import free_ports
from support.shell import screen_text
from support.virtual import virtual

from pallas_tui.runs.feed_run import FeedRun
from pallas_tui.screens.record_screens import TasksScreen
from pallas_tui.screens.run_screen import RunScreen
from pallas_tui.targets import AgentTarget, RunTarget
from pallas_tui.widgets.agents import AgentsPane

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("kinds") / "project"
    bridged(root, ("desk", "upper", "slow"), top={"tasks": {"tools": True}})
    coder, broken, front = free_ports(3)
    document = yaml.safe_load((root / "agents.yaml").read_text())
    document["agents"] |= {
        "coder": {
            "kind": "worker",
            "port": coder,
            "command": [sys.executable, str(worker_simple.__file__)],
            "examples": ["Fix the failing test"],
        },
        "broken": {"kind": "worker", "port": broken, "command": ["no-such-program-here"]},
        "front": {"kind": "router", "port": front, "agents": ["coder", "upper"], "fallback": "desk"},
    }
    (root / "agents.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    return root


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(project: Path) -> AsyncIterator[Desk]:
    async with desk(project) as opened:
        yield opened


def pane(here: Desk) -> AgentsPane:
    return here.app.main.query_one(AgentsPane)


async def talk_to(here: Desk, name: str) -> None:
    here.app.main.open_agent(name)
    await here.until(lambda: here.view.conversation.agent == name)


async def ask(here: Desk, text: str, *seen: str) -> None:
    await here.ask(text)
    await here.sees(*seen)
    await here.until(lambda: here.view.conversation.run is None)


async def test_kinds_are_told_apart_and_what_cannot_answer_says_why(here: Desk) -> None:
    await here.press("f2")
    await here.sees("slow handler", "broken worker", "front router")
    assert here.app.main.query_one(AgentsPane).reveal(AgentTarget("broken"))
    await here.sees("no-such-program-here", "agents.yaml:29", "failed")
    assert pane(here).reveal(AgentTarget("coder"))
    await here.sees("kind    worker")
    await talk_to(here, "broken")
    await here.sees("broken cannot answer", "no-such-program-here")


@pytest.mark.slow
async def test_each_kind_is_talked_to_and_the_choice_of_a_router_is_seen(here: Desk) -> None:
    await talk_to(here, "coder")
    await ask(here, "hello worker", "1:hello worker")
    await here.ask("/set temperature 0.5")
    refused = "coder is a worker and takes no parameters: nothing was changed."
    await here.until(lambda: any(refused in each.message for each in notices_of(here.app)))
    assert not here.view.conversation.params
    await talk_to(here, "upper")
    await ask(here, "loud", "LOUD")
    await talk_to(here, "front")
    await ask(here, "Fix the failing test", "1:Fix the failing test", "agent coder", "routed to coder")
    run = next(each for each in here.feed.feed.runs if each.agent == "front")
    here.feed.reveal(RunTarget(run.id))
    here.app.main.show("feed")
    await here.press("enter")
    await here.until(lambda: isinstance(here.app.screen, RunScreen))
    await here.sees("routed to coder by examples")
    await here.press("escape")
    await here.until(lambda: here.app.screen is here.app.main)


async def test_what_has_no_model_says_that_it_takes_no_pictures(here: Desk, tmp_path: Path) -> None:
    (tmp_path / "one.png").write_bytes(picture())
    await talk_to(here, "upper")
    await here.until(lambda: not here.view._prompt.disabled)
    assert await here.view.tray.take(tmp_path / "one.png")
    await here.sees("upper takes no pictures")
    assert "(none)" not in screen_text(here.app)
    here.view.tray.empty()


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
async def test_a_run_over_the_bridge_is_seen_and_cancelled_like_any_other(here: Desk, era: str) -> None:
    before = {run.id for run in here.feed.feed.runs}
    async with virtual(here.fleet, "/mcp", era=era) as bridge:
        session = (await tell(bridge, "sessions_create", agentId="slow"))["sessionId"]
        text = "go on"
        asked = asyncio.ensure_future(
            bridge.call_tool("sessions_prompt", {"sessionId": session, "prompt": text})
        )
        try:

            def newest() -> FeedRun | None:
                return next((run for run in here.feed.feed.runs if run.id not in before), None)

            run: FeedRun = await here.until(newest)
            assert run.surface == "bridge"
            here.app.main.show("feed")
            await here.sees("bridge · go on")
            here.feed.reveal(RunTarget(run.id))
            await here.press("enter")
            await here.until(lambda: isinstance(here.app.screen, RunScreen))
            await here.sees("surface       bridge", text, run.id)
            await here.press("escape")
            await here.until(lambda: here.app.screen is here.app.main)
            # How many sessions are open with an agent stands beside it.
            here.app.main.show("agents")
            assert pane(here).reveal(AgentTarget("slow"))
            await here.sees("1 session")
            here.app.main.show("feed")
            here.feed.reveal(RunTarget(run.id))
            await here.press("x")
            await here.sees("Cancel the run of slow")
            await here.press("y")
            await here.until(lambda: run.state == "cancelled")
            answer: Any = await asyncio.wait_for(asked, 30)
            assert answer.is_error
        finally:
            asked.cancel()
            with suppress(Exception):
                await bridge.call_tool("sessions_close", {"sessionId": session})


@pytest.mark.slow
async def test_a_task_of_the_bridge_is_followed_read_and_cancelled(here: Desk) -> None:
    async with virtual(here.fleet, "/mcp", era=ERAS[0]) as bridge:
        asked: dict[str, Any] = {"agentId": "upper", "prompt": "say it loud", "wait": False}
        done = await tell(bridge, "tasks_delegate", **asked)
        await here.press("alt+k")
        await here.until(lambda: isinstance(here.app.screen, TasksScreen))
        await here.sees("say it loud", "upper", "done", "SAY IT LOUD", f"{done['taskId'][:8]}…")
        # Nobody is there any more who asked; the list follows it all the same.
        await tell(bridge, "tasks_delegate", agentId="slow", prompt="for ever", wait=False)
    await here.sees("working", "for ever", "1 under way")
    await here.press("home", "x")
    await here.sees("Cancel the task of slow: for ever?")
    await here.press("y")
    await here.sees("cancelled")
    await here.until(lambda: "under way" not in screen_text(here.app))
    await here.press("down", "t")
    await here.until(lambda: here.app.screen is here.app.main)
    await here.sees("SAY IT LOUD")
    assert here.view.conversation.agent == "upper"
