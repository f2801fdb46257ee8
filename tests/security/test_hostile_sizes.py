"""What servers and models send has a size: beyond it the call fails with an error that names the limit."""

import asyncio
import json
from collections.abc import Callable, Iterator

import pytest
from support.hostile_servers import (
    MEMORY,
    HostileHttp,
    call,
    hostile_project,
    peak,
    serving_in_thread,
    zipped,
)
from support.live import ERAS
from support.served import Served, served, text_of

LONGEST = 60.0
MIB = 1 << 20
MOST = 800 * MIB
"""Bytes that a fleet may come to: with two agents it takes 250 MiB, and messages of the limit more."""
JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream"}
GZIP = {"content-encoding": "gzip"}

Chunks = Callable[[int], Iterator[bytes]]


def head(number: int) -> bytes:
    """The beginning of a result with one long text."""
    return f'{{"jsonrpc":"2.0","id":{number},"result":{{"content":[{{"type":"text","text":"'.encode()


def long_text(size: int, before: bytes = b"") -> Chunks:
    """A result with a text of so many bytes."""

    def chunks(number: int) -> Iterator[bytes]:
        yield before + head(number)
        for _ in range(size // MIB):
            yield b"a" * MIB
        yield b'"}]}}\n\n'

    return chunks


def parts(count: int) -> Chunks:
    """A result with so many content parts."""
    return lambda number: iter([json.dumps({
        "jsonrpc": "2.0", "id": number, "result": {"content": [{"type": "text", "text": ""}] * count}
    }).encode()])  # fmt: skip


def packed(chunks: Chunks) -> Chunks:
    """The same, compressed."""
    return lambda number: zipped(chunks(number))


HTTP = {
    "plain": (JSON, long_text(64 * MIB)),
    "bomb": ({**JSON, **GZIP}, packed(long_text(256 * MIB))),
    "event": (EVENTS, long_text(64 * MIB, b"event: message\ndata: ")),
    "event_bomb": ({**EVENTS, **GZIP}, packed(long_text(256 * MIB, b"event: message\ndata: "))),
    "parts": (JSON, parts(300_000)),
    "few_parts": (JSON, parts(5_000)),
    "strange": ({**JSON, "content-encoding": "br"}, long_text(MIB)),
    "packed": ({**JSON, **GZIP}, packed(long_text(MIB))),
    "long": (JSON, long_text(8 * MIB)),
}
STDIO = {
    "line": {"do": "while True: sys.stdout.write('a' * 1048576)"},
    "result": {"do": "text('a' * (40 << 20))"},
    "parts": {"do": "send({'id': number, 'result': {'content': [{'type': 'text', 'text': ''}] * 300000}})"},
    "few_parts": {"do": "send({'id': number, 'result': {'content': [{'type': 'text', 'text': ''}] * 5000}})"},
    "long": {"do": "text('a' * (8 << 20))"},
    "braces": {"do": "text('{[' * 200000)"},
}
# Whole results reach the model; what a caller is shown of an answer is cut.
START = {"packed": "a" * 1_000, "long": "a" * 1_000, "braces": "{[" * 1_000}
SAID = {
    "plain": "16 MiB",
    "bomb": "16 MiB",
    "event": "16777216 byte limit",
    "event_bomb": "16777216 byte limit",
    "parts": "100,000 objects and arrays",
    "few_parts": "at most 1,000 are taken",
    "strange": "gzip, deflate are accepted",
    "line": "16 MiB",
    "result": "16 MiB",
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A fleet whose ``victim`` has a hostile server over HTTP and one over stdio."""

    with serving_in_thread(HostileHttp(HTTP)) as origin:
        root = hostile_project(
            tmp_path_factory.mktemp("sizes") / "p", STDIO, {"web": {"url": f"{origin}/mcp"}}
        )
        with served(root, memory=MEMORY) as fleet:
            asyncio.run(fleet.says("] running"))
            yield fleet


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("server", "tool"), [(s, t) for s, d in (("web", HTTP), ("hostile", STDIO)) for t in d if t in SAID]
)
async def test_what_is_too_large_fails_its_call_with_the_limit(
    fleet: Served, server: str, tool: str, era: str
) -> None:
    async with asyncio.timeout(LONGEST), fleet.client("victim", era) as victim:
        said = text_of(await victim.call_tool("send_message", {"message": call(tool, server)}))
    assert SAID[tool] in said
    assert peak(fleet) < MOST
    async with asyncio.timeout(LONGEST), fleet.client("other", era) as other:
        assert text_of(await other.call_tool("send_message", {"message": "hi"})) == "hi"


@pytest.mark.parametrize(
    ("server", "tool"), [("web", "packed"), ("web", "long"), ("hostile", "long"), ("hostile", "braces")]
)
async def test_what_is_large_and_allowed_arrives(fleet: Served, server: str, tool: str) -> None:
    async with asyncio.timeout(LONGEST), fleet.client("victim", "legacy") as victim:
        said = await victim.call_tool("send_message", {"message": call(tool, server)})
    assert not said.is_error
    assert START[tool] in text_of(said)
