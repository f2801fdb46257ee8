"""Runs in a fleet of their own, which answers from a recording or goes on from one."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pallas.config import Project
    from pallas.executors.replay.replay import ReplayPlan
    from pallas.fleet.replay_fleet import ReplayFleet


def with_replay_fleet[T](
    project: "Project", plan: "ReplayPlan", work: Callable[["ReplayFleet"], Awaitable[T]]
) -> T:
    """Start a fleet, return the result of ``work``, and stop it; SIGTERM cancels.

    Raises Fault, and CancelledError after SIGTERM.
    """
    from pallas.fleet.child_processes import ending_children
    from pallas.fleet.replay_fleet import ReplayFleet
    from pallas.processes.event_loop import run

    from .quiet_output import quietly

    async def main() -> T:
        task = asyncio.current_task()
        if task is not None:
            with suppress(NotImplementedError):  # there are no such handlers on Windows
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        async with ReplayFleet.started(project, plan) as fleet:
            return await work(fleet)

    with quietly(project), ending_children():
        return run(main())
