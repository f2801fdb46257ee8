"""How often: tool calls in one answer of a model, progress and changes that a server tells of."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from support.chatty_server import COMMAND
from support.fake_downstreams import serving
from support.live import agent_module, ask, client, running, write_project
from support.served import fault_in

from pallas.executors.fastagent import run_progress
from pallas.executors.fastagent.loop_guard import MAX_CALLS
from pallas.model import ToolEvent

CHATTY = {
    "mcp": {"servers": {"chatty": {"command": sys.executable, "args": [COMMAND], "protocol_mode": "legacy"}}}
}


async def test_a_model_makes_no_more_tool_calls_at_once_than_the_limit(tmp_path: Path) -> None:
    asked = 0

    async def answer(_: Request) -> Response:
        nonlocal asked
        asked += 1
        calls = [
            {
                "index": number,
                "id": f"c{number}",
                "type": "function",
                "function": {"name": "chatty__listed", "arguments": json.dumps({"number": number})},
            }
            for number in range(MAX_CALLS + 1)
        ]
        head: dict[str, Any] = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        events = [
            {**head, "choices": [{"index": 0, "delta": {"tool_calls": calls}, "finish_reason": None}]},
            {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        ]
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        return Response(text, media_type="text/event-stream")

    routes = [Route("/v1/chat/completions", answer, methods=["POST"])]
    async with serving(Starlette(routes=routes)) as at:
        config = {
            **CHATTY,
            "default_model": "generic.many",
            "generic": {"base_url": f"{at}/v1", "api_key": "offline"},
        }
        root = write_project(tmp_path / "project", {"desk": agent_module("desk", ("chatty",))}, config=config)
        async with running(root) as fleet, client(fleet, "desk") as desk:
            fault = fault_in(await desk.call_tool("send_message", {"message": "go"}))
            events = fleet.hub.since(0, 20_000).events
    assert asked == 1
    assert fault["data"]["type"] == "UPSTREAM"
    assert f"at most {MAX_CALLS}" in fault["error"]
    assert not [event for event in events if isinstance(event, ToolEvent)]


async def test_progress_of_a_server_beyond_the_limit_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_progress, "MAX_LINES", 300)
    root = write_project(tmp_path / "project", {"desk": agent_module("desk", ("chatty",))}, config=CHATTY)
    async with running(root) as fleet, client(fleet, "desk") as desk:
        await ask(desk, '***CALL_TOOL chatty__progress {"times": 1000}')
        nested = [each for each in fleet.hub.since(0, 20_000).events if getattr(each, "nested", False)]
    assert len(nested) == 300


async def test_tools_that_change_all_the_time_are_listed_now_and_then(
    tmp_path: Path,
) -> None:
    root = write_project(tmp_path / "project", {"desk": agent_module("desk", ("chatty",))}, config=CHATTY)
    async with running(root) as fleet, client(fleet, "desk") as desk:
        before = int((await ask(desk, "***CALL_TOOL chatty__listed {}")).rpartition("\n")[2])
        await ask(desk, '***CALL_TOOL chatty__changed {"times": 500}')
        for _ in range(20):
            after = int((await ask(desk, "***CALL_TOOL chatty__listed {}")).rpartition("\n")[2])
    assert before < after <= before + 3
