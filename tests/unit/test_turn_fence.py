"""Whether a tool may still be called for a run, after its fleet was taken for dead and goes on."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pallas.model import Principal, RunRecord
from pallas.runs.conversations import Conversation
from pallas.runs.in_flight import InFlight
from pallas.runs.ledger_writes import LedgerWrites, ProgressWriter
from pallas.runs.run import ActiveRun, Stats
from pallas.runs.turn_writer import TurnWriter
from pallas.telemetry.event_hub import EventHub


async def test_a_run_that_began_before_the_lock_was_lost_asks_the_database_before_a_call() -> None:
    answers = [True, False]
    asked: list[str] = []

    async def has(thread: str, run: RunRecord) -> bool:
        asked.append(run.id)
        return answers.pop(0)

    ledger: Any = SimpleNamespace(threads=SimpleNamespace(has=has), is_fresh=True, times_lost=0)
    run = ActiveRun("r1", "clerk", EventHub(), Stats())
    writes = LedgerWrites(ledger, EventHub(), lambda _: None)
    writer = TurnWriter(writes, ledger, Conversation("t1", Principal()), run.record, run)
    await writer.still_ours()
    assert not asked
    # The lock is held again: what another fleet took meanwhile is known to the database alone.
    ledger.times_lost = 1
    for _ in range(2):
        await writer.still_ours()
    assert asked == ["r1"]
    ledger.times_lost = 2
    run.task = asyncio.create_task(writer.still_ours())  # type: ignore[arg-type]
    await asyncio.wait({run.task}, timeout=60)
    assert run.goes_on_elsewhere


def twice() -> tuple[ActiveRun, ActiveRun]:
    """A run that this fleet lost and claimed again, while it still works on it as before."""
    before, now = (ActiveRun("r1", "clerk", EventHub(), Stats()) for _ in range(2))
    return before, now


async def test_a_run_that_was_claimed_again_is_in_flight_when_its_work_of_before_ends() -> None:
    runs = InFlight()
    ends = [asyncio.Event(), asyncio.Event()]
    before, now = twice()
    for run, end in zip((before, now), ends, strict=True):
        run.start(end.wait())  # type: ignore[arg-type]
        runs.add(run)
    for run, end in zip((before, now), ends, strict=True):
        assert runs.get("r1") is now
        assert runs.knows("r1")
        end.set()
        assert run.task is not None
        await asyncio.wait({run.task}, timeout=60)
    assert not runs.knows("r1")


@pytest.mark.parametrize("seconds", [0.0, 60.0], ids=["late", "in-time"])
async def test_a_run_that_was_claimed_again_is_in_flight_when_its_work_of_before_is_cut(
    seconds: float,
) -> None:
    runs = InFlight()
    before, now = twice()
    for run in (before, now):
        run.start(asyncio.Event().wait())  # type: ignore[arg-type]
        runs.add(run)
    await runs.cut([before], "", seconds)
    assert runs.get("r1") is now
    await runs.cut([now], "", 60.0)
    assert not len(runs)


async def test_the_progress_of_a_run_that_was_claimed_again_is_written_when_its_work_of_before_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pallas.runs.ledger_writes.PROGRESS_EVERY", 0.0)
    written: asyncio.Queue[str] = asyncio.Queue()

    async def progress(under_way: Sequence[RunRecord]) -> None:
        for each in under_way:
            written.put_nowait(each.claim)

    ledger: Any = SimpleNamespace(threads=SimpleNamespace(progress=progress))
    writer = ProgressWriter(ledger, lambda run: None)
    before, now = twice()
    for run in (before, now):
        writer.begin(run)
    writer.end(before)
    async with asyncio.timeout(60):
        assert await written.get() == now.claim
    writer.end(now)
    await writer.close()
