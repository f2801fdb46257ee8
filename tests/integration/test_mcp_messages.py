"""JSON-RPC messages that are almost requests: each gets an answer, and never that of another request."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from support.executors import Gate
from support.guarded import MODERN, Guarded, call, guarded, headers
from support.raw_client import handshake, handshake_headers

pytestmark = pytest.mark.asyncio(loop_scope="module")
LEGACY = "2025-11-25"
both_versions = pytest.mark.parametrize("version", [MODERN, LEGACY])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def agent() -> AsyncIterator[Guarded]:
    async with guarded(None, gate=False) as found:
        yield found


async def head(agent: Guarded, version: str, method: str = "tools/list") -> dict[str, str]:
    """The headers of a request; in a session of its own where the version has them."""
    if version == MODERN:
        return headers(method)
    return handshake_headers(await handshake(agent.url))


def document(answer: httpx2.Response) -> dict[str, Any]:
    """The JSON of an answer, which may be an event."""
    lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
    found: dict[str, Any] = json.loads(lines[0] if lines else answer.text)
    return found


LIST = call("tools/list", {})
MISTAKES: dict[str, tuple[Any, int, str]] = {
    "fraction": ({**LIST, "id": 1.5}, -32600, '"id"'),
    "whole fraction": ({**LIST, "id": 1.0}, -32600, '"id"'),
    "null": ({**LIST, "id": None}, -32600, '"id"'),
    "true": ({**LIST, "id": True}, -32600, '"id"'),
    "list": ({**LIST, "id": [1]}, -32600, '"id"'),
    "object": ({**LIST, "id": {}}, -32600, '"id"'),
    "parameters by position": ({**LIST, "id": 3, "params": []}, -32602, '"params"'),
    "parameters as text": ({**LIST, "id": "a", "params": "b"}, -32602, '"params"'),
    "note by position": ({"jsonrpc": "2.0", "method": "ping", "params": []}, -32602, '"params"'),
    "batch": ([LIST, LIST], -32600, "batch"),
    "empty batch": ([], -32600, "batch"),
    "text": ("ping", -32600, "JSON object"),
    "number": (5, -32600, "JSON object"),
    "nothing": (None, -32600, "JSON object"),
    "no method": ({"jsonrpc": "2.0", "id": 3}, -32600, '"method"'),
    "method as number": ({**LIST, "id": 3, "method": 3}, -32600, '"method"'),
    "no version": ({"id": 3, "method": "ping"}, -32600, '"jsonrpc"'),
    "old version": ({**LIST, "id": 3, "jsonrpc": "1.0"}, -32600, '"jsonrpc"'),
}


@both_versions
@pytest.mark.parametrize("mistake", MISTAKES)
async def test_a_mistake_is_named_in_a_json_rpc_error(agent: Guarded, version: str, mistake: str) -> None:
    body, code, text = MISTAKES[mistake]
    async with agent.http() as http:
        sent = await head(agent, version)
        answer = await http.post("/mcp", content=json.dumps(body).encode(), headers=sent)
    error = document(answer)
    assert (answer.status_code, error["error"]["code"]) == (400, code)
    assert text in error["error"]["message"] and "\n" not in error["error"]["message"]
    request_id = body.get("id") if isinstance(body, dict) else None
    assert error["id"] == (request_id if type(request_id) in (int, str) else None)


@both_versions
@pytest.mark.parametrize("request_id", [0, -1, 10**30, "", "a"])
async def test_every_id_that_mcp_has_is_answered(agent: Guarded, version: str, request_id: Any) -> None:
    async with agent.http() as http:
        body = {**LIST, "id": request_id}
        answer = await http.post("/mcp", json=body, headers=await head(agent, version))
    found = document(answer)
    assert (found["id"], len(found["result"]["tools"])) == (request_id, 2)


@both_versions
@pytest.mark.parametrize(
    "body", [b"{nope", b'{"jsonrpc":"2.0","id":"\xff"}', b"\xef\xbb\xbf{}", b"[" * 100_000, b""]
)
async def test_what_is_no_json_is_answered(agent: Guarded, version: str, body: bytes) -> None:
    async with agent.http() as http:
        answer = await http.post("/mcp", content=body, headers=await head(agent, version))
    assert (answer.status_code, document(answer)["error"]["code"]) in ((400, -32700), (400, -32600))


@both_versions
async def test_media_types_are_compared_whatever_their_case(agent: Guarded, version: str) -> None:
    sent = {
        **await head(agent, version),
        "content-type": "Application/JSON; Charset=UTF-8",
        "accept": "APPLICATION/json, Text/Event-Stream",
    }
    async with agent.http() as http:
        answer = await http.post("/mcp", json=LIST, headers=sent)
    assert len(document(answer)["result"]["tools"]) == 2


async def test_the_id_of_a_request_in_progress_is_refused_and_free_after_it(agent: Guarded) -> None:
    gate = Gate()
    agent.executor.answer = gate.answer
    sent = await head(agent, LEGACY)
    async with agent.http() as http:

        async def send(request_id: int | str, message: str) -> httpx2.Response:
            body = call("tools/call", {"name": "send_message", "arguments": {"message": message}}, LEGACY)
            return await http.post("/mcp", json={**body, "id": request_id}, headers=sent)

        first = asyncio.create_task(send(5, "first"))
        await gate.reached.wait()
        for same in (5, "5"):  # the SDK compares their texts
            refused = document(await send(same, "second"))
            assert (refused["id"], refused["error"]["code"]) == (same, -32600)
            assert "in progress" in refused["error"]["message"]
        gate.open.set()
        assert "first" in document(await first)["result"]["content"][0]["text"]
        assert "third" in document(await send(5, "third"))["result"]["content"][0]["text"]
