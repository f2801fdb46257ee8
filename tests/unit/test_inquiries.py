"""Questions that somebody waits for."""

import asyncio
from contextvars import ContextVar

import pytest
from support.waiting import until

from pallas.fleet import inspector
from pallas.fleet.inspector import PendingCalls
from pallas.model import Fault

spoken: ContextVar[str] = ContextVar("spoken", default="nothing")


class Opened:
    """Work that has something to close, which takes a moment."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.may_close = asyncio.Event()
        self.closed = False

    async def work(self) -> None:
        try:
            self.reached.set()
            await asyncio.Event().wait()
        finally:
            await self.may_close.wait()
            self.closed = True


async def test_it_gives_the_result_and_knows_nothing_of_who_asked() -> None:
    spoken.set("a secret")

    async def work() -> str:
        return spoken.get()

    assert await PendingCalls().run(work(), 10) == "nothing"


async def test_a_failure_is_that_of_the_work() -> None:
    async def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await PendingCalls().run(work(), 10)


async def test_who_waits_too_long_is_told_at_once_and_what_was_opened_is_closed_undisturbed() -> None:
    asked, opened = PendingCalls(), Opened()
    with pytest.raises(TimeoutError):
        await asked.run(opened.work(), 0)
    assert len(asked) == 1
    opened.may_close.set()
    await until(lambda: len(asked) == 0)


async def test_who_goes_away_ends_it_and_the_end_of_the_fleet_does_not_disturb_that() -> None:
    asked, opened = PendingCalls(), Opened()
    call = asyncio.create_task(asked.run(opened.work(), 60))
    await opened.reached.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not opened.closed
    closing = asyncio.create_task(asked.close())  # would cancel it a second time
    await asyncio.sleep(0)
    opened.may_close.set()
    await closing
    assert opened.closed
    assert len(asked) == 0


async def test_whoever_waits_when_the_fleet_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, opened = PendingCalls(), Opened()
    call = asyncio.create_task(asked.run(opened.work(), 60))
    await opened.reached.wait()
    opened.may_close.set()
    await asked.close()
    with pytest.raises(Fault, match="the fleet is stopping"):
        await call
    with pytest.raises(Fault, match="the fleet is stopping"):
        await asked.run(opened.work(), 60)


async def test_there_is_an_end_to_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspector, "MAX_PENDING", 1)
    asked, opened = PendingCalls(), Opened()
    call = asyncio.create_task(asked.run(opened.work(), 60))
    await opened.reached.wait()
    with pytest.raises(Fault, match="ask again in a moment"):
        await asked.run(opened.work(), 60)
    opened.may_close.set()
    await asked.close()
    with pytest.raises(Fault):
        await call
