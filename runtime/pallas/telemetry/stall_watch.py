"""Notices from a thread that an event loop makes no progress.

``faulthandler.dump_traceback_later`` would notice too, but it reads the frames of threads that run. That can
end the process (python/cpython#131580), and what only blocked its loop must live on.

A timer of the loop notes that it makes progress, and the thread only reads that. The thread does not wake the
loop: uvloop ends the process by SIGABRT when the descriptor for that was closed.
"""

import asyncio
import logging
import sys
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable
from time import monotonic, process_time
from types import FrameType
from typing import Final

log = logging.getLogger(__name__)

# Heartbeats of the loop within the limit.
_BEATS: Final = 4
# Part of a pause in which this process must have worked, or the whole machine slept and no code is to blame.
_BUSY: Final = 0.5


class Stall:
    """One time that the loop makes no progress."""

    def __init__(
        self, loop: AbstractEventLoop, frame: FrameType | None, began: float, progress: threading.Event
    ) -> None:
        self.loop = loop
        self.frame = frame
        """What the loop's thread executed when the stall was noticed."""
        self._began = began
        self._progress = progress

    def seconds(self) -> float:
        """Return how long it has lasted."""
        return monotonic() - self._began

    def wait(self) -> float:
        """Wait until it is over or the loop has ended; return how many seconds it lasted."""
        while not self._progress.wait(1) and self.loop.is_running():
            pass
        return self.seconds()


class StallWatch:
    """Calls ``report`` in a thread, once, when the running loop makes no progress for ``limit_s`` seconds.

    It goes on when the stall is over and ``report`` has returned, which may wait for the end of the stall.
    """

    def __init__(self, limit_s: float, report: Callable[[Stall], None]) -> None:
        self._limit_s = limit_s
        self._report = report
        self._due = 0.0  # when the loop's next heartbeat is due
        self._stopped = threading.Event()
        self._progress = threading.Event()

    def start(self) -> None:
        """Begin, in the loop that is to be watched."""
        loop, owner = asyncio.get_running_loop(), threading.get_ident()
        self._beat(loop)
        threading.Thread(target=self._watch, args=(loop, owner), name="loop watch", daemon=True).start()

    def stop(self) -> None:
        """End; returns at once, the thread ends within a moment."""
        self._stopped.set()
        self._progress.set()

    def _beat(self, loop: AbstractEventLoop) -> None:
        interval_s = self._limit_s / _BEATS
        self._due = monotonic() + interval_s
        self._progress.set()
        if not self._stopped.is_set():
            loop.call_later(interval_s, self._beat, loop)

    def _watch(self, loop: AbstractEventLoop, owner: int) -> None:
        excused_until = 0.0
        while True:
            due, worked = max(self._due, excused_until), process_time()
            expiry = due + self._limit_s
            if self._stopped.wait(expiry - monotonic()) or loop.is_closed():
                return
            self._progress.clear()
            if self._due > due:
                continue
            overslept_s = monotonic() - expiry
            if not loop.is_running() or (
                # The machine was suspended or the process stopped: the loop has had no time to go on either.
                overslept_s > self._limit_s and process_time() - worked < _BUSY * self._limit_s
            ):
                excused_until = monotonic()
                continue
            self._tell(loop, owner, due)

    def _tell(self, loop: AbstractEventLoop, owner: int, due: float) -> None:
        """Report a stall; return when it is over: nothing keeps its frame alive any longer."""
        stall = Stall(loop, sys._current_frames().get(owner), due, self._progress)
        try:
            self._report(stall)
        except Exception:
            log.exception("what blocks the event loop could not be reported")
        stall.wait()
