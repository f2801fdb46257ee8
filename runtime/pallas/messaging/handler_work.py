"""Tasks in which messages are handled: each has an owner that cancels it, and an end that is waited for."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextvars import Context
from time import perf_counter
from typing import Any, Final

from .capacity import Slots
from .frames import HandlerFrame, Passing

log = logging.getLogger("pallas.messaging")

GRACE: Final = 1.5
"""Seconds that a cancelled handler has to end; then it is left to itself. Endpoints give theirs less."""


class MessageTask:
    """One message with its handler, or one question to an agent of another kind (``slot`` False).

    ``over`` once nobody waits for it: what it says then comes too late.
    """

    __slots__ = ("_freed", "_running", "agent", "began", "frame", "over", "passing", "slot", "task", "timer")

    def __init__(self, running: "Works", frame: HandlerFrame, passing: Passing, slot: bool) -> None:
        self._running = running
        self._freed = False
        self.frame = frame
        self.agent = frame.agent
        self.passing = passing
        self.slot = slot
        self.over = False
        self.began = 0.0
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None

    def within(self, seconds: float, tell: Callable[["MessageTask"], None]) -> None:
        """``tell`` is called after that time, unless it is over."""
        self.timer = asyncio.get_running_loop().call_later(seconds, tell, self)

    def start(self) -> None:
        """Its task has begun: from here on it frees itself."""
        self.began = perf_counter()

    def end(self) -> None:
        """Its task ends: it says what it says, and its place is free."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if not self.over:
            self.passing.kept.seconds = perf_counter() - self.began
        self._free()

    def cancel(self) -> None:
        """Nobody waits for it any more; it may take ``GRACE`` to end."""
        self.over = True
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.task is None or self._freed:
            return
        if self.began:
            self.passing.kept.seconds = perf_counter() - self.began
        self.task.cancel()
        if self.began:
            self.timer = asyncio.get_running_loop().call_later(GRACE, self._leave)
        else:
            self._free()  # its task ends without ever having begun

    def _leave(self) -> None:
        self.timer = None
        if not self._freed:
            log.warning(
                "%s: a message goes on though it was cancelled; catch asyncio.CancelledError only to clean "
                "up, and raise it again",
                self.agent,
                extra={"agent": self.agent},
            )
            self._free()

    def _free(self) -> None:
        if not self._freed:
            self._freed = True
            self._running.freed(self)


class Works:
    """The works of one run. ``every`` are those whose task has not ended, also where they were cancelled."""

    def __init__(self, slots: Slots, every: set[MessageTask], context: Context) -> None:
        self._slots = slots
        self._every = every
        self._context = context
        self._own: set[MessageTask] = set()

    def begin(self, work: MessageTask, job: Coroutine[Any, Any, None]) -> None:
        """Its task, in the context of the run: whoever made room for it is somebody else."""
        work.task = asyncio.get_running_loop().create_task(
            job, name=f"message for {work.agent}", context=self._context.copy()
        )
        self._own.add(work)
        self._every.add(work)

    def freed(self, work: MessageTask) -> None:
        """It ended, or is left to itself."""
        self._own.discard(work)
        self._every.discard(work)
        if work.slot:
            self._slots.give(work.agent)

    async def settle(self) -> None:
        """All are cancelled: wait for them, ``GRACE`` at most."""
        tasks = [each.task for each in self._own if each.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE)
