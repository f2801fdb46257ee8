"""Signals as something to wait for, which no agent's code can delay."""

import ctypes
import os
import select
import signal
from contextlib import suppress
from time import monotonic
from typing import Any, Final, Self

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
RELOAD_SIGNAL: Final = signal.SIGHUP
DONE: Final = 0
DRAINING: Final = 255
GO: Final = 254
AT_ONCE: Final = 253
_SIGNALS: Final = (*STOP_SIGNALS, RELOAD_SIGNAL)
_NOTES: Final = (DONE, DRAINING, GO, AT_ONCE)


class Signals:
    """A pipe that the C-level handlers write to: no signal is lost, even when the interpreter is busy.

    A handler written in Python runs only when the main thread comes back to Python code; a signal that
    arrives just before a blocking call would wait for that call to end. Use as ``with``, in the main thread;
    the earlier handlers are restored at the end.

    If C code holds the interpreter, so that no Python code runs, a second SIGTERM ends the process: the
    kernel restores its default action with the first one, and ``wait`` undoes that.
    """

    def __enter__(self) -> Self:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._earlier = {number: signal.signal(number, _ignore) for number in _SIGNALS}
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._once = _Once(signal.SIGTERM)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._earlier.items():
            signal.signal(number, handler)
        read, self._read, self._write = self._read, -1, self._write
        os.close(read)
        os.close(self._write)
        self._write = -1

    def fileno(self) -> int:
        """A descriptor that is readable while ``wait`` has something to return."""
        return self._read

    def note(self, what: int) -> None:
        """Pass a signal's number or one of the notes to ``wait``, from any thread; does nothing after the
        end."""
        if self._write >= 0:
            with suppress(OSError):
                os.write(self._write, bytes([what]))

    def wait(self, timeout: float | None = None) -> int | None:
        """Return the next signal's number, or the noted event; None after ``timeout`` seconds."""
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            left = None if deadline is None else max(0.0, deadline - monotonic())
            if not select.select([self._read], [], [], left)[0]:
                return None
            number = os.read(self._read, 1)[0]
            if number == signal.SIGTERM:
                self._once.renew()
            if number in _SIGNALS or number in _NOTES:
                return number


class _Once:
    """Makes a signal's handler run once, after which the default action is in place.

    Only where the C library has a function for it; elsewhere the handler stays.
    """

    def __init__(self, number: signal.Signals) -> None:
        self._number = number
        self._install: Any = getattr(ctypes.CDLL(None), "sysv_signal", None)
        self._handler: int | None = None
        if self._install is None:
            return
        self._install.argtypes, self._install.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
        # The interpreter's own handler, which no Python function returns.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
        self._handler = self._install(number, int(signal.SIG_DFL))
        self.renew()
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def renew(self) -> None:
        """Arm the handler for one more call."""
        if self._handler is not None:
            self._install(self._number, self._handler)


def _ignore(number: int, frame: object) -> None:
    # There has to be a handler: the default action would end the process.
    pass
