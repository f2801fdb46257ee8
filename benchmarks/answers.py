"""What the correction of a model server's answer costs, beside the provider's library that reads it alone."""

import json
from collections.abc import AsyncIterator
from statistics import median
from time import process_time

import httpx2
from openai import AsyncOpenAI

from pallas.executors.model_client.checked_answer import check_answer
from pallas.processes.event_loop import run

from .report import Figure

ROUNDS = 9
PIECES = 2_000
WHOLE = 20
"""Calls of a round that ask for no stream."""


def measure() -> list[Figure]:
    """Processor time of an answer of 2,000 pieces, and of one that comes whole, with and without it."""
    return run(_figures())


async def _figures() -> list[Figure]:
    clients = {
        name: AsyncOpenAI(
            api_key="none",
            base_url="http://model.invalid/v1",
            max_retries=0,
            http_client=httpx2.AsyncClient(
                transport=httpx2.MockTransport(_answer), event_hooks={"response": hooks}
            ),
        )
        for name, hooks in (("alone", []), ("corrected", [check_answer]))
    }
    found = []
    for what, ask, aim in (("streamed", _streamed, 1.15), ("whole", _whole, 1.2)):
        taken: dict[str, list[float]] = {name: [] for name in clients}
        for _ in range(ROUNDS + 1):  # the first one builds what is built once
            for name, client in clients.items():
                began = process_time()
                await ask(client)
                taken[name].append(process_time() - began)
        alone, corrected = (median(taken[name][1:]) for name in ("alone", "corrected"))
        per = PIECES if what == "streamed" else WHOLE
        detail = f"{1e6 * alone / per:.0f} us and {1e6 * corrected / per:.0f} us each"
        found.append(Figure(f"correction of a {what} answer", corrected / alone, aim, detail=detail))
    return found


async def _streamed(client: AsyncOpenAI) -> None:
    pieces = await client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "x"}], stream=True
    )
    count = 0
    async for _ in pieces:
        count += 1
    if count != PIECES + 1:
        raise SystemExit(f"{count} pieces were read")


async def _whole(client: AsyncOpenAI) -> None:
    for _ in range(WHOLE):
        await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])


class _Body(httpx2.AsyncByteStream):
    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


def _answer(request: httpx2.Request) -> httpx2.Response:
    is_streamed = bool(json.loads(request.content).get("stream"))
    kind = "text/event-stream" if is_streamed else "application/json"
    return httpx2.Response(
        200, headers={"content-type": kind}, stream=_Body(_EVENTS if is_streamed else [_DOCUMENT])
    )


def _event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    piece = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
    }
    return b"data: %s\n\n" % json.dumps(piece).encode()


_EVENTS = [
    *(_event({"content": f" word{n}"}) for n in range(PIECES)),
    _event({}, "stop"),
    b"data: [DONE]\n\n",
]
_DOCUMENT = json.dumps(
    {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": " word" * PIECES},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": PIECES, "total_tokens": PIECES + 1},
    }
).encode()
