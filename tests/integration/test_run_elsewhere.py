"""Requests about runs of other worker processes."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from pallas.surfaces.rest import run_elsewhere


async def test_a_process_that_does_not_answer_is_no_reason_to_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_elsewhere, "_ANSWER_S", 0.2)
    asked = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    shares: Any = SimpleNamespace(other_ports=lambda: {2: port})
    scope = {
        "type": "http", "method": "GET", "path": "/api/v1/runs/a", "query_string": b"", "scheme": "http",
        "headers": [(b"host", b"127.0.0.1")], "server": ("127.0.0.1", 1),
    }  # fmt: skip
    async with asyncio.timeout(60):
        assert await run_elsewhere.answer_elsewhere(Request(scope), shares) is None
        assert asked.is_set()
    server.close()
