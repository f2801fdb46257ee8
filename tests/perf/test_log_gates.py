"""The log viewer on a long log: ratios against plain work on the same file in the same run.

`python -m benchmarks logs` has the exact figures on a million lines.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter

import psutil
import pytest
from support.waiting import until

from pallas_tui.widgets.logs.log_index import ERROR
from pallas_tui.widgets.logs.log_query import LogQuery
from pallas_tui.widgets.logs.log_source import LogSource

LINES = 200_000
RARE = "xyzzy"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gates") / "pallas.log"
    levels = ("DEBUG", "INFO", "INFO", "INFO", "INFO", "INFO", "INFO", "INFO", "WARNING", "ERROR")
    with path.open("w") as file:
        for number in range(LINES):
            message = RARE if number == LINES // 20 else f"request {number} answered with status 200"
            record = {
                "time": f"2026-06-01T00:{number // 60_000:02}:{number // 1000 % 60:02}.{number % 1000:03}Z",
                "level": levels[number % len(levels)],
                "logger": "pallas.executors.fastagent.instance_pool",
                "message": f"{message}, and some more words as records have them in real life",
                "agent": "research",
                "run_id": f"{number // 50:012x}",
            }
            file.write(json.dumps(record) + "\n")
    return path


def parsing(path: Path) -> float:
    """Seconds to parse each line of the file as JSON: what a viewer does that has not thought about it."""
    began = perf_counter()
    for line in path.read_bytes().splitlines():
        json.loads(line)
    return perf_counter() - began


@pytest.fixture(scope="module")
def parsed(log: Path) -> Iterator[float]:
    yield parsing(log)


@asynccontextmanager
async def followed(path: Path) -> AsyncIterator[LogSource]:
    source = LogSource(path)
    task = asyncio.create_task(source.follow())
    try:
        yield source
    finally:
        task.cancel()
        await asyncio.wait({task})
        source.close()


async def asked(source: LogSource, query: LogQuery) -> tuple[float, float]:
    """Seconds until the first hit and until all are found, the quickest of three."""
    firsts, alls = [], []
    for _ in range(3):
        source.ask(LogQuery())
        began = perf_counter()
        source.ask(query)
        await _until(lambda: len(source.rows) or not source.busy)
        firsts.append(perf_counter() - began)
        await _until(lambda: not source.busy)
        alls.append(perf_counter() - began)
    return min(firsts), min(alls)


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.001)


async def test_the_end_is_there_long_before_the_rest_and_little_is_kept(log: Path, parsed: float) -> None:
    process = psutil.Process()
    before = process.memory_full_info().uss
    opened, indexed, added = [], [], 0
    for again in range(3):  # what else the machine does is not what is measured
        began = perf_counter()
        async with followed(log) as source:
            await _until(lambda source=source: len(source.rows))
            opened.append(perf_counter() - began)
            assert 0 < len(source.rows) < LINES  # the newest, before the others were looked at
            await _until(lambda source=source: len(source.index) == LINES and not source.busy)
            indexed.append(perf_counter() - began)
            if not again:
                added = process.memory_full_info().uss - before
    assert min(opened) < parsed / 4
    assert min(indexed) < 2 * parsed
    assert added < LINES * 100  # bytes: less than half of what the lines have


async def test_a_filter_takes_a_fraction_of_parsing_and_finds_the_newest_first(
    log: Path, parsed: float
) -> None:
    async with followed(log) as source:
        await until(lambda: len(source.index) == LINES and not source.busy, timeout=60)
        first, whole = await asked(source, LogQuery(ERROR))
        assert len(source.rows) == LINES // 10
        assert source.rows.number(len(source.rows) - 1) == source.index.stop - 1
        assert whole < parsed / 4
        _, rare = await asked(source, LogQuery(text=RARE))
        assert len(source.rows) == 1
        assert rare < parsed / 2
        first, whole = await asked(source, LogQuery(text="agent:research -logger:httpx2"))
        assert len(source.rows) == LINES
        assert first < parsed / 2
        assert first < whole


async def test_a_search_that_is_put_aside_ends_at_once(log: Path, parsed: float) -> None:
    async with followed(log) as source:
        await until(lambda: len(source.index) == LINES and not source.busy, timeout=60)
        _, whole = await asked(source, LogQuery(text="~request.*in real life"))
        seconds = []
        for _ in range(3):
            source.ask(LogQuery(text="~request.*in real life"))
            await _until(lambda: len(source.rows))
            began = perf_counter()
            source.ask(LogQuery(ERROR))
            await _until(lambda: len(source.rows) == LINES // 10)
            seconds.append(perf_counter() - began)
        assert min(seconds) < whole + parsed / 4


async def test_the_loop_goes_on_while_a_search_runs(log: Path) -> None:
    async with followed(log) as source:
        await until(lambda: len(source.index) == LINES and not source.busy, timeout=60)
        source.ask(LogQuery(text="~(re.*u|re.*t)+est.*life"))
        turns = 0
        while source.busy:
            await asyncio.sleep(0.001)
            turns += 1
        assert turns > 20  # a search on the loop would leave it a turn for each thread call
