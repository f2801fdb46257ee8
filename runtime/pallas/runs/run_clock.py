"""The time that a run has: it stands still while a person is asked."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter


class RunClock:
    """The limit of one run under way. Belongs to its event loop."""

    def __init__(self) -> None:
        self._paused = 0
        self._deadline: asyncio.Timeout | None = None
        self._left: float | None = None

    @property
    def is_paused(self) -> bool:
        """Whether a person is asked now."""
        return self._paused > 0

    @contextmanager
    def limits(self, deadline: asyncio.Timeout) -> Iterator[None]:
        """Use ``deadline``, which was entered, in this block."""
        self._deadline = deadline
        try:
            yield
        finally:
            self._deadline = None

    def pause(self, until: float | None) -> None:
        """Stop the clock; only ``until`` (``perf_counter``) still ends the run. Calls are counted."""
        self._paused += 1
        deadline = self._deadline
        if self._paused > 1 or deadline is None or deadline.expired():
            return
        when = deadline.when()
        now = asyncio.get_running_loop().time()
        self._left = None if when is None else when - now
        deadline.reschedule(None if until is None else now + until - perf_counter())

    def unpause(self) -> None:
        """Let the clock go on with the time that was left."""
        self._paused -= 1
        deadline, left = self._deadline, self._left
        if self._paused or deadline is None or left is None or deadline.expired():
            return
        self._left = None
        when, other = asyncio.get_running_loop().time() + left, deadline.when()
        deadline.reschedule(when if other is None else min(when, other))
