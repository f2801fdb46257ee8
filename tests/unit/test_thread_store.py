"""What a fleet writes of a run that waits for its thread."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from support.waiting import until

from pallas.model import Fault, FaultType
from pallas.runs import retry_queue
from pallas.runs.run import ActiveRun, Stats
from pallas.runs.thread_store import ThreadStore
from pallas.telemetry.event_hub import EventHub


async def test_the_place_of_a_run_is_given_up_once_the_ledger_answers_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retry_queue, "TRY_EVERY", 0.01)
    left: list[str] = []

    async def stop_waiting(run_id: str) -> None:
        left.append(run_id)
        if len(left) < 3:
            raise Fault(FaultType.TRANSPORT, "it is away")

    ledger: Any = SimpleNamespace(threads=SimpleNamespace(stop_waiting=stop_waiting, hand_over_place=None))
    store = ThreadStore(ledger, EventHub())
    run = ActiveRun("r1", "clerk", EventHub(), Stats(), place=7)
    store.leave(run)
    assert run.place is None
    await until(lambda: len(left) == 3)
    await asyncio.sleep(0.05)
    assert left == ["r1"] * 3
    await store.close(1)
