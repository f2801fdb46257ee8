"""A run with a key is cancelled at another fleet before the one that has it has told the ledger."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.executors import FakeExecutor
from support.kept import asked, kernel_on

from pallas.executors import Emit, ExecutorTurn, TurnResult
from pallas.ledger import Ledger, open_ledger
from pallas.model import Fault, RunRequest
from pallas.model.ids import mint
from pallas.runs.keyed_runs import KeyedRuns


async def forever(turn: ExecutorTurn, emit: Emit) -> TurnResult:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.fixture
async def ledgers(tmp_path: Path) -> AsyncIterator[tuple[Ledger, Ledger]]:
    """Those of two fleets on one database."""
    url = f"sqlite:///{tmp_path}/ledger.sqlite3"
    one, two = await open_ledger(url), await open_ledger(url)
    yield one, two
    await one.close()
    await two.close()


class SlowClaims:
    """Holds back who has claimed a key until ``go_on`` is set."""

    def __init__(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        self.claimed, self.go_on = asyncio.Event(), asyncio.Event()
        claim = ledger.runs.claim_key

        async def slowly(*given: Any, **more: Any) -> str:
            found = await claim(*given, **more)
            self.claimed.set()
            await self.go_on.wait()
            return found

        monkeypatch.setattr(ledger.runs, "claim_key", slowly)


@pytest.mark.parametrize("in_thread", [True, False], ids=["thread", "no-thread"])
async def test_a_run_that_is_cancelled_while_its_fleet_is_about_to_begin_it_ends(
    ledgers: tuple[Ledger, Ledger], monkeypatch: pytest.MonkeyPatch, in_thread: bool
) -> None:
    one, two = ledgers
    claims, executor = SlowClaims(one, monkeypatch), FakeExecutor(forever)
    here, there = KeyedRuns(kernel_on(one, executor), one), KeyedRuns(kernel_on(two, executor), two)
    request = asked("tell me", mint(), new=True) if in_thread else RunRequest("echo", "tell me")
    asking = asyncio.create_task(here.run(request, "a key"))
    await claims.claimed.wait()
    cancelled = await there.cancel(request.principal.id, "a key")
    assert cancelled
    claims.go_on.set()
    async with asyncio.timeout(30):
        with pytest.raises(Fault) as ended:
            await asking
    assert ended.value.data["cancelled"]
    # Who asks again with the key gets what became of it, and no conflict.
    async with asyncio.timeout(30):
        with pytest.raises(Fault) as again:
            await there.run(request, "a key")
    assert again.value.data["cancelled"]


async def test_a_run_whose_fleet_died_before_it_began_does_not_begin_after_it_was_cancelled(
    ledgers: tuple[Ledger, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = ledgers
    claims, executor = SlowClaims(one, monkeypatch), FakeExecutor(forever)
    here, there = KeyedRuns(kernel_on(one, executor), one), KeyedRuns(kernel_on(two, executor), two)
    request = asked("tell me", mint(), new=True)
    dies = asyncio.create_task(here.run(request, "a key"))
    await claims.claimed.wait()
    dies.cancel()
    await asyncio.wait({dies})
    assert await there.cancel(request.principal.id, "a key")
    with pytest.raises(Fault, match="cancelled before it began"):
        await there.run(replace(request), "a key")
    assert not executor.turns
    with pytest.raises(Fault, match="with another request"):
        await there.run(replace(request, text="something else"), "a key")
