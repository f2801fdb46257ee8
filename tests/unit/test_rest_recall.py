"""The end of a run whose last chunks were not stored, from its record and its thread."""

from dataclasses import replace
from typing import Any, cast

import pytest

from pallas.model import RunRecord
from pallas.surfaces.rest import run_recall as recall_module
from pallas.surfaces.rest.run_recall import Recall
from pallas.surfaces.rest.run_replay import RunReplay

OK = RunRecord("r", "desk", "me", "t", surface="rest", status="ok", started_at=1.0, turn_index=3)
ANSWER, ROLLBACK = {"type": "text", "delta": "all of it"}, {"type": "rollback"}
FINAL = {"type": "final", "threadId": "t", "turnIndex": 3}
STORED = [{"type": "text", "delta": "I look"}, {"type": "tool_call", "toolName": "a__b", "args": {}}]


class Store:
    """The part of a ledger that has one run, its chunks and its answer."""

    def __init__(self, record: RunRecord, chunks: list[dict[str, Any]]) -> None:
        self.record, self.looks = record, 0
        self.rows = dict(enumerate(chunks, 1_000_001))
        self.runs = self.threads = self

    async def find(self, run_id: str) -> RunRecord:
        self.looks += 1
        return self.record

    async def events(self, run_id: str, after: int, limit: int) -> list[tuple[int, dict[str, Any]]]:
        return [(seq, self.rows[seq]) for seq in sorted(self.rows) if seq > after][:limit]

    async def text_at(self, thread: str, turn_index: int) -> str:
        return {("t", 3): "all of it"}[thread, turn_index]


async def chunks_of(store: Store, after: int = 0) -> list[tuple[int, dict[str, Any]]]:
    ledger, none = cast(Any, store), cast(Any, None)
    return [each async for each in Recall(none, ledger, none, RunReplay(ledger), none).chunks("r", after)]


@pytest.mark.parametrize("after", [0, 1, 2, 9])
async def test_a_reader_gets_the_answer_wherever_it_was_with_the_same_numbers(after: int) -> None:
    found = await chunks_of(Store(OK, STORED), after)
    stored = [each for each in enumerate(STORED, 1) if each[0] > after]
    assert found == [*stored, (1_000_001, ROLLBACK), (1_000_002, ANSWER), (1_000_003, FINAL)]


async def test_a_reader_that_has_a_part_of_the_end_gets_the_rest() -> None:
    assert await chunks_of(Store(OK, STORED), 1_000_002) == [(1_000_003, FINAL)]


async def test_the_end_of_a_later_attempt_has_later_numbers() -> None:
    record = replace(OK, attempt=2, status="error", fault="no")
    numbers = [(number, chunk["type"]) for number, chunk in await chunks_of(Store(record, []))]
    assert numbers == [(2_000_001, "rollback"), (2_000_002, "error")]


async def test_of_a_run_that_came_another_way_a_reader_gets_what_it_has_not() -> None:
    store = Store(replace(OK, surface="mcp"), [])
    assert await chunks_of(store) == [(1, ANSWER), (2, FINAL)]
    assert [number for number, _ in await chunks_of(store, 7)] == [1_000_001, 1_000_002, 1_000_003]


async def test_the_last_chunks_of_a_run_that_has_just_ended_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recall_module, "FOLLOW_EVERY", 0.0)
    monkeypatch.setattr(recall_module, "time", lambda: 100.0)
    store = Store(replace(OK, finished_at=99.0), STORED)
    read = store.events

    async def events(run_id: str, after: int, limit: int) -> list[tuple[int, dict[str, Any]]]:
        if store.looks > 2:
            store.rows[1_000_003] = FINAL
        return await read(run_id, after, limit)

    monkeypatch.setattr(store, "events", events)
    assert await chunks_of(store) == list(enumerate([*STORED, FINAL], 1))
