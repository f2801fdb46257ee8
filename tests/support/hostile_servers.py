"""MCP servers that mean harm: a stdio program of the standard library, and an HTTP server in the test."""

import asyncio
import json
import sys
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from .fake_downstreams import serving
from .live import agent_module, tool_call, write_project
from .served import Served

MEMORY: Final = 6 << 30
"""Bytes of address space that a fleet under attack may have: a failing test must not eat the machine."""

# A tool is {"do": Python source, "schema": output schema}; its source runs with `send`, `number`, `text`.
PROGRAM: Final = """
import json, os, subprocess, sys, time

tools = json.load(open("tools.json"))


def send(body):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **body}) + "\\n")
    sys.stdout.flush()


def text(value, **more):
    send({"id": number, "result": {"content": [{"type": "text", "text": value}], **more}})


if "" in tools:
    exec(tools.pop("")["do"])
for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if number is None:
        continue
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        send({"id": number, "result": {"protocolVersion": version, "capabilities": {"tools": {}},
                                       "serverInfo": {"name": "hostile", "version": "1"}}})
    elif method == "tools/list":
        send({"id": number, "result": {"tools": [
            {"name": name, "inputSchema": tool.get("input", {"type": "object"}),
             **({"outputSchema": tool["schema"]} if "schema" in tool else {})}
            for name, tool in tools.items()]}})
    elif method == "tools/call":
        exec(tools[message["params"]["name"]]["do"])
    else:
        send({"id": number, "error": {"code": -32601, "message": "no such method"}})
"""


def hostile_project(
    root: Path,
    tools: Mapping[str, Any] | None = None,
    servers: Mapping[str, Any] | None = None,
    *,
    model: str = "passthrough",
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> Path:
    """Two agents: ``victim`` with ``model`` and the hostile servers, and ``other`` without them.

    ``settings`` are added to the configuration of fast-agent.
    """
    entry = {"command": sys.executable, "args": ["hostile.py"]}
    found = {**({"hostile": entry} if tools is not None else {}), **(servers or {})}
    return write_project(
        root,
        {
            "victim": agent_module("victim", tuple(found), model=model),
            "other": agent_module("other", model="passthrough"),
        },
        config={**(settings or {}), "mcp": {"servers": found}},
        files={"hostile.py": PROGRAM, "tools.json": json.dumps(tools or {})},
        **{"top": {"bind": "127.0.0.1"}, **more},
    )


def call(tool: str, server: str = "hostile") -> str:
    """A message that has the passthrough model call a tool."""
    return tool_call(f"{server}__{tool}")


def peak(fleet: Served) -> int:
    """The most memory that the fleet had so far."""
    status = Path(f"/proc/{fleet.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


def zipped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks, compressed."""
    packer = zlib.compressobj(wbits=31)
    for chunk in chunks:
        yield packer.compress(chunk)
    yield packer.flush()


@contextmanager
def serving_in_thread(app: ASGIApp) -> Iterator[str]:
    """The origin of an app that is served in a loop of its own, for tests that share it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = serving(app)
    try:
        yield asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(30)
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)


class HostileHttp:
    """An ASGI app that speaks the handshake; ``tools`` maps a name to headers and chunks of the body.

    The chunks come from a function of the request's id, and are sent as they are.
    """

    def __init__(self, tools: Mapping[str, Any]) -> None:
        self._tools = tools

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        if request.method != "POST":
            await Response(status_code=405)(scope, receive, send)
            return
        message = json.loads(await request.body())
        number, method = message.get("id"), message.get("method")
        if number is None:
            await Response(status_code=202)(scope, receive, send)
        elif method == "tools/call":
            await self._call(message, send)
        else:
            body = {"jsonrpc": "2.0", "id": number, **self._plain(method, message)}
            await Response(json.dumps(body), media_type="application/json")(scope, receive, send)

    def _plain(self, method: str, message: Mapping[str, Any]) -> dict[str, Any]:
        if method == "initialize":
            server = {"name": "hostile", "version": "1"}
            version = message["params"]["protocolVersion"]
            return {
                "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
            }
        if method == "tools/list":
            return {
                "result": {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in self._tools]}
            }
        return {"error": {"code": -32601, "message": "no such method"}}

    async def _call(self, message: Mapping[str, Any], send: Send) -> None:
        headers, chunks = self._tools[message["params"]["name"]]
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            }
        )
        for chunk in chunks(message["id"]):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
