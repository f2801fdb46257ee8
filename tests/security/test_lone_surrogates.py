"""Half of a surrogate pair, which no encoding carries: refused, or replaced where a model wrote it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from support.fake_downstreams import serving
from support.live import ERAS, agent_module, ask, client, running, write_project
from support.raw_client import handshake, post

HALF = "half \ud800"
KEEPING = '''

def keep(text: str) -> str:
    """Return it."""
    return text


'''


class Writing:
    """A model that writes half pairs: first a call of a tool, then an answer, then what it was asked last."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []

    async def answer(self, request: Request) -> Response:
        """The next answer as a stream; a body that is no UTF-8 is refused."""
        self.bodies.append(json.loads((await request.body()).decode("utf-8")))
        call = {
            "index": 0,
            "id": "c1",
            "type": "function",
            "function": {"name": "keep", "arguments": json.dumps({"text": HALF})},
        }
        deltas: list[dict[str, Any]] = [{"tool_calls": [call]}, {"content": HALF}, {"content": "whole"}]
        number = len(self.bodies) - 1
        reason = "tool_calls" if number == 0 else "stop"
        head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        events = [
            {**head, "choices": [{"index": 0, "delta": deltas[min(number, 2)], "finish_reason": None}]},
            {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        ]
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        return Response(text, media_type="text/event-stream")


@asynccontextmanager
async def writing() -> AsyncIterator[tuple[str, Writing]]:
    model = Writing()
    async with serving(
        Starlette(routes=[Route("/v1/chat/completions", model.answer, methods=["POST"])])
    ) as at:
        yield f"{at}/v1", model


async def send_raw(url: str, era: str, arguments: Any) -> str:
    """The answer to a call that official clients would not make."""
    params: dict[str, Any] = {"name": "send_message", "arguments": arguments}
    headers = {"connection": "close"}
    if era == "legacy":
        headers |= {"mcp-session-id": await handshake(url), "mcp-protocol-version": "2025-11-25"}
    else:
        headers |= {"mcp-protocol-version": era, "mcp-method": "tools/call", "mcp-name": "send_message"}
        key = "io.modelcontextprotocol"
        params["_meta"] = {
            f"{key}/protocolVersion": era,
            f"{key}/clientInfo": {"name": "raw", "version": "1"},
            f"{key}/clientCapabilities": {},
        }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    reader, writer = await post(url, body, headers)
    try:
        return (await asyncio.wait_for(reader.read(), 60)).decode()
    finally:
        writer.close()


@pytest.mark.slow
async def test_half_a_surrogate_pair_is_refused_or_replaced(tmp_path: Path) -> None:
    async with writing() as (at, model):
        config = {"default_model": "generic.writing", "generic": {"base_url": at, "api_key": "offline"}}
        source = agent_module("desk", function_tools="KEEP").replace("'KEEP'", "[keep]")
        source = source.replace("\n\nfast =", f"{KEEPING}fast =", 1)
        root = write_project(tmp_path / "project", {"desk": source}, config=config)
        async with running(root) as fleet:
            (agent,) = fleet.agents
            for era in ERAS:
                answer = await send_raw(agent.url, era, {"message": HALF})
                # The SDK's own parser refuses it in the handshake versions.
                assert "surrogate" in answer or "Parse error" in answer
            assert model.bodies == []
            async with client(fleet, "desk") as desk:
                await ask(desk, "write", conversation_id="a")
                await ask(desk, "go on", conversation_id="a")
    # One request for each step: none was tried again.
    assert len(model.bodies) == 3
    told = json.dumps(model.bodies[2])
    assert "half \\ufffd" in told
    assert "\\ud800" not in told
