"""Streams over REST: an event id means the same everywhere, and what is read on has no gap and no repeat."""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Final

import httpx2

from ..rest_stream import PER_ATTEMPT, Stream
from .project import AGENT

REPLAY_SECONDS: Final = 60.0
_AT_ONCE: Final = 8
_PAUSE: Final = 0.3


async def replayed(http: httpx2.AsyncClient, streams: Sequence[Stream]) -> dict[str, Stream]:
    """What the replicas say of each run when it is over, from its first chunk; no entry if they know none."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def replay(run: str) -> Stream:
        async with room, asyncio.timeout(REPLAY_SECONDS):
            return await _replay(http, run)

    found = await asyncio.gather(*(replay(run) for run in sorted({each.run for each in streams} - {""})))
    return {each.run: each for each in found if each.chunks}


async def _replay(http: httpx2.AsyncClient, run: str) -> Stream:
    until = monotonic() + REPLAY_SECONDS
    while True:
        stream = Stream(run)
        with suppress(httpx2.HTTPError):
            async with http.stream(**stream.request("", AGENT, {}, {})) as answer:
                if answer.status_code == 200:
                    await stream.follow(answer)
                    return stream
                if answer.status_code == 404 or monotonic() > until:
                    return stream
        await asyncio.sleep(_PAUSE)


def problems(
    streams: Sequence[Stream], replays: Mapping[str, Stream], runs: Collection[str]
) -> Iterator[tuple[str, str]]:
    """The run of each problem, and the problem. ``runs`` are those of the ledger.

    A run that failed before it began, since the database was away, is in none.
    """
    for stream in streams:
        if not stream.run:
            continue
        for problem in stream.problems:
            yield stream.run, f"stream of run {stream.run}: {problem}"
        if stream.run in replays:
            for problem in _differences(stream, replays[stream.run]):
                yield stream.run, f"stream of run {stream.run}: {problem}"
        elif stream.run in runs or any(each["type"] != "error" for each in stream.chunks.values()):
            yield stream.run, f"stream of run {stream.run}: no replica knows its chunks"
    for run, replay in replays.items():
        for problem in replay.problems:
            yield run, f"run {run}, read from its first chunk: {problem}"


def _differences(stream: Stream, replay: Stream) -> Iterator[str]:
    """What a caller saw that is not so afterwards, and what it should have seen."""
    for number, chunk in stream.chunks.items():
        there = replay.chunks.get(number)
        if there is None:
            if not _may_be_gone(number, replay):
                yield f"its caller got chunk {number}, which is gone"
        elif there != chunk:
            yield f"chunk {number} was {str(chunk)[:80]}, and is {str(there)[:80]}"
    for number in replay.chunks:
        if number <= stream.last and number not in stream.chunks:
            yield f"its caller did not get chunk {number}"


def _may_be_gone(number: int, replay: Stream) -> bool:
    """Chunks of the last second before a replica died are not stored: the next attempt takes them back."""
    attempt = (number - 1) // PER_ATTEMPT
    there = [each for each in replay.chunks if (each - 1) // PER_ATTEMPT == attempt]
    return replay.last > (attempt + 1) * PER_ATTEMPT and number > max(there, default=0)
