"""What a message costs beside the same tool on a bare FastMCP server, and what a long talk adds."""

import asyncio
import secrets
from statistics import median
from time import perf_counter

from mcp import Client

from .programs import bare, fleet
from .report import Figure

CALLS = 300
TURNS = 300


async def _one(client: Client, **arguments: str) -> float:
    began = perf_counter()
    result = await client.call_tool("send_message", {"message": "hello", **arguments})
    seconds = perf_counter() - began
    assert not result.is_error, result
    return seconds


async def _side_by_side(ours: str, theirs: str) -> tuple[list[float], list[float]]:
    """Calls in turn, so that whatever the machine does happens to both."""
    a: list[float] = []
    b: list[float] = []
    async with Client(ours) as one, Client(theirs) as two:
        for _ in range(20):
            await _one(one)
            await _one(two)
        for _ in range(CALLS):
            a.append(await _one(one, conversation_id=secrets.token_urlsafe(18)))
            b.append(await _one(two, conversation_id=secrets.token_urlsafe(18)))
    return a, b


async def _long_talk(url: str) -> tuple[float, float]:
    """Median seconds of the first turns of new conversations, and of turns around 300 of old ones."""
    first: list[float] = []
    last: list[float] = []
    async with Client(url) as client:
        for _ in range(3):
            handle = secrets.token_urlsafe(18)
            for turn in range(TURNS + 10):
                seconds = await _one(client, conversation_id=handle)
                if turn >= TURNS - 10:
                    last.append(seconds)
            first += [await _one(client, conversation_id=secrets.token_urlsafe(18)) for _ in range(20)]
    return median(first), median(last)


def measure() -> list[Figure]:
    """Latency against bare with and without a stdio server, and turn 300 against turn 1."""
    figures: list[Figure] = []
    with bare() as (theirs, _):
        for name, stdio in (
            ("send_message, new conversation", False),
            ("the same with a stdio server attached", True),
        ):
            with fleet(1, stdio=stdio) as (urls, _, _):
                a, b = asyncio.run(_side_by_side(urls[0], theirs))
                figures.append(
                    Figure(
                        name,
                        median(a) / median(b),
                        1.5,
                        detail=f"p50 {median(a) * 1e3:.2f} ms against {median(b) * 1e3:.2f} ms bare",
                    )
                )
    with fleet(1) as (urls, _, _):
        first, last = asyncio.run(_long_talk(urls[0]))
        detail = f"p50 {last * 1e3:.2f} ms against {first * 1e3:.2f} ms"
        figures.append(Figure("turn 300 against turn 1", last / first, 1.3, detail=detail))
    return figures
