"""Signals end the workbench also while its loop waits for a terminal that is not read."""

import asyncio
import os
import signal
from threading import Event

import pytest
from support.waiting import until

from pallas_tui.shell import exit_signals
from pallas_tui.shell.exit_signals import ExitSignals


class Ends:
    """What was asked for."""

    def __init__(self) -> None:
        self.is_fleet_stopped = Event()
        self.forced: list[int] = []
        self.signals = ExitSignals(self.is_fleet_stopped.set, self.forced.append)


def raise_(number: int) -> None:
    os.kill(os.getpid(), number)


async def test_the_first_signal_asks_the_workbench_to_leave() -> None:
    ends, left = Ends(), asyncio.Event()
    with ends.signals:
        ends.signals.on_signal(left.set)
        raise_(signal.SIGTERM)
        async with asyncio.timeout(60):
            await left.wait()
        ends.signals.screen_gone()
    assert ends.forced == []


async def test_one_that_came_before_the_screen_is_not_lost() -> None:
    ends, left = Ends(), asyncio.Event()
    with ends.signals:
        raise_(signal.SIGHUP)
        await until(lambda: ends.signals.seconds_left is not None)
        ends.signals.on_signal(left.set)
        assert left.is_set()


async def test_a_screen_that_does_not_go_does_not_keep_the_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exit_signals, "SCREEN_S", 0.0)
    ends = Ends()
    with ends.signals:
        raise_(signal.SIGTERM)
        await until(lambda: bool(ends.forced))
    assert ends.is_fleet_stopped.is_set()
    assert set(ends.forced) == {0}


async def test_an_end_that_takes_too_long_is_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exit_signals, "END_S", 0.0)
    ends = Ends()
    with ends.signals:
        ends.signals.screen_gone()
        raise_(signal.SIGTERM)
        await until(lambda: bool(ends.forced))
    assert not ends.is_fleet_stopped.is_set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_it_at_once(number: signal.Signals) -> None:
    ends = Ends()
    with ends.signals:
        raise_(signal.SIGTERM)
        await until(lambda: ends.signals.seconds_left is not None)
        raise_(signal.SIGHUP)  # a terminal that is closed sends several
        raise_(number)
        await until(lambda: bool(ends.forced))
    assert ends.forced == [128 + number]
