"""The log viewer on a long log: the newest lines come first, little is kept, and nothing holds up the loop.

`python -m benchmarks logs` measures how long it takes, on a million lines.
"""

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.waiting import until

from pallas_tui.widgets.logs import log_query, log_source
from pallas_tui.widgets.logs.log_index import ERROR
from pallas_tui.widgets.logs.log_query import LogQuery
from pallas_tui.widgets.logs.log_source import LogSource

LINES = 40_000
SLICE = 64 * 1024
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


class Shown:
    """What a viewer was given to show each time: how many rows, the newest of them, whether more come."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, bool]] = []
        self.source: LogSource

    def changed(self) -> None:
        rows = self.source.rows
        if len(rows):
            self.rows.append((len(rows), rows.number(len(rows) - 1), bool(self.source.busy)))


@asynccontextmanager
async def followed(path: Path, shown: Shown | None = None) -> AsyncIterator[LogSource]:
    shown = shown or Shown()
    source = shown.source = LogSource(path, shown.changed, slice_size=SLICE)
    task = asyncio.create_task(source.follow())
    try:
        yield source
    finally:
        task.cancel()
        await asyncio.wait({task})
        source.close()


@contextmanager
def allocated() -> Iterator[list[int]]:
    """How many bytes more Python's objects have behind the block, whatever else the process holds."""
    added: list[int] = []
    tracemalloc.start()
    try:
        yield added
        added.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()


async def read(source: LogSource) -> None:
    """Until each line is known."""
    await until(lambda: len(source.index) == LINES and not source.busy)


async def has(source: LogSource, count: int) -> None:
    """Until the search is over and shows so many lines."""
    await until(lambda: len(source.rows) == count and not source.busy)


async def test_the_end_is_there_long_before_the_rest_and_little_is_kept(log: Path) -> None:
    shown = Shown()
    async with followed(log, shown) as source:
        with allocated() as added:
            await read(source)
        first, *_, last = shown.rows
        # The newest, before the others were looked at.
        assert 0 < first[0] < LINES // 20
        assert first[1:] == (source.index.stop - 1, True)
        assert last == (LINES, source.index.stop - 1, False)
    assert added[0] < LINES * 100  # bytes: less than half of what the lines have


@pytest.mark.slow
async def test_a_filter_finds_the_newest_first_and_shows_them_before_it_has_all(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_query, "TURN", 0)  # in many steps, however quick the machine is
    shown = Shown()
    async with followed(log, shown) as source:
        await read(source)
        for query, count in (
            (LogQuery(ERROR), LINES // 10),
            (LogQuery(text=RARE), 1),
            (LogQuery(text="agent:research -logger:httpx2"), LINES),
        ):
            shown.rows.clear()
            source.ask(query)
            await has(source, count)
            assert shown.rows[0][2], "nothing was shown while the search went on"
            if count > 1:
                assert shown.rows[0][0] < count
                assert shown.rows[0][1] == source.rows.number(len(source.rows) - 1)
        assert source.rows.number(LINES - 1) == source.index.stop - 1


async def test_a_search_that_is_put_aside_ends_at_once(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_query, "TURN", 0)  # in many steps, however quick the machine is
    slow, searched = LogQuery(text="~request.*in real life"), list[LogQuery]()
    find_in = log_query.find_in

    def noting(parts: Sequence[Any], query: LogQuery, cancelled: Any) -> Any:
        searched.append(query)
        return find_in(parts, query, cancelled)

    monkeypatch.setattr(log_source, "find_in", noting)
    async with followed(log) as source:
        await read(source)
        source.ask(slow)
        await until(lambda: len(source.rows))
        assert source.busy
        begun = searched.count(slow)
        source.ask(LogQuery(ERROR))
        await has(source, LINES // 10)
        # The step that was under way, and none after it.
        assert searched.count(slow) <= begun + 1


async def test_the_loop_goes_on_while_a_search_runs(log: Path) -> None:
    async with followed(log) as source:
        await read(source)
        source.ask(LogQuery(text="~(re.*u|re.*t)+est.*life"))
        turns = 0
        while source.busy:
            await asyncio.sleep(0.001)
            turns += 1
        assert turns > 20  # a search on the loop would leave it a turn for each thread call
