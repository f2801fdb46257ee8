"""Signals as something to wait for, which no code of an agent can delay."""

import os
import select
import signal
from contextlib import suppress
from time import monotonic
from typing import Final, Self

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
RELOAD_SIGNAL: Final = signal.SIGHUP
DONE: Final = 0
DRAINING: Final = 255
_SIGNALS: Final = (*STOP_SIGNALS, RELOAD_SIGNAL)
_NOTES: Final = (DONE, DRAINING)


class Signals:
    """A pipe that the C-level handlers write to: nothing is lost, whatever the interpreter does.

    A handler written in Python runs only when the main thread comes back to Python code; a signal that
    arrives just before a blocking call would wait for that call to end. Use as ``with``, in the main
    thread; the earlier handlers come back at its end.
    """

    def __enter__(self) -> Self:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._earlier = {number: signal.signal(number, _ignore) for number in _SIGNALS}
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._earlier.items():
            signal.signal(number, handler)
        read, self._read, self._write = self._read, -1, self._write
        os.close(read)
        os.close(self._write)
        self._write = -1

    def note(self, what: int) -> None:
        """Say, from any thread, ``DONE`` or ``DRAINING`` of what is waited beside; nothing after the end."""
        if self._write >= 0:
            with suppress(OSError):
                os.write(self._write, bytes([what]))

    def wait(self, timeout: float | None = None) -> int | None:
        """The next signal's number, or what was noted; None when neither comes within ``timeout`` seconds."""
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            left = None if deadline is None else max(0.0, deadline - monotonic())
            if not select.select([self._read], [], [], left)[0]:
                return None
            number = os.read(self._read, 1)[0]
            if number in _SIGNALS or number in _NOTES:
                return number


def _ignore(number: int, frame: object) -> None:
    # There has to be a handler, or the default action would end the process.
    pass
