"""Notices from a thread that an event loop makes no progress.

``faulthandler.dump_traceback_later`` would notice too, but it reads the frames of threads that run. That can
end the process (python/cpython#131580), and what only blocked its loop must live on.
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
        """Wait until it is over or the watch is stopped; return how many seconds it lasted."""
        self._progress.wait()
        return self.seconds()


class StallWatch:
    """Calls ``report`` in a thread when the running loop makes no progress for ``limit_s`` seconds.

    The watch goes on when ``report`` returns: it waits for the end of the stall first.
    """

    def __init__(self, limit_s: float, report: Callable[[Stall], None]) -> None:
        self._limit_s = limit_s
        self._report = report
        self._stopped = threading.Event()
        self._progress = threading.Event()

    def start(self) -> None:
        """Begin, in the loop that is to be watched."""
        loop, owner = asyncio.get_running_loop(), threading.get_ident()
        threading.Thread(target=self._watch, args=(loop, owner), name="loop watch", daemon=True).start()

    def stop(self) -> None:
        """End; returns at once, the thread ends within a moment."""
        self._stopped.set()
        self._progress.set()

    def _watch(self, loop: AbstractEventLoop, owner: int) -> None:
        while not self._stopped.wait(self._limit_s / 4):
            self._progress.clear()
            began, worked = monotonic(), process_time()
            try:
                loop.call_soon_threadsafe(self._progress.set)
            except RuntimeError:  # it was closed
                return
            if self._progress.wait(self._limit_s):
                continue
            if monotonic() - began > 2 * self._limit_s and process_time() - worked < _BUSY * self._limit_s:
                continue  # we slept too long ourselves: the machine was suspended, or the process stopped
            try:
                self._report(Stall(loop, sys._current_frames().get(owner), began, self._progress))
            except Exception:
                log.exception("what blocks the event loop could not be reported")
