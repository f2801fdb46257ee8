"""A model that answers at once, for figures of its callers (python -m benchmarks.model_server PORT WORDS).

It speaks OpenAI's chat completions, streamed and not, over connections that stay open. Every answer is WORDS
words and the number of messages of the request; its bytes are made once for each number. ``GET /`` returns
its ``Counts`` as JSON.
"""

import asyncio
import json
import sys
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import lru_cache
from time import process_time
from typing import cast

from pallas.processes.event_loop import run

from .caller import Connection
from .programs import own_server

END = b"\r\n\r\n"


@dataclass(slots=True)
class Counts:
    """Connections that asked for an answer, answers, and the processor seconds of the server so far."""

    connections: int = 0
    answers: int = 0
    processor: float = 0.0


def answer_text(words: int, messages: int) -> str:
    """The text of each answer to a request of so many messages."""
    return "".join([*_words(words), str(messages)])


def _words(number: int) -> list[str]:
    """The pieces of an answer, all different: fast-agent drops one that repeats the text so far."""
    return [f"word{index} " for index in range(number)]


@lru_cache(4096)
def response(words: int, messages: int, streamed: bool, usage: bool) -> bytes:
    """The whole HTTP response; a stream has the chunk of its tokens only if it was asked for."""
    used = {"prompt_tokens": 9 * messages, "completion_tokens": words, "total_tokens": 9 * messages + words}
    kind = "chat.completion.chunk" if streamed else "chat.completion"
    about = {"id": "c", "object": kind, "created": 1, "model": "m"}
    if not streamed:
        message = {"role": "assistant", "content": answer_text(words, messages)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return http("application/json", json.dumps({**about, "choices": [choice], "usage": used}))
    deltas: list[dict[str, str]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": each} for each in (*_words(words), str(messages))]
    deltas.append({})
    chunks: list[dict[str, object]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None if delta else "stop"}]}
        for delta in deltas
    ]
    if usage:
        chunks.append({"choices": [], "usage": used})
    lines = [json.dumps({**about, **chunk}) for chunk in chunks]
    return http("text/event-stream", "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]))


def http(kind: str, body: str) -> bytes:
    """A response of status 200."""
    return f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()


class ModelConnection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, counts: Counts, words: int) -> None:
        self._counts = counts
        self._counted = False
        self._words = words
        self._transport: asyncio.Transport
        self._held = bytearray()
        self._needed = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Answer each request that is complete."""
        held = self._held
        held += data
        while held and len(held) >= self._needed:
            if not self._needed:
                end = held.find(END)
                if end < 0:
                    return
                self._needed = end + len(END) + _length(held[:end].lower())
            if len(held) < self._needed:
                return
            self._transport.write(self._answer(bytes(held[: self._needed])))
            del held[: self._needed]
            self._needed = 0

    def _answer(self, request: bytes) -> bytes:
        counts = self._counts
        if request.startswith(b"GET"):
            counts.processor = process_time()
            return http("application/json", json.dumps(asdict(counts)))
        counts.answers += 1
        counts.connections += not self._counted
        self._counted = True
        streamed = b'"stream":true' in request or b'"stream": true' in request
        return response(self._words, request.count(b'"role":'), streamed, b'"include_usage"' in request)


def _length(head: bytes | bytearray) -> int:
    """The length of the body; a body in chunks is not read, so its sender gets no answer but an error."""
    if b"transfer-encoding:" in head:
        raise ValueError("the model server reads no body in chunks")
    return int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)


def model(words: int) -> AbstractContextManager[str]:
    """The URL of a model in a process of its own, ended with the block."""
    return own_server("benchmarks.model_server", words)


async def counts_of(url: str) -> Counts:
    """The counts now."""
    async with Connection(url) as connection:
        _, _, body = await connection.exchange("GET", "/")
    return Counts(**json.loads(body))


async def listen(port: int, words: int) -> asyncio.Server:
    """A server on a port of this machine; 0 is any free one."""
    counts = Counts()
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: ModelConnection(counts, words), "127.0.0.1", port)


async def main(port: int, words: int) -> None:
    """Serve until the process is ended."""
    await (await listen(port, words)).serve_forever()


if __name__ == "__main__":
    run(main(*map(int, sys.argv[1:])))
