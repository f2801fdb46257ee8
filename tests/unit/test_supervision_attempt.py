"""One attempt at a time, with a limit; and the one restart that something waits for."""

import asyncio
from itertools import count
from typing import Any

import pytest
from support.waiting import until

from pallas import deadlines
from pallas.config.models import RestartConfig
from pallas.fleet.supervisor import supervisor
from pallas.fleet.supervisor.agent_lifecycle import StartAttempt
from pallas.fleet.supervisor.restart_policy import AfterFailure, RestartPolicy
from pallas.fleet.supervisor.supervisor import Supervisor

SOON = RestartConfig(backoff=0.05, backoff_max=0.05, crashes=100)
LATER = RestartConfig(backoff=600, backoff_max=600)


class Work:
    """Waits for ``go``, and when it is cancelled for ``clean`` before it ends."""

    def __init__(self) -> None:
        self.go, self.clean = asyncio.Event(), asyncio.Event()
        self.begun = self.over = False

    async def do(self) -> str:
        self.begun = True
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            await self.clean.wait()
            raise
        finally:
            self.over = True
        return "done"


async def test_an_attempt_returns_and_raises_what_its_work_does() -> None:
    attempt, work = StartAttempt(), Work()
    work.go.set()
    assert await attempt.within(60, work.do(), "work") == "done"

    async def fails() -> None:
        raise ValueError("odd")

    with pytest.raises(ValueError, match="odd"):
        await attempt.within(60, fails(), "work")


async def test_an_attempt_is_given_up_in_time_and_the_next_one_waits_for_its_clean_up() -> None:
    attempt, first, second = StartAttempt(), Work(), Work()
    with pytest.raises(TimeoutError):
        await attempt.within(0.01, first.do(), "first")
    assert not first.over
    second.go.set()
    after = asyncio.create_task(attempt.within(60, second.do(), "second"))
    for _ in range(10):  # more turns of the loop than it takes to begin
        await asyncio.sleep(0)
    assert (second.begun, after.done()) == (False, False)
    first.clean.set()
    assert await after == "done"
    assert first.over


async def test_time_in_which_others_blocked_the_loop_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "_SLICE", 0.01)
    hours = count(0, 3_600)
    monkeypatch.setattr(deadlines, "monotonic", lambda: next(hours))  # each look is an hour after the last
    attempt, work = StartAttempt(), Work()
    asyncio.get_running_loop().call_later(0.05, work.go.set)
    assert await attempt.within(5, work.do(), "work") == "done"


async def test_who_is_cancelled_cancels_its_attempt() -> None:
    attempt, work = StartAttempt(), Work()
    work.clean.set()
    asking = asyncio.create_task(attempt.within(60, work.do(), "work"))
    await until(lambda: work.begun)
    asking.cancel()
    await asyncio.wait({asking})
    assert (asking.cancelled(), work.over) == (True, True)


async def test_the_end_gives_up_what_is_under_way() -> None:
    attempt, work = StartAttempt(), Work()
    work.clean.set()
    with pytest.raises(TimeoutError):
        await attempt.within(0.01, work.do(), "work")
    await attempt.close()
    assert work.over


class Frail:
    """Counts its starts; each ends as ``outcome`` says."""

    def __init__(self, config: RestartConfig) -> None:
        self.starts = self.at_a_time = self.most = 0
        self.failures = 0
        self.gate: asyncio.Event | None = None
        self.supervisor = Supervisor("frail", RestartPolicy(config), self.again)

    async def again(self) -> None:
        self.starts += 1
        self.at_a_time += 1
        self.most = max(self.most, self.at_a_time)
        try:
            if self.gate is not None:
                await self.gate.wait()
            if self.failures:
                self.failures -= 1
                self.supervisor.failed()
            else:
                self.supervisor.well()
        finally:
            self.at_a_time -= 1


def tasks() -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks() if task.get_name() == "restart frail"}


async def test_what_fails_again_and_again_is_started_by_one_task() -> None:
    frail = Frail(SOON)
    frail.failures = 5
    frail.supervisor.failed()
    assert frail.supervisor.retry_after is not None
    assert len(tasks()) == 1
    await until(lambda: frail.starts == 6)
    await until(lambda: not tasks())
    assert (frail.most, frail.supervisor.restarts, frail.supervisor.restart_at) == (1, 6, None)
    assert frail.supervisor.crashes == 6


async def test_failures_that_are_told_at_once_make_one_restart() -> None:
    frail = Frail(SOON)
    for _ in range(10):
        frail.supervisor.failed()
    await until(lambda: not tasks())
    assert (frail.starts, frail.most) == (1, 1)


async def test_a_failure_while_it_is_being_started_is_followed_by_one_more_start() -> None:
    frail = Frail(SOON)
    frail.gate = asyncio.Event()
    frail.supervisor.failed()
    await until(lambda: frail.at_a_time == 1)
    frail.failures = 1
    frail.gate.set()
    await until(lambda: not tasks())
    assert (frail.starts, frail.most) == (2, 1)


async def test_who_takes_it_in_hand_calls_everything_off() -> None:
    waiting, starting = Frail(LATER), Frail(SOON)
    waiting.supervisor.failed()
    starting.gate = asyncio.Event()
    starting.supervisor.failed()
    await until(lambda: starting.at_a_time == 1)
    for frail in (waiting, starting):
        await frail.supervisor.forget()
        supervisor = frail.supervisor
        assert (supervisor.restart_at, supervisor.retry_after, supervisor.crashes) == (None, None, 0)
    assert not tasks()
    assert (waiting.starts, starting.at_a_time) == (0, 0)


async def test_a_restart_that_is_put_off_is_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(supervisor, "monotonic", lambda: now)
    frail = Frail(LATER)
    delay_s = frail.supervisor.failed().delay_s
    now += 40
    assert await frail.supervisor.put_off() == pytest.approx(delay_s - 40)
    assert (tasks(), frail.supervisor.crashes) == (set(), 1)
    frail.supervisor.resume(0.0)
    await until(lambda: frail.starts == 1)
    assert await Frail(SOON).supervisor.put_off() is None


async def test_whoever_starts_it_ends_the_wait() -> None:
    frail = Frail(SOON)
    frail.supervisor.failed()
    frail.supervisor.well()
    assert frail.supervisor.restart_at is None
    await until(lambda: not tasks())
    assert frail.starts == 0


async def test_nothing_is_started_after_the_end() -> None:
    frail = Frail(SOON)
    frail.supervisor.failed()
    await frail.supervisor.close()
    assert frail.supervisor.failed().after is AfterFailure.STAY_DOWN
    frail.supervisor.resume(0.0)
    assert not tasks()
    assert frail.starts == 0
