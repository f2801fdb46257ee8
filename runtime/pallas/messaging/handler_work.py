"""Tasks that handle messages: each has an owner that cancels it, and its end is awaited."""

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
"""Seconds a cancelled handler has to end before it is abandoned. Endpoints give theirs less."""


class MessageTask:
    """One message with its handler, or one question to an agent of another kind (``slot`` False).

    ``is_ended`` is set when its result is no longer awaited: a reply then comes too late.
    """

    __slots__ = (
        "_freed",
        "_running",
        "agent",
        "began",
        "frame",
        "is_ended",
        "passing",
        "slot",
        "task",
        "timer",
    )

    def __init__(self, running: "Works", frame: HandlerFrame, passing: Passing, slot: bool) -> None:
        self._running = running
        self._freed = False
        self.frame = frame
        self.agent = frame.agent
        self.passing = passing
        self.slot = slot
        self.is_ended = False
        self.began = 0.0
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None

    def within(self, seconds: float, tell: Callable[["MessageTask"], None]) -> None:
        """Call ``tell`` after ``seconds``, unless it is over."""
        self.timer = asyncio.get_running_loop().call_later(seconds, tell, self)

    def start(self) -> None:
        """Mark the task as begun: from here on it frees its own slot."""
        self.began = perf_counter()

    def end(self) -> None:
        """Mark the task as ended, and free its slot."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if not self.is_ended:
            self.passing.logged.seconds = perf_counter() - self.began
        self._free()

    def cancel(self) -> None:
        """Cancel it; the task may take ``GRACE`` to end."""
        self.is_ended = True
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.task is None or self._freed:
            return
        if self.began:
            self.passing.logged.seconds = perf_counter() - self.began
        self.task.cancel()
        if self.began:
            self.timer = asyncio.get_running_loop().call_later(GRACE, self._leave)
        else:
            self._free()  # The task ends without ever having begun.

    def _leave(self) -> None:
        self.timer = None
        if not self._freed:
            log.warning(
                "%s: a message is still handled though it was cancelled; catch asyncio.CancelledError only "
                "to clean up, and raise it again",
                self.agent,
                extra={"agent": self.agent},
            )
            self._free()

    def _free(self) -> None:
        if not self._freed:
            self._freed = True
            self._running.freed(self)


class Works:
    """The works of one run. ``every`` has those whose task has not ended, cancelled ones included."""

    def __init__(self, slots: Slots, every: set[MessageTask], context: Context) -> None:
        self._slots = slots
        self._interval_s = every
        self._context = context
        self._own: set[MessageTask] = set()

    def begin(self, work: MessageTask, job: Coroutine[Any, Any, None]) -> None:
        """Start a task in the context of the run: the caller that made room for it may belong to another."""
        work.task = asyncio.get_running_loop().create_task(
            job, name=f"message for {work.agent}", context=self._context.copy()
        )
        self._own.add(work)
        self._interval_s.add(work)

    def freed(self, work: MessageTask) -> None:
        """Free the slot of a task that ended or was abandoned."""
        self._own.discard(work)
        self._interval_s.discard(work)
        if work.slot:
            self._slots.give(work.agent)

    async def settle(self) -> None:
        """Wait until all cancelled tasks have ended, ``GRACE`` at most."""
        tasks = [each.task for each in self._own if each.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE)
