"""A model server of every kind that fails as a message says, and counts the requests for each message."""

import asyncio
import json
import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import aiohttp
import pytest

from pallas import aiohttp_transport
from pallas.executors.fastagent import chat_stream_seam, seam

_CHUNK = (
    'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":'
    '[{"index":0,"delta":{"role":"assistant","content":"Well"}}]}\n\n'
)
_STREAM = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_ONE_MODEL = re.compile(rb"GET \S*/models/\S")
"""A check of the provider, whose model is there."""
_WANTED = re.compile(rb"fail=([a-z0-9]+) by=([a-z]+)")


@dataclass
class FailingModels:
    """A message ``fail=WHAT by=NAME`` says what happens to the requests that carry it.

    A number is a status, ``later`` a 429 that asks for an hour, ``soon`` one that asks for no time at all;
    ``drop`` ends the connection without a word, ``reset`` resets it, ``head`` ends it in the middle of the
    head, ``half`` in the middle of a stream. ``garbage`` is a stream whose event is not JSON.
    """

    base: str = ""
    requests: Counter[tuple[str, str]] = field(default_factory=Counter)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: *(\d+)", head)
                body = await reader.readexactly(int(length[1]) if length else 0)
                if _ONE_MODEL.match(head):
                    writer.write(
                        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
                    )
                    continue
                if not self._answer(body, writer):
                    break
                await writer.drain()
        writer.close()

    def _answer(self, body: bytes, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection stays open."""
        found = _WANTED.search(body)
        what, name = (found[1].decode(), found[2].decode()) if found else ("404", "")
        self.requests[what, name] += 1
        match what:
            case "drop":
                return False
            case "reset":
                writer.transport.abort()
                return False
            case "head":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-ty")
                return False
            case "half":
                writer.write(f"{_STREAM}{len(_CHUNK):x}\r\n{_CHUNK}\r\n".encode())
                return False
            case "garbage":
                event = 'data: {"<html><body>502\n\n'
                writer.write(f"{_STREAM}{len(event):x}\r\n{event}\r\n0\r\n\r\n".encode())
            case "later":
                writer.write(_refusal(429, "retry-after: 3600\r\n"))
            case "soon":
                writer.write(_refusal(429, "retry-after: 0\r\n"))
            case _:
                writer.write(_refusal(int(what)))
        return True


def _refusal(status: int, headers: str = "") -> bytes:
    body = json.dumps({"error": {"message": "no", "type": "x", "code": status, "status": "NO"}})
    head = f"HTTP/1.1 {status} No\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return f"{head}{headers}\r\n{body}".encode()


@asynccontextmanager
async def failing_models() -> AsyncIterator[FailingModels]:
    """Such a server on a free port of this loop; ``base`` has no path."""
    found = FailingModels()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield found


@pytest.fixture(scope="module")
def soon_again() -> Iterator[None]:
    """Attempts follow each other at once: the seconds between two are asked of ``seam`` elsewhere.

    Nothing counts as late: no connection takes too long, and none is unused for so long that the server may
    have closed it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seam, "RETRY_SECONDS", 0.02)
        patch.setattr(aiohttp_transport, "STALE_AFTER", math.inf)
        for each in (aiohttp_transport, chat_stream_seam):
            patch.setattr(each, "timeouts", lambda _: aiohttp.ClientTimeout(total=None))
        yield
