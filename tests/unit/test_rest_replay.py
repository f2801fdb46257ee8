"""The log of a run: read as it grows, by late and by slow readers, from memory and from the ledger."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from support.waiting import until

from pallas.model import Fault, FaultType
from pallas.model.refusals import not_found, taken_over
from pallas.surfaces.rest import run_replay as replay_module
from pallas.surfaces.rest.run_replay import PER_ATTEMPT, RunEventStore, RunLog, RunReplay


class Rows:
    """The part of a ledger that keeps events."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self.known = True
        self.claim = ""
        self.broken = False
        self.refused = 0
        self.free = asyncio.Event()
        self.free.set()

    @property
    def runs(self) -> "Rows":
        return self

    async def add_events(
        self, run_id: str, rows: list[tuple[int, dict[str, Any]]], *, claim: str = ""
    ) -> None:
        await self.free.wait()
        if claim != self.claim:
            raise taken_over()
        if self.broken:
            self.refused += 1
            raise Fault(FaultType.TRANSPORT, "the disk is full")
        if not self.known:
            raise not_found("run not found")
        self.rows |= dict(rows)

    async def events(self, run_id: str, after: int, limit: int) -> list[tuple[int, dict[str, Any]]]:
        return [(seq, self.rows[seq]) for seq in sorted(self.rows) if seq > after][:limit]


def text(number: int) -> dict[str, Any]:
    return {"type": "text", "delta": f"{number};"}


async def all_of(log: RunLog, after: int = 0) -> list[tuple[int, dict[str, Any]]]:
    return [each async for each in log.read(after)]


async def kept(store: RunEventStore, after: int = 0) -> list[tuple[int, dict[str, Any]]]:
    found: list[tuple[int, dict[str, Any]]] = []
    while rows := await store.read(found[-1][0] if found else after):
        found += rows
    return found


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
async def replay(rows: Rows) -> AsyncIterator[RunReplay]:
    made = RunReplay(cast(Any, rows))
    yield made
    await made.close()


async def test_readers_hear_everything_from_where_they_want(replay: RunReplay) -> None:
    log = replay.open("r1")
    log.add(text(1))
    early = asyncio.create_task(all_of(log))
    late = asyncio.create_task(all_of(log, 2))
    await asyncio.sleep(0)
    for number in (2, 3, 4):
        log.add(text(number))
    log.end()
    assert await early == [(number, text(number)) for number in (1, 2, 3, 4)]
    assert await late == [(number, text(number)) for number in (3, 4)]
    assert await all_of(log, 3) == [(4, text(4))]
    assert await all_of(log, 99) == []


async def test_the_ledger_has_the_same_with_the_same_numbers(replay: RunReplay, rows: Rows) -> None:
    log = replay.open("r1")
    chunks = [
        text(1),
        text(2),
        {"type": "thinking", "delta": "hm"},
        {"type": "tool_call", "toolName": "a__b", "args": {}},
        text(5),
        {"type": "final", "threadId": None, "turnIndex": None},
    ]
    for chunk in chunks:
        log.add(chunk)
    log.end()
    await log.written()
    assert await kept(replay.store("r1")) == list(enumerate(chunks, 1))
    # Pieces of text that follow one another take one row, and are told apart again.
    assert len(rows.rows) == 5
    assert (await replay.store("r1").read(1))[0] == (2, text(2))


async def test_memory_is_bounded_and_a_slow_reader_goes_on_from_the_ledger(
    replay: RunReplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_module, "MAX_LOG", 2_000)
    monkeypatch.setattr(replay_module, "FLUSH_AT", 500)
    log = replay.open("r1")
    slow = log.read()
    log.add(text(1))
    assert (await anext(slow))[0] == 1
    for number in range(2, 500):
        log.add(text(number))
        assert log.size <= 2_000
        await asyncio.sleep(0)
    log.end()
    assert [number async for number, _ in slow] == list(range(2, 500))


async def test_a_reader_whose_place_is_kept_nowhere_is_told(
    replay: RunReplay, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_module, "MAX_LOG", 100)
    monkeypatch.setattr(replay_module, "AWAY_SECONDS", 0.0)
    rows.broken = True
    log = replay.open("r1")
    for number in range(50):
        log.add(text(number))
    log.end()
    with pytest.raises(Fault) as raised:
        await all_of(log)
    assert raised.value.type is FaultType.TRANSPORT and "too far behind" in raised.value.message
    # What is still there is read as ever.
    assert (await all_of(log, 49))[0] == (50, text(49))


