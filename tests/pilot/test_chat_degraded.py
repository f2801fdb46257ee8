"""The chat pane over a real fleet whose agent has lost one of its MCP servers."""

from pathlib import Path
from typing import Any, cast

import pytest
from support.chat import Chat
from support.live import agent_module, running, tool_call, write_project
from support.outages import outages
from support.pane_app import PaneApp
from textual.widgets import Static

from pallas.fleet.health_monitor import CheckIntervals
from pallas.model import HealthStatus, ServerMissing
from pallas_tui.widgets.chat import ChatPane


@pytest.mark.slow
async def test_a_degraded_agent_answers_in_the_chat_and_one_in_error_cannot_be_written_to(
    tmp_path: Path,
) -> None:
    # PI-17
    async with outages("left", "right") as (left, right):
        entries = {each.name: {"url": each.url} for each in (left, right)}
        write_project(
            tmp_path,
            {"one": agent_module("one", ("left", "right"))},
            config={"mcp": {"servers": entries}},
            keys={"one": {"servers": {"left": {"required": True}}}},
        )
        await right.stop()
        pane = ChatPane(base=tmp_path / "chats")
        app = PaneApp(pane)
        async with (
            running(tmp_path, pace=CheckIntervals(health=0.2, confirm=0.1)) as fleet,
            app.run_test(size=(100, 30)) as pilot,
        ):
            chat = Chat(app, pane, pilot, cast("Any", None))

            def shown(status: HealthStatus) -> bool:
                (agent,) = fleet.snapshot().agents
                app.feed(agent)
                return agent.health.status is status

            await chat.until(lambda: shown(HealthStatus.DEGRADED))
            await chat.until(lambda: chat.view.is_mounted and chat.prompt.has_focus)
            await chat.until(lambda: "Unreachable: right" in app.screen_text())
            assert chat.view.query_one(".chat-banner", Static).has_class("-degraded")
            await chat.type(tool_call("left__say", text="still here"))
            await chat.until(lambda: any("left:still here" in text for text in chat.texts()))
            await chat.until(lambda: chat.texts()[-1] == "Answered without right (cannot be reached).")
            told = [event for event in fleet.hub.since(0).events if isinstance(event, ServerMissing)]
            assert [(event.server, event.why) for event in told] == [("right", "cannot be reached")]
            await left.stop()
            await chat.until(lambda: shown(HealthStatus.ERROR))
            await chat.until(lambda: chat.prompt.disabled)
            await left.start()
            await right.start()
            await chat.until(lambda: shown(HealthStatus.OK))
            await chat.until(lambda: not chat.prompt.disabled)
