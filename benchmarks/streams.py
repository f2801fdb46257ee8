"""How long text of a model takes through Pallas to a caller that reads it as it comes, beside a raw client
at the model: the first piece, and later ones of a model that says 100 a second."""

import asyncio
import json
import re
import secrets
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from time import monotonic, process_time
from typing import Any
from urllib.parse import urlsplit

import psutil

from pallas.processes.event_loop import run

from .caller import _META, MODERN
from .programs import own_server, process, talker, until_line
from .report import Figure

EVERY = 0.01
"""Seconds between two pieces."""
LONG = 300
"""Pieces of a long answer."""
TURNS = 200
"""Answers of one piece, for the first text."""
ROUNDS = 4
# Seconds that one answer may take.
DEADLINE = 60.0
_STAMP = re.compile(rb"@(\d+):([0-9.]+)@")
_WANTED = re.compile(rb"pieces (\d+)")


@dataclass(slots=True)
class Delays:
    """Seconds from the model until a caller has read a piece."""

    first: list[float] = field(default_factory=list)
    later: list[float] = field(default_factory=list)
    processor: float = 0.0
    """Seconds of the fleet for all long answers."""

    def take(self, place: int, seconds: float) -> None:
        """Note one piece."""
        (self.later if place else self.first).append(seconds)


def measure() -> Iterator[Figure]:
    """Yield the figures."""
    with own_server("benchmarks.streams") as model, _fleet(model) as (agent, rest, fleet):
        raw, mcp, api = run(_delays(model, agent, rest, fleet))
    yield _above("first text over MCP, above a raw client's: p50", raw.first, mcp.first, 1.2, _p50)
    yield _above("the same: p99", raw.first, mcp.first, 5.0, _p99)
    yield _above("first text over REST, above a raw client's: p50", raw.first, api.first, 1.2, _p50)
    yield _above("the same: p99", raw.first, api.first, 5.0, _p99)
    for name, found, most in (("MCP", mcp, (20.0, 50.0)), ("REST", api, (3.0, 15.0))):
        used = found.processor * 1e3 / (LONG * ROUNDS)
        detail = f"a raw client {_p50(raw.later):.1f} ms; {used:.2f} ms of processor time a piece"
        yield Figure(f"later text over {name}: p50", _p50(found.later), most[0], "ms", detail)
        yield Figure(
            "the same: p99", _p99(found.later), most[1], "ms", f"a raw client {_p99(raw.later):.1f} ms"
        )


def _above(
    name: str, raw: list[float], ours: list[float], most: float, of: Callable[[list[float]], float]
) -> Figure:
    return Figure(name, of(ours) - of(raw), most, "ms", f"{of(ours):.2f} ms against {of(raw):.2f} ms")


def _p50(seconds: list[float]) -> float:
    return median(seconds) * 1e3


def _p99(seconds: list[float]) -> float:
    return quantiles(seconds, n=100)[98] * 1e3


async def _delays(model: str, agent: str, rest: str, fleet: psutil.Process) -> tuple[Delays, Delays, Delays]:
    """Ask in turn over each way, so that whatever the machine does happens to all."""
    ways: tuple[tuple[Delays, Callable[[str], Awaitable[None]]], ...]

    async def by_raw(message: str) -> None:
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": message}]}
        await _read(f"{model}/v1/chat/completions", body, {}, raw)

    async def by_mcp(message: str) -> None:
        meta = {**_META, "progressToken": "t", "local.pallas/streamText": True}
        arguments = {"message": message, "conversation_id": secrets.token_urlsafe(18)}
        params = {"name": "send_message", "arguments": arguments, "_meta": meta}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = {
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": "tools/call",
            "Mcp-Name": "send_message",
        }
        await _read(agent, body, headers, mcp)

    async def by_rest(message: str) -> None:
        await _read(f"{rest}/api/v1/agents/talker/chat", {"message": message, "stream": True}, {}, api)

    raw, mcp, api = Delays(), Delays(), Delays()
    ways = ((raw, by_raw), (mcp, by_mcp), (api, by_rest))
    for _, ask in ways:
        for _ in range(3):
            await ask("pieces 1")
    for found, _ in ways:
        found.first.clear()
    for _ in range(TURNS):
        for _, ask in ways:
            await ask("pieces 1")
    for _ in range(ROUNDS):
        for found, ask in ways:
            before = _used(fleet)
            firsts = len(found.first)
            await ask(f"pieces {LONG}")
            del found.first[firsts:]  # all firsts are of one kind
            found.processor += _used(fleet) - before
    return raw, mcp, api


def _used(fleet: psutil.Process) -> float:
    times = fleet.cpu_times()
    return float(times.user + times.system)


async def _read(url: str, body: Mapping[str, Any], headers: Mapping[str, str], found: Delays) -> None:
    """Send a request and note when each piece of the answer is there. Raises RuntimeError if one is not."""
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=2**24)
    sent = json.dumps(body).encode()
    given = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(
        f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        f"Accept: application/json, text/event-stream\r\n{given}Connection: close\r\n"
        f"Content-Length: {len(sent)}\r\n\r\n".encode()
        + sent
    )
    wanted, last = int(body_pieces(sent)), -1
    async with asyncio.timeout(DEADLINE):
        while line := await reader.readline():
            now = monotonic()
            for place, stamp in _STAMP.findall(line):
                if int(place) > last:  # a result repeats what was streamed
                    last = int(place)
                    found.take(last, now - float(stamp))
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    if last + 1 != wanted:
        raise RuntimeError(f"{url}: {last + 1} of {wanted} pieces came")


def body_pieces(body: bytes) -> bytes:
    """The number of pieces that the last message of a request asks for."""
    found: list[bytes] = _WANTED.findall(body)
    return found[-1]


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Stream the pieces that each request asks for, each with its place and the time at which it is sent."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while head := (await reader.readuntil(b"\r\n\r\n")).lower():
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
            body = await reader.readexactly(length)
            if head.startswith(b"get"):
                used = json.dumps(process_time()).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(used), used))
                continue
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            )
            began = monotonic()
            for place in range(int(body_pieces(body))):
                await asyncio.sleep(max(0.0, began + place * EVERY - monotonic()))
                write_piece(writer, {"content": f"@{place}:{monotonic():.6f}@ "}, None)
            write_piece(writer, {}, "stop")
            done = b"data: [DONE]\n\n"
            writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(done), done))
            await writer.drain()
            if b"connection: close" in head:
                break
    writer.close()


def write_piece(writer: asyncio.StreamWriter, delta: dict[str, str], reason: str | None) -> None:
    """Write an event of an answer that is streamed in chunks."""
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    line = b"data: %s\n\n" % json.dumps(chunk).encode()
    writer.write(b"%x\r\n%s\r\n" % (len(line), line))


@contextmanager
def _fleet(model: str) -> Iterator[tuple[str, str, psutil.Process]]:
    """An agent of that model: its URL, the origin of the REST API, and the process of the fleet."""
    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder:
        root = Path(folder)
        registry, port = talker(root, model)
        with process("-m", "pallas.server", "--serve", cwd=root) as running:
            until_line(running, "] running")
            yield (
                f"http://127.0.0.1:{port}/mcp",
                f"http://127.0.0.1:{registry}",
                psutil.Process(running.pid),
            )


async def _serve(port: int) -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    run(_serve(int(sys.argv[1])))
