"""What a model's provider sends has a size: beyond it the run fails with the limit."""

import asyncio
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Receive, Scope, Send
from support.hostile_servers import MEMORY, peak, serving_in_thread, zipped
from support.live import ERAS, agent_module, write_project
from support.served import Served, served, text_of

LONGEST = 90.0
MIB = 1 << 20
MOST = 800 * MIB
MODELS = {
    "chat": "generic.hostile",
    "messages": "anthropic.claude-haiku-4-5",
    "responses": "responses.gpt-4.1",
    "gemini": "google.gemini-2.5-flash",
}
EVENTS = ("content-type", "text/event-stream")
JSON = ("content-type", "application/json")
GZIP = ("content-encoding", "gzip")


def long(before: bytes, size: int = 64 * MIB) -> Iterator[bytes]:
    """So many bytes without a line's end."""
    yield before
    for _ in range(size // MIB):
        yield b"a" * MIB


@cache
def bomb() -> list[bytes]:
    """Four times as many, compressed."""
    return [*zipped(long(b"data: ", 256 * MIB))]


def tiny(chunks: int = 20_000) -> Iterator[bytes]:
    """A chat completion in so many chunks of one character, many of them at a time."""

    def chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return b"data: " + json.dumps({**CHUNK, "choices": [choice]}).encode() + b"\n\n"

    yield chunk({"role": "assistant", "content": "x"})
    one = chunk({"content": "a"})
    for _ in range(chunks // 4_000):
        yield one * 4_000
    yield chunk({}, "stop") + b"data: [DONE]\n\n"


CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "hostile"}
ANSWERS: dict[str, Any] = {
    "line": (200, [EVENTS], lambda: long(b"data: ")),
    "bomb": (200, [EVENTS, GZIP], bomb),
    "refusal": (400, [JSON], lambda: long(b'{"error": {"message": "')),
    "tiny": (200, [EVENTS], tiny),
}


class HostileModel:
    """An ASGI app that answers as the message of the user says."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        body = await Request(scope, receive).body()
        status, headers, chunks = next(
            (answer for word, answer in ANSWERS.items() if f"mode:{word}".encode() in body),
            (404, [JSON], lambda: iter([b"{}"])),
        )
        start = {"type": "http.response.start", "status": status}
        await send({**start, "headers": [(name.encode(), value.encode()) for name, value in headers]})
        for chunk in chunks():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A fleet with an agent for each kind of provider, and ``other``, whose model is within the fleet."""
    with serving_in_thread(HostileModel()) as origin:
        root = project(tmp_path_factory.mktemp("models") / "p", origin)
        with served(root, memory=MEMORY) as fleet:
            asyncio.run(fleet.says("] running"))
            yield fleet


def project(root: Path, origin: str) -> Path:
    """Its files."""
    agents = {name: agent_module(name, model=model) for name, model in MODELS.items()}
    plain = {"api_key": "none", "base_url": origin}
    providers = {"generic": plain, "anthropic": plain, "responses": plain, "google": plain}
    config = {**providers, "llm_retries": 0}  # between two attempts there are seconds
    return write_project(
        root, {**agents, "other": agent_module("other")}, top={"bind": "127.0.0.1"}, config=config
    )


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["line", "bomb", "refusal"])
@pytest.mark.parametrize("agent", MODELS)
async def test_an_answer_that_is_too_large_fails_its_run(fleet: Served, agent: str, answer: str) -> None:
    async with asyncio.timeout(LONGEST), fleet.client(agent, ERAS[0]) as victim:
        result = await victim.call_tool("send_message", {"message": f"mode:{answer}"})
    assert result.is_error
    if answer != "refusal":
        assert "16 MiB" in text_of(result)
    assert peak(fleet) < MOST
    async with asyncio.timeout(LONGEST), fleet.client("other", ERAS[0]) as other:
        assert text_of(await other.call_tool("send_message", {"message": "hi"})) == "hi"


@pytest.mark.slow
async def test_many_tiny_chunks_hold_up_nobody(fleet: Served) -> None:
    async with (
        asyncio.timeout(LONGEST),
        fleet.client("chat", ERAS[0]) as victim,
        fleet.client("other", ERAS[0]) as other,
    ):
        tiny = asyncio.create_task(victim.call_tool("send_message", {"message": "mode:tiny"}))
        answered = 0
        while not tiny.done():
            assert text_of(await other.call_tool("send_message", {"message": "hi"})) == "hi"
            answered += not tiny.done()
        assert text_of(await tiny) == "x" + "a" * 20_000
    # A fleet that is held up answers once before the pieces are read, and then after them.
    assert answered > 5, answered
