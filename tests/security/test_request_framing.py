"""Requests that two readers could understand in two ways: where they end, and which path they name."""

import asyncio
import json
from pathlib import Path

import httpx2
import pytest
from support.listeners import open_listeners
from support.live import module_fleet, write_project
from support.ports import free_ports

from pallas.fleet.fleet import Fleet

pytestmark = pytest.mark.asyncio(loop_scope="module")
SCRIPT = "rules:\n  - {when: {last: user}, say: fine}\n"
CHUNKED = b'10\r\n{"message":"hi"}\r\n0\r\n\r\n'


@module_fleet(database="memory")
def fleet(folder: Path) -> Path:
    (port,) = free_ports(1)
    return write_project(
        folder,
        {"desk": None},
        top={"scripted": {"script": "model.yaml", "port": port}},
        files={"model.yaml": SCRIPT},
    )


async def raw(port: int, request: bytes) -> bytes:
    """All that a port answers to these bytes until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        await writer.drain()
        async with asyncio.timeout(30):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("path", [b"/mcp", b"/api/v1/agents/desk/chat", b"/v1/chat/completions", b"/healthz"])
@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 26\r\n",
        b"transfer-encoding: CHUNKED\r\ncontent-length: 0\r\n",
    ],
)
async def test_a_request_with_two_lengths_is_refused_and_its_connection_closed(
    fleet: Fleet, path: bytes, framing: bytes
) -> None:
    second = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    for name, listener in open_listeners(fleet):
        head = b"POST " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        answer = await raw(listener.port, head + framing + b"\r\n" + CHUNKED + second)
        assert answer.startswith(b"HTTP/1.1 400 "), (name, answer[:200])
        assert answer.count(b"HTTP/1.1 ") == 1, (name, answer)
        body = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert body["data"]["type"] == "PROTOCOL"
        assert "Content-Length" in body["error"]


async def test_one_length_of_either_kind_is_taken(fleet: Fleet) -> None:
    # The test above proves nothing where every request is refused.
    head = b"POST /api/v1/agents/desk/chat HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    head += b"Content-Type: application/json\r\n"
    port = httpx2.URL(fleet.ports.origin).port
    assert port is not None
    for framing, body in (
        (b"Transfer-Encoding: chunked\r\n", CHUNKED),
        (b"Content-Length: 16\r\n", b'{"message":"hi"}'),
    ):
        answer = await raw(port, head + framing + b"\r\n" + body)
        assert answer.startswith(b"HTTP/1.1 200 "), answer[:300]


@pytest.mark.parametrize(
    "path",
    [
        "/runs/a%0Ab", "/threads/x%0A/messages", "/agents/de%0Ask/chat", "/%0A/x", "/agents%0A/x",
        "/a%0D%0Ab/c", "/agents/desk%0A", "/fleet/ru%0Ans/x", "/%E2%80%A8/x", "/nothing/here",
    ],
)  # fmt: skip
async def test_every_path_of_the_api_answers_with_a_fault(fleet: Fleet, path: str) -> None:
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            url = f"{fleet.ports.origin}/api/v1{path}"
            _is_fault(await http.request(method, url, json={"message": "x"}))


def _is_fault(answer: httpx2.Response) -> None:
    assert answer.status_code in (401, 404, 405)
    assert answer.headers["content-type"].startswith("application/json")
    body = answer.json()
    assert isinstance(body["error"], str)
    assert isinstance(body["code"], int)
    assert isinstance(body["data"]["type"], str)
