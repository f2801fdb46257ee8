"""Time that passes when a test says so: no limit has to be short, and none passes too early."""

import asyncio
from collections.abc import Iterable
from time import perf_counter

import pytest

from pallas.runs.run import ActiveRun


def put_forward(seconds: float, patch: pytest.MonkeyPatch) -> None:
    """Have it be so many seconds later for the timers of the running loop."""
    loop = asyncio.get_running_loop()
    clock = loop.time
    patch.setattr(loop, "time", lambda: clock() + seconds)


def expire(runs: Iterable[ActiveRun]) -> None:
    """Have the time be over that each of these runs has, its agent's and its caller's."""
    for run in runs:
        if run.until is not None:
            run.until = perf_counter()
        deadline = run.clock._deadline
        assert deadline is not None, "the agent is not asked yet"
        deadline.reschedule(asyncio.get_running_loop().time())
