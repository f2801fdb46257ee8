"""The signals that end the workbench, also while the terminal is not read and the loop waits for it."""

import asyncio
import signal
from collections.abc import Callable
from threading import Event, Lock, Thread
from time import monotonic
from typing import Final, Self

from pallas.cli.exit_status import CLEAN, SECOND_SIGNAL
from pallas.cli.process_signals import DONE, STOP_SIGNALS, Signals

SCREEN_S: Final = 1.5
"""Seconds that the screen has to go after a signal; then the fleet is stopped without waiting for it."""
END_S: Final = 4.5
"""Seconds after a signal until the process is ended by force."""
_PULSE_S: Final = 0.1


class ExitSignals:
    """Hears SIGINT, SIGTERM and SIGHUP in a thread of its own, from the beginning of the block to its end.

    The first one asks the workbench to leave. If its screen does not go, ``stop_fleet`` is called; then
    ``force`` ends the process with the given status. A second SIGINT or SIGTERM does so at once, unless the
    screen is gone: then only the fleet is stopped, in time. A second SIGHUP does not: a terminal that is
    closed may send several.
    """

    def __init__(self, stop_fleet: Callable[[], None], force: Callable[[int], None]) -> None:
        self._stop_fleet = stop_fleet
        self._force = force
        self._signals = Signals()
        self._lock = Lock()
        self._leave: Callable[[], object] | None = None
        self._asked_at: float | None = None
        self._screen_is_gone = Event()
        self._thread = Thread(target=self._listen, name="exit signals", daemon=True)

    def __enter__(self) -> Self:
        self._signals.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._signals.note(DONE)
        self._thread.join()
        self._signals.__exit__(*error)

    def on_signal(self, leave: Callable[[], object]) -> None:
        """Call ``leave`` in the running loop at the first signal; now, if there was one already."""
        with self._lock:
            loop = asyncio.get_running_loop()
            self._leave = lambda: loop.call_soon_threadsafe(leave)
            if self._asked_at is not None:
                leave()

    def screen_gone(self) -> None:
        """The terminal is free again; only the fleet is still to be stopped."""
        self._screen_is_gone.set()

    @property
    def seconds_left(self) -> float | None:
        """How long the end may still take; None without a signal."""
        return None if self._asked_at is None else max(0.0, self._asked_at + END_S - monotonic())

    def _listen(self) -> None:
        while self._asked_at is None:
            heard = self._signals.wait()
            if heard == DONE:
                return
            self._ask()
        stopping: Thread | None = None
        while (heard := self._signals.wait(_PULSE_S)) != DONE:
            left = self.seconds_left or 0.0
            is_drawn = not self._screen_is_gone.is_set()
            if is_drawn and heard in STOP_SIGNALS:
                self._force(SECOND_SIGNAL + int(heard or signal.SIGTERM))
            if is_drawn and left < END_S - SCREEN_S:
                if stopping is None:
                    stopping = Thread(target=self._stop_fleet, name="stop of the fleet", daemon=True)
                    stopping.start()
                elif not stopping.is_alive():
                    self._force(CLEAN)
            if not left:
                self._force(CLEAN)

    def _ask(self) -> None:
        with self._lock:
            self._asked_at = monotonic()
            if self._leave is not None:
                try:
                    self._leave()
                except RuntimeError:  # The loop has just ended.
                    self._leave = None
