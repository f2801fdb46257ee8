"""Lean clients of HTTP and MCP over raw HTTP/1.1: what is measured is the server and not Python's client."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import urlsplit

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
_INFO = {"name": "bench", "version": "1"}
_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": _INFO,
}


class Connection:
    """One kept-alive HTTP/1.1 connection to one server, one request at a time."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None and parts.port is not None
        self._address = parts.hostname, parts.port
        self.path = parts.path
        self._head = f"HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept: application/json, text/event-stream\r\n"
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(*self._address, limit=2**24)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def exchange(
        self, verb: str, path: str, body: bytes = b"", headers: str = "", kind: str = "application/json"
    ) -> tuple[int, dict[str, str], bytes]:
        """The status, the headers in lower case, and the whole body that answer a request."""
        head = (
            f"{verb} {path} {self._head}Content-Type: {kind}\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        status, fields = _parse(await self._reader.readuntil(b"\r\n\r\n"))
        if "chunked" not in fields.get("transfer-encoding", ""):
            return status, fields, await self._reader.readexactly(int(fields.get("content-length", "0")))
        chunks = []
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            chunks.append((await self._reader.readexactly(size + 2))[:-2])
        await self._reader.readexactly(2)
        return status, fields, b"".join(chunks)

    async def post(self, path: str, value: object, kind: str = "application/json") -> Any:
        """The JSON that answers a JSON, or bytes of another kind; raises RuntimeError if it is no success."""
        sent = value if isinstance(value, bytes) else json.dumps(value).encode()
        status, _, body = await self.exchange("POST", path, sent, kind=kind)
        if status != 200:
            raise RuntimeError(f"HTTP {status}: {body[:300]!r}")
        return json.loads(body)


class Caller:
    """A client of one MCP server over one connection, one call at a time, in one protocol era.

    In the handshake era it holds a session from ``open_session`` to ``end_session``. Every answer is
    parsed and must be a success: a call that failed raises RuntimeError, since its time would say nothing.
    """

    def __init__(self, url: str, era: str = MODERN) -> None:
        self._connection = Connection(url)
        self._era = era
        self._session = ""
        self._number = 0

    async def __aenter__(self) -> Self:
        await self._connection.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.__aexit__()

    async def open_session(self) -> None:
        """The handshake; without effect in the era that has none."""
        if self._era == MODERN:
            return
        params = {"protocolVersion": self._era, "capabilities": {}, "clientInfo": _INFO}
        self._session = ""
        await self._request("initialize", params)
        await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"}, "")

    async def end_session(self) -> None:
        """Tell the server that the session is over."""
        if self._session:
            status, _ = await self._exchange("DELETE", b"", self._version())
            if status != 200:
                raise RuntimeError(f"DELETE was answered with {status}")
            self._session = ""

    async def call(self, tool: str, **arguments: str) -> str:
        """The text that a tool answers."""
        result = await self.result(tool, arguments)
        text = result["content"][0]["text"]
        if result.get("isError"):
            raise RuntimeError(f"{tool} failed: {text[:300]}")
        return str(text)

    async def result(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The result of a tool, which may be an error."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if self._era == MODERN:
            params["_meta"] = _META
        return await self._request("tools/call", params, f"Mcp-Method: tools/call\r\nMcp-Name: {tool}\r\n")

    def _version(self) -> str:
        session = f"Mcp-Session-Id: {self._session}\r\n" if self._session else ""
        # The handshake itself is the one request that names no version in a header.
        return f"MCP-Protocol-Version: {self._era}\r\n{session}" if session or self._era == MODERN else ""

    async def _request(self, method: str, params: dict[str, Any], headers: str = "") -> dict[str, Any]:
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        for line in (await self._post(message, headers)).splitlines():
            text = line.removeprefix(b"data:")
            if text.lstrip().startswith(b"{"):
                answer = json.loads(text)
                if answer.get("id") == self._number and "result" in answer:
                    return dict(answer["result"])
                raise RuntimeError(f"{method} was answered with {text[:300]!r}")
        raise RuntimeError(f"{method} had no answer")

    async def _post(self, message: dict[str, Any], headers: str) -> bytes:
        status, body = await self._exchange("POST", json.dumps(message).encode(), self._version() + headers)
        if status not in (200, 202):
            raise RuntimeError(f"HTTP {status}: {body[:300]!r}")
        return body

    async def _exchange(self, verb: str, body: bytes, headers: str) -> tuple[int, bytes]:
        connection = self._connection
        status, fields, answer = await connection.exchange(verb, connection.path, body, headers)
        self._session = fields.get("mcp-session-id", self._session)
        return status, answer


def _parse(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    fields = (line.partition(":") for line in lines)
    return int(first.split(" ", 2)[1]), {name.lower(): value.strip() for name, _, value in fields}
