"""SIGINT and SIGTERM as something to wait for, which no code of an agent can delay."""

import os
import select
import signal
from typing import Final, Self

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_DONE: Final = 0


class StopSignals:
    """A pipe that the C-level handlers write to: nothing is lost, whatever the interpreter does.

    A handler written in Python runs only when the main thread comes back to Python code; a signal that
    arrives just before a blocking call would wait for that call to end. Use as ``with``, in the main
    thread; the earlier handlers come back at its end.
    """

    def __enter__(self) -> Self:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._earlier = {number: signal.signal(number, _ignore) for number in STOP_SIGNALS}
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._earlier.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def finish(self) -> None:
        """Say, from any thread, that what was waited beside has ended."""
        os.write(self._write, bytes([_DONE]))

    def wait(self, timeout: float | None = None) -> bool | None:
        """True: a signal came; False: ``finish`` was called; None: neither, within ``timeout`` seconds."""
        while select.select([self._read], [], [], timeout)[0]:
            number = os.read(self._read, 1)[0]
            if number == _DONE:
                return False
            if number in STOP_SIGNALS:
                return True
        return None


def _ignore(number: int, frame: object) -> None:
    # There has to be a handler, or the default action would end the process.
    pass
