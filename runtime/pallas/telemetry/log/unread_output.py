"""Output to a terminal or pipe that may not be read: a paused terminal stops no fleet."""

import os
from contextlib import suppress
from queue import Empty, Queue
from stat import S_ISREG
from threading import Event, Lock, Thread
from typing import Final, TextIO

_WAIT_S: Final = 0.5
"""Seconds that a line may take, once; while none is read, further lines do not wait."""
_IDLE_S: Final = 5.0
"""Seconds after its last line in which the thread ends."""
_MAX_LINES: Final = 1_000
"""Lines that wait for the reader; further ones are lost."""


class UnreadOutput:
    """Writes to ``descriptor`` in a thread of its own. What cannot be written is lost.

    ``write`` returns once the data is written, or after half a second if it is not read. What then waits is
    written as soon as there is room; at the end of the process it is lost.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._lock = Lock()
        self._renew()

    def _renew(self) -> None:
        self._owner = os.getpid()
        self._waiting: Queue[tuple[bytes, Event]] = Queue(_MAX_LINES)
        self._thread: Thread | None = None
        self._is_unread = False

    def write(self, data: bytes) -> None:
        """Write it, from any thread. Never raises, and never blocks for long."""
        if self._is_file():
            self._write(data)
            return
        written = Event()
        with self._lock:
            if self._owner != os.getpid():  # a fork, which has no threads
                self._renew()
            if self._waiting.full():
                return
            self._waiting.put((data, written))
            if self._thread is None:
                self._thread = Thread(target=self._work, name="output", daemon=True)
                self._thread.start()
        if not self._is_unread and not written.wait(_WAIT_S):
            self._is_unread = True

    def _work(self) -> None:
        while True:
            try:
                data, written = self._waiting.get(timeout=_IDLE_S)
            except Empty:
                with self._lock:
                    if self._waiting.empty():
                        self._thread = None
                        return
                continue
            self._write(data)
            written.set()
            self._is_unread = self._is_unread and not self._waiting.empty()

    def _is_file(self) -> bool:
        with suppress(OSError):
            return S_ISREG(os.fstat(self.descriptor).st_mode)
        return False

    def _write(self, data: bytes) -> None:
        # Not through Python's own streams: those keep what could not be written, and fail again at the end.
        with suppress(OSError):
            while data:
                data = data[os.write(self.descriptor, data) :]


STDOUT: Final = UnreadOutput(1)
STDERR: Final = UnreadOutput(2)


def write_text(stream: TextIO, text: str) -> None:
    """Write to a stream; if that is the process's stdout or stderr, as ``UnreadOutput`` does.

    Raises what the stream raises, for any other one.
    """
    output = {STDOUT.descriptor: STDOUT, STDERR.descriptor: STDERR}.get(_descriptor_of(stream))
    if output is None:
        stream.write(text)
    elif text:
        output.write(text.encode(stream.encoding or "utf-8", "backslashreplace"))


def _descriptor_of(stream: TextIO) -> int:
    with suppress(OSError, ValueError, AttributeError):
        return stream.fileno()
    return -1
