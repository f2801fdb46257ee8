"""Starts an agent or program again after a failure: at most one restart waits, and it can be called off."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import Context
from time import monotonic, time
from typing import Final

from pallas.config.models import RestartConfig
from pallas.deadlines import cancel_and_wait

from .restart_policy import AfterFailure, RestartDecision, RestartPolicy

log = logging.getLogger(__name__)

# Seconds that a start which is called off has to end.
_CANCEL_TIMEOUT: Final = 5.0


class Supervisor:
    """Starts the agent or program ``name`` again when it failed. Belongs to one event loop.

    ``again`` starts it, in a task of the supervisor's, never twice at a time; it tells ``failed`` of its
    own failures and does not raise. Values may be read in any thread.
    """

    def __init__(self, name: str, policy: RestartPolicy, again: Callable[[], Awaitable[object]]) -> None:
        self.policy = policy
        self.restarts = 0
        """How often it was started again by itself."""
        self.restart_at: float | None = None
        """When it is started again, Unix seconds; None when it does not wait for that."""
        self._name = name
        self._again = again
        self._due: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def crashes(self) -> int:
        """Failures within the window of its policy."""
        return self.policy.crashes

    @property
    def retry_after(self) -> float | None:
        """Seconds until it is started again, None when it does not wait for that."""
        due = self._due
        return max(0.0, due - monotonic()) if due is not None else None

    def failed(self) -> RestartDecision:
        """It failed now; where it is to be started again, that is under way."""
        return self._follow(self.policy.failed())

    def ended(self) -> RestartDecision:
        """It ended now, well and by itself; where it is to be started again, that is under way."""
        return self._follow(self.policy.ended())

    def well(self) -> None:
        """Note that it is up from now on."""
        self.policy.well()
        self._due = self.restart_at = None

    def adopt(self, config: RestartConfig) -> None:
        """Follow this policy from now on, and forget earlier failures."""
        self.policy.adopt(config)

    async def forget(self) -> None:
        """Call off the restart and forget failures: an operator takes over."""
        self.policy.reset()
        await self._call_off()

    async def put_off(self) -> float | None:
        """Start nothing until ``resume``; the seconds that were left, None where nothing waited."""
        left = self.retry_after
        if left is None and self._task is not None and not self._task.done():
            left = 0.0  # it was just being started
        await self._call_off()
        return left

    def resume(self, seconds: float) -> None:
        """Start it again after so many seconds."""
        if not self._closed:
            self._wait(seconds)

    async def close(self) -> None:
        """Start nothing any more."""
        self._closed = True
        await self._call_off()

    def _follow(self, decision: RestartDecision) -> RestartDecision:
        if decision.after is not AfterFailure.RESTART:
            return decision
        if self._closed:
            return RestartDecision(AfterFailure.STAY_DOWN, decision.crashes)
        self._wait(decision.delay_s)
        return decision

    def _wait(self, seconds: float) -> None:
        self._due, self.restart_at = monotonic() + seconds, time() + seconds
        if self._task is None or self._task.done():
            # In an empty context: the restart keeps no variables of the run that failed.
            self._task = asyncio.create_task(self._run(), name=f"restart {self._name}", context=Context())

    async def _run(self) -> None:
        while (seconds := self.retry_after) is not None:
            if seconds > 0:
                await asyncio.sleep(seconds)
                continue  # a clock may be coarser than the other
            self._due = self.restart_at = None
            self.restarts += 1
            try:
                await self._again()
            except Exception:
                log.exception("%s could not be started again", self._name)

    async def _call_off(self) -> None:
        task, self._task = self._task, None
        self._due = self.restart_at = None
        if task is None or task is asyncio.current_task():
            return
        await cancel_and_wait(task, seconds=_CANCEL_TIMEOUT)
