"""MCP calls over plain sockets, for a client that goes away without a word."""

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    },
}


def handshake_headers(session: str = "") -> dict[str, str]:
    """Headers of a request of the handshake era, for an HTTP client; in a session, where there is one."""
    both = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    if not session:
        return both
    return {**both, "mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}


def meta(version: str) -> dict[str, Any]:
    """What each request of the newer protocol says of its client."""
    prefix = "io.modelcontextprotocol"
    return {
        f"{prefix}/protocolVersion": version,
        f"{prefix}/clientInfo": {"name": "raw", "version": "1"},
        f"{prefix}/clientCapabilities": {},
    }


async def call(url: str, era: str, message: str, progress: int = 0) -> asyncio.StreamWriter:
    """Send ``send_message`` and leave: the connection is the caller's. With ``progress`` it is asked for.

    With progress the answer is a stream from the start; without it in the newer era is not.
    """
    headers = {}
    params: dict[str, Any] = {"name": "send_message", "arguments": {"message": message}}
    if era == "legacy":
        headers["mcp-session-id"] = await handshake(url)
        headers["mcp-protocol-version"] = "2025-11-25"
    else:
        headers |= {"mcp-protocol-version": era, "mcp-method": "tools/call", "mcp-name": "send_message"}
        params["_meta"] = meta(era)
    if progress:
        params.setdefault("_meta", {})["progressToken"] = progress
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    _, writer = await post(url, body, headers)
    return writer


async def handshake(url: str) -> str:
    """A session of the handshake era, opened and left; returns its id."""
    reader, writer = await post(url, INITIALIZE, {})
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    session = next(line.split(": ")[1] for line in head.split("\r\n") if line.startswith("mcp-session-id"))
    writer.transport.abort()
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    reader, writer = await post(url, note, {"mcp-session-id": session})
    assert b" 202 " in await reader.readline()
    writer.transport.abort()
    return session


async def post(
    url: str, body: dict[str, Any], headers: dict[str, str]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send one request on a connection of its own, which is the caller's."""
    parts = urlsplit(url)
    raw = json.dumps(body).encode()
    lines = {
        "host": parts.netloc,
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "content-length": str(len(raw)),
        **headers,
    }
    head = f"POST {parts.path} HTTP/1.1\r\n" + "".join(
        f"{name}: {value}\r\n" for name, value in lines.items()
    )
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(head.encode() + b"\r\n" + raw)
    await writer.drain()
    return reader, writer
