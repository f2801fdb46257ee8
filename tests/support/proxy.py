"""A reverse proxy as people put one before a fleet: ends TLS, may change Host and path, passes streams on."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from .ports import free_ports


@dataclass
class Proxy:
    """``seen`` are the request lines that came in."""

    port: int
    upstream: int
    strip: str = ""
    host: str = ""
    seen: list[str] = field(default_factory=list)

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request on a connection of its own, there and back as the bytes come."""
        onward: asyncio.StreamWriter | None = None
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            back, onward = await asyncio.open_connection("127.0.0.1", self.upstream)
            onward.write(self._changed(head).encode("latin-1"))
            there = asyncio.create_task(_pipe(reader, onward))
            await _pipe(back, writer)
            there.cancel()
        for each in (writer, onward):
            if each is not None:
                each.close()

    def _changed(self, head: str) -> str:
        line, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
        self.seen.append(line)
        method, path, version = line.split(" ")
        kept = [
            each
            for each in lines
            if not each.lower().startswith("connection:")
            and not (self.host and each.lower().startswith("host:"))
        ]
        if self.host:
            kept.insert(0, f"host: {self.host}")
        kept += [
            "connection: close",
            "x-forwarded-for: 203.0.113.7",
            "x-forwarded-proto: https",
            "x-forwarded-host: evil.example",
            "forwarded: for=203.0.113.7;host=evil.example;proto=https",
        ]
        return "\r\n".join([f"{method} {path.removeprefix(self.strip)} {version}", *kept]) + "\r\n\r\n"


@asynccontextmanager
async def proxy(
    upstream: int, tls: ssl.SSLContext | None = None, *, strip: str = "", host: str = ""
) -> AsyncIterator[Proxy]:
    """A proxy for the port ``upstream``; takes ``strip`` off the path and puts ``host`` for Host."""
    (port,) = free_ports(1)
    made = Proxy(port, upstream, strip, host)
    server = await asyncio.start_server(made.pass_on, "127.0.0.1", port, ssl=tls)
    try:
        yield made
    finally:
        server.close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