@pytest.mark.parametrize("is_over", [False, True])
async def test_chunks_wait_for_a_ledger_that_fails_for_a_while(
    replay: RunReplay, rows: Rows, monkeypatch: pytest.MonkeyPatch, is_over: bool
) -> None:
    monkeypatch.setattr(replay_module, "FLUSH_EVERY", 0.01)
    rows.broken = True
    log = replay.open("r1")
    log.add(text(1))
    if is_over:
        log.end()
    await until(lambda: rows.refused > 1)
    log.add(text(2))
    rows.broken = False
    log.end()
    await until(lambda: len(rows.rows) > 0 and log.writer is not None and log.writer.done())
    assert await kept(replay.store("r1")) == [(1, text(1)), (2, text(2))]


async def test_chunks_of_a_fleet_whose_run_another_has_are_not_stored(replay: RunReplay, rows: Rows) -> None:
    first = replay.open("r1")
    first.add(text(1))
    rows.claim = "theirs"  # another fleet went on, while this one was stopped
    first.add(text(2))
    first.end()
    await first.written()
    assert rows.rows == {}
    second = replay.open("r1", claim="theirs", attempt=2)
    second.add(text(1))
    second.end()
    await second.written()
    assert [number for number, _ in await kept(replay.store("r1"))] == [PER_ATTEMPT + 1]


async def test_chunks_do_not_wait_for_ever(
    replay: RunReplay, rows: Rows, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(replay_module, "AWAY_SECONDS", 0.0)
    rows.broken = True
    log = replay.open("r1")
    log.add(text(1))
    log.end()
    await log.written()
    assert "its chunks could not be kept: the disk is full" in caplog.text


async def test_a_reader_hears_of_a_gap_that_a_slow_ledger_left(
    replay: RunReplay, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_module, "MAX_LOG", 100)
    monkeypatch.setattr(replay_module, "FLUSH_AT", 50)
    monkeypatch.setattr(replay_module, "MAX_PENDING", 400)
    rows.free.clear()
    log = replay.open("r1")
    for number in range(1, 60):  # the ledger takes none of them, and not all can wait for it
        log.add(text(number))
        await asyncio.sleep(0)
    rows.free.set()
    await log.written()
    for number in range(60, 100):
        log.add(text(number))
        await asyncio.sleep(0)
    log.end()
    heard: list[int] = []
    with pytest.raises(Fault, match="too far behind"):
        async for number, chunk in log.read():
            assert chunk == text(number)
            heard.append(number)
    assert heard and heard == list(range(1, len(heard) + 1))
    after_the_gap = [number for number, _ in await kept(replay.store("r1"), heard[-1])]
    assert after_the_gap[0] > heard[-1] + 1 and after_the_gap[-1] == 99
    assert [number for number, _ in await all_of(log, after_the_gap[0] - 1)] == after_the_gap


async def test_a_run_that_the_ledger_knows_only_at_its_end_is_kept_as_well(
    replay: RunReplay, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_module, "FLUSH_AT", 10)
    monkeypatch.setattr(replay_module, "TRY_EVERY", 0.01)
    rows.known = False
    log = replay.open("r1")
    for number in range(5):
        log.add(text(number))
        await asyncio.sleep(0)
    log.end()
    await asyncio.sleep(0)
    rows.known = True
    await log.written()
    assert [number for number, _ in await kept(replay.store("r1"))] == [1, 2, 3, 4, 5]


async def test_who_leaves_last_is_noticed(replay: RunReplay) -> None:
    log, left = replay.open("r1"), []
    log.when_left = lambda: left.append(log.readers)
    log.add(text(1))
    first, second = log.read(), log.read()
    await anext(first), await anext(second)
    await first.aclose()  # type: ignore[attr-defined]
    assert left == []
    await second.aclose()  # type: ignore[attr-defined]
    assert left == [0]
    log.end()
    await all_of(log)
    assert left == [0]


async def test_runs_that_are_over_are_forgotten_in_time_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    replay = RunReplay(cast(Any, Rows()), lambda: now)
    monkeypatch.setattr(replay_module, "monotonic", lambda: now)
    monkeypatch.setattr(replay_module, "MAX_RUNS", 3)
    running = replay.open("running")
    replay.open("old").end()
    now = 299.0
    assert replay.get("old") is not None
    now = 300.0
    assert replay.get("old") is None
    for name in "abc":
        replay.open(name).end()
        now += 1
    assert replay.get("a") is None and replay.get("c") is not None
    assert replay.get("running") is running
    monkeypatch.setattr(replay_module, "MAX_KEPT", 0)
    replay.get("c")  # nothing is in it, so it takes no room
    assert replay.get("c") is not None
    (c := replay.get("c")) and c.add(text(1))
    assert replay.get("c") is None
    running.end()
    await replay.close()
