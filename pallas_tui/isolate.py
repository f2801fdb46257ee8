"""Nothing but the workbench writes to the terminal or reads from it (PR-33).

File descriptors 1 and 2 become pipes before anything else is loaded; what arrives in them becomes log
records. Descriptor 0 reads end of file. The screen draws on a private copy of the terminal and has its keys
from another. Child processes inherit the guarded
descriptors, so what they print ends up in the log too.
"""

import contextlib
import io
import logging
import os
import select
import selectors
import signal
import sys
import termios
import threading
from collections.abc import Iterator
from queue import Empty, Full, Queue
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any, Final, Literal, TextIO

from pallas.safe_text import sanitize

Source = Literal["stdout", "stderr"]

LINE_LIMIT: Final = 8 * 1024
"""Characters of one line that are kept."""
RATE: Final = 200.0
"""Lines a second and source that are logged in the long run."""
BURST: Final = 2_000
"""Lines of one source that are logged at once."""

_QUEUE: Final = 4_096
_IDLE: Final = 0.2
_JOIN: Final = 1.0
_TELL: Final = 1.0
_LEVELS: Final[dict[Source, int]] = {"stdout": logging.INFO, "stderr": logging.WARNING}
_FDS: Final[dict[Source, int]] = {"stdout": 1, "stderr": 2}
_RESET_S: Final = 0.2
_RETRY_S: Final = 0.01
_RESET: Final = (
    b"\x1b\\\x1b[?2026l\x1b[0m\x1b[?2004l\x1b[?2048l\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l"
    b"\x1b[?1004l\x1b[<u\x1b[?7h\x1b[?1049l\x1b[?25h"
)
"""Ends what the screen switched on: a string or frame cut in the middle, reports of pastes, resizes, mouse
and focus, kitty's keys, no wrapping, the other screen, the hidden cursor."""


