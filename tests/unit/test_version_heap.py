"""What was left out of collections and replaced is freed, when no run is in flight."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest
from support.waiting import until

from pallas.fleet.gc_policy import begin, settle, tend
from pallas.model import Reloaded
from pallas.runs.in_flight import InFlight
from pallas.telemetry.event_hub import EventHub


class Ring:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.me = self


class Runs(InFlight):
    """Runs in flight, as many as a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = asyncio.Event()
        self.waited = asyncio.Event()

    def __len__(self) -> int:
        return 0 if self.ended.is_set() else 1

    async def wait_ended(self, seconds: float, runs: object = None) -> tuple[()]:
        self.waited.set()
        await self.ended.wait()
        return ()


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    usual, frozen = gc.get_threshold(), gc.get_freeze_count()
    yield
    gc.set_threshold(*usual)
    gc.unfreeze()
    if frozen:
        gc.collect()
        gc.freeze()


@pytest.mark.slow
def test_during_a_start_garbage_is_looked_for_seldom_and_afterwards_as_usual() -> None:
    usual = gc.get_threshold()
    begin()
    assert gc.get_threshold()[0] >= 50 * usual[0]
    settle()
    assert gc.get_threshold() == usual


@pytest.mark.slow
def test_what_a_projects_code_says_of_collections_stays() -> None:
    begin()
    gc.set_threshold(5_000, 7, 9)
    settle()
    assert gc.get_threshold() == (5_000, 7, 9)


@pytest.mark.slow
async def test_an_old_version_is_freed_when_no_run_is_in_flight() -> None:
    hub, runs, ring = EventHub(), Runs(), Ring()
    gone = weakref.ref(ring)
    settle()
    tending = asyncio.create_task(tend(hub, runs, interval_s=0.0))
    del ring
    gc.collect()
    assert gone() is not None  # left out
    await asyncio.sleep(0)
    hub.publish(Reloaded(agent="one", outcome="live"))
    await runs.waited.wait()
    assert gone() is not None
    runs.ended.set()
    await until(lambda: gone() is None)
    assert gc.get_freeze_count()
    tending.cancel()
    await asyncio.wait({tending})


@pytest.mark.slow
async def test_nothing_is_looked_through_where_nothing_was_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.unfreeze()
    hub, runs = EventHub(), Runs()
    tending = asyncio.create_task(tend(hub, runs, interval_s=0.0))
    await asyncio.sleep(0)
    hub.publish(Reloaded(agent="one", outcome="live"))
    await runs.waited.wait()
    runs.ended.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not gc.get_freeze_count()
    tending.cancel()
    await asyncio.wait({tending})