class OutputLines:
    """Bytes in, bounded and sanitised lines out. What a line has beyond the limit is left out."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._rest = b""
        self._skipping = False

    @property
    def has_rest(self) -> bool:
        """Whether there is text of an unfinished line."""
        return bool(self._rest)

    def feed(self, data: bytes) -> Iterator[str]:
        """The lines that ``data`` completes; blank ones are left out."""
        *whole, rest = (self._rest + data).split(b"\n")
        for line in whole:
            if self._skipping:
                self._skipping = False
            elif text := self._text(line):
                yield text
        self._rest = b"" if self._skipping else rest
        if len(self._rest) > self._limit * 4:  # four bytes are the most that one character takes
            yield self._text(self._rest)
            self._rest, self._skipping = b"", True

    def flush(self) -> Iterator[str]:
        """Yield the text of an unfinished line."""
        rest, self._rest = self._rest, b""
        if text := self._text(rest):
            yield text

    def _text(self, line: bytes) -> str:
        return sanitize(line.decode("utf-8", "replace").rstrip("\r"), self._limit).rstrip()


class LineAllowance:
    """How many lines may pass: ``burst`` at once and ``rate`` a second after that."""

    def __init__(self, rate: float = RATE, burst: int = BURST) -> None:
        self._rate = rate
        self._burst = burst
        self._left = float(burst)
        self._at: float | None = None

    def take(self, now: float) -> bool:
        """Whether one more may pass at ``now`` (seconds of any steady clock)."""
        if self._at is not None:
            self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Guard:
    """The terminal, kept for the screen alone until ``restore``.

    ``terminal`` writes to it; ``sys.__stdin__``, where Textual reads, is its keys. ``stdout`` and ``stderr``
    are where everything else should go: they end in the log. Two threads serve the pipes: one only empties
    them, so that a writer never waits for the log, and one logs, so that a log handler that prints cannot
    block the one who empties.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self.stdout: TextIO = sys.stdout
        self.stderr: TextIO = sys.stderr
        self._logger = logger
        self._lock = Lock()
        self._restored = False
        self._stop = Event()
        self._woken, self._wake = os.pipe()
        self._queue: Queue[tuple[Source, str] | None] = Queue(_QUEUE)
        self._overflow: dict[Source, int] = {"stdout": 0, "stderr": 0}
        _flush(self.stdout, self.stderr)
        # A handler that fails prints a traceback; with the log itself failing that would never end.
        self._raise_exceptions, logging.raiseExceptions = logging.raiseExceptions, False
        self._saved = {fd: os.dup(fd) for fd in (0, *_FDS.values())}
        self._modes = _modes(self._saved[0])
        self._originals = (sys.__stdin__, sys.__stdout__, sys.__stderr__)
        self._keys = os.fdopen(os.dup(0), encoding="utf-8", errors="replace")
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 0)
        os.close(nowhere)
        sys.__stdin__ = self._keys  # type: ignore[misc]
        self.terminal: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace", newline="")
        readers: dict[int, Source] = {}
        for source, fd in _FDS.items():
            read, write = os.pipe()
            os.set_blocking(read, False)
            os.dup2(write, fd)
            os.close(write)
            readers[read] = source
        sys.__stdout__ = sys.__stderr__ = self.terminal  # type: ignore[misc]
        for stream in (self.stdout, self.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(line_buffering=True)
        self._threads = (
            Thread(target=self._drain, args=(readers,), name="stray-reader", daemon=True),
            Thread(target=self._log_all, name="stray-logger", daemon=True),
        )
        for thread in self._threads:
            thread.start()

    def restore(self) -> None:
        """Give the terminal back; return when everything printed so far is logged, in at most 2 s.

        May be called more than once and from any thread.
        """
        with self._lock:
            if self._restored:
                return
            self._restored = True
        _flush(self.stdout, self.stderr, self.terminal)
        for fd, saved in self._saved.items():
            os.dup2(saved, fd)
            os.close(saved)
        sys.__stdin__, sys.__stdout__, sys.__stderr__ = self._originals  # type: ignore[misc]
        self._stop.set()
        os.close(self._wake)
        for thread in self._threads:
            thread.join(_JOIN)
        logging.raiseExceptions = self._raise_exceptions
        for stream in (self.terminal, self._keys):
            with contextlib.suppress(OSError):
                stream.close()

    def reset_terminal(self) -> None:
        """Give the terminal its modes and its own screen back, within half a second.

        For a process that ends by force; nothing is drawn any more. What the terminal has not read within
        0.2 s is discarded.
        """
        with contextlib.suppress(OSError, ValueError, termios.error):
            terminal, nowhere = self._saved[1], os.open(os.devnull, os.O_WRONLY)
            if self._modes is not None:
                termios.tcsetattr(terminal, termios.TCSANOW, self._modes)
            # Opened again: whether a write waits belongs to the opened file, which the shell shares.
            own = os.open(os.ttyname(terminal), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
            os.dup2(nowhere, self.terminal.fileno())
            select.select([], [own], [], _RESET_S)
            left, until = _RESET, monotonic() + _RESET_S
            while left and monotonic() < until:
                with contextlib.suppress(BlockingIOError):
                    left = left[os.write(own, left) :]
                if left:
                    _interrupt_others()
                    termios.tcflush(own, termios.TCOFLUSH)
                    select.select([], [own], [], _RETRY_S)

    def _drain(self, readers: dict[int, Source]) -> None:
        """Empty the pipes until told to stop, then once more."""
        lines = {source: OutputLines() for source in readers.values()}
        with selectors.DefaultSelector() as selector:
            for read, source in readers.items():
                selector.register(read, selectors.EVENT_READ, source)
            selector.register(self._woken, selectors.EVENT_READ)  # it reads its end when told to stop
            while True:
                last = self._stop.is_set()
                idle = True
                pause = _IDLE if any(part.has_rest for part in lines.values()) else None
                for key, _ in selector.select(0 if last else pause):
                    if key.fd == self._woken:
                        continue
                    if data := _read(key.fd):
                        self._offer(key.data, lines[key.data].feed(data))
                        idle = False
                    elif data is not None:  # something closed our descriptor: this pipe will stay silent
                        selector.unregister(key.fileobj)
                if idle:
                    for source, part in lines.items():
                        self._offer(source, part.flush())
                    if last:
                        break
        for read in (*readers, self._woken):
            os.close(read)
        with contextlib.suppress(Full):
            self._queue.put(None, timeout=_JOIN)

    def _offer(self, source: Source, lines: Iterator[str]) -> None:
        for line in lines:
            try:
                self._queue.put_nowait((source, line))
            except Full:
                self._overflow[source] += 1

    def _log_all(self) -> None:
        allowances = {source: LineAllowance() for source in _FDS}
        left_out: dict[Source, int] = dict.fromkeys(_FDS, 0)
        reported: dict[Source, int] = dict.fromkeys(_FDS, 0)
        next_tell = monotonic() + _TELL
        while True:
            untold = any(left_out[each] + self._overflow[each] > reported[each] for each in _FDS)
            with contextlib.suppress(Empty):
                item = self._queue.get(timeout=_TELL if untold else None)
                if item is None:
                    self._report(left_out, reported)
                    return
                source, line = item
                if allowances[source].take(monotonic()):
                    self._log(source, line)
                else:
                    left_out[source] += 1
            if (now := monotonic()) >= next_tell:
                next_tell = now + _TELL
                self._report(left_out, reported)

    def _report(self, left_out: dict[Source, int], reported: dict[Source, int]) -> None:
        """Say how many lines were too many since the last time."""
        for source in _FDS:
            count = left_out[source] + self._overflow[source]
            if count > reported[source]:
                more, reported[source] = count - reported[source], count
                self._log(source, f"{more} more lines on {source} were too many for the log and left out")

    def _log(self, source: Source, line: str) -> None:
        logger: logging.Logger | None = self._logger
        level = _LEVELS[source]
        if not self._logger.isEnabledFor(level):
            return
        record = self._logger.makeRecord(
            self._logger.name, level, "(stray)", 0, line, (), None, extra={"source": source}
        )
        # Not ``logger.handle``: a handler that prints would send the line round and round for ever.
        while logger is not None:
            for handler in logger.handlers:
                if level >= handler.level and not _prints(handler):
                    with contextlib.suppress(Exception):
                        handler.handle(record)
            logger = logger.parent if logger.propagate else None


def isolate(logger: logging.Logger | None = None) -> Guard:
    """Guard the terminal from now on; ``restore`` the guard when the screen is gone.

    Lines go to ``logger`` (``pallas.stray`` unless given) with an extra field ``source``: INFO for
    stdout, WARNING for stderr. Descriptors 0, 1 and 2 must be open.
    """
    return Guard(logger or logging.getLogger("pallas.stray"))


def _prints(handler: logging.Handler) -> bool:
    """Whether a handler writes to a stream, or through a console, that may end in our own pipe."""
    streams = isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler)
    return streams or hasattr(handler, "console")


def _interrupt_others() -> None:
    """Interrupt the writes of other threads, which go on with what the descriptor is now.

    One that waits for the terminal keeps all others from writing. ``ExitSignals`` handles the signal.
    """
    if not callable(signal.getsignal(signal.SIGHUP)):
        return
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.ident is not None:
            with contextlib.suppress(OSError):
                signal.pthread_kill(thread.ident, signal.SIGHUP)


def _modes(fd: int) -> list[Any] | None:
    """Return the terminal's modes; None for what is no terminal."""
    try:
        return termios.tcgetattr(fd)
    except termios.error:
        return None


def _read(fd: int) -> bytes | None:
    """Return the bytes that can be read; empty at the end of the pipe, None when there are none now."""
    try:
        return os.read(fd, 65_536)
    except BlockingIOError:
        return None


def _flush(*streams: TextIO) -> None:
    for stream in streams:
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
