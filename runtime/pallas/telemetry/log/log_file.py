"""The log file.

A record is one ``write`` of one line to a file opened for appending. There is no thread and no queue, so
nothing is lost when the process dies, and several processes may share the file. The write goes to the page
cache and takes a few microseconds, less than passing the record to another thread would.
"""

import contextlib
import fcntl
import logging
import os
import stat
import sys
from pathlib import Path
from typing import Final, TextIO

from .json_lines import JsonLines
from .repeats import Repeats
from .unread_output import STDERR

MAX_BYTES: Final = 10 * 1024 * 1024
BACKUPS: Final = 5
_LOST: Final = "%d log records could not be written"


class LogFileHandler(logging.Handler):
    """Appends JSON lines to ``path`` (mode 0600), keeping ``backups`` old files of about ``max_bytes`` each.

    Never raises into a caller: ``failed`` counts the records that could not be written, which is logged as
    soon as writing works again, and ``trouble`` says why the last record failed, empty if it did not. The
    first opening raises OSError.
    """

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES, backups: int = BACKUPS) -> None:
        super().__init__()
        self.path = path
        self.failed = 0
        self.trouble = ""
        self._max_bytes = max_bytes
        self._backups = backups
        self._fd = -1
        self._regular = False
        self._size = 0
        self._torn = False
        self._told = 0
        self._repeats = Repeats()
        self.setFormatter(JsonLines())
        self._open()

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, unless it repeats another. A failure is counted, never raised."""
        for each in self._repeats.admit(record):
            self._emit(each)

    def _emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record).encode() + b"\n"
        except Exception:  # the log must not break what it reports on
            self.failed += 1
            return
        try:
            self._write(line)
        except OSError as error:
            self.failed += 1
            self.trouble = error.strerror or type(error).__name__
            return
        self.trouble = ""
        if self.failed != self._told:
            self._tell()

    def close(self) -> None:
        """Write how often the last warnings were repeated, and close the file. No record is pending."""
        with self.lock or contextlib.nullcontext():
            if self._fd >= 0:
                for each in self._repeats.rest():
                    self._emit(each)
                os.close(self._fd)
                self._fd = -1
        super().close()

    def _tell(self) -> None:
        lost = self.failed - self._told
        about = logging.LogRecord("pallas.log", logging.WARNING, __file__, 0, _LOST, (lost,), None)
        with contextlib.suppress(OSError):
            self._write(self.format(about).encode() + b"\n")
            self._told = self.failed

    def _write(self, line: bytes) -> None:
        self._follow()
        if self._regular and self._size and self._size + len(line) > self._max_bytes:
            # If the old file cannot be moved, the log goes on and grows until it can.
            with contextlib.suppress(OSError):
                self._rotate(len(line))
        if self._torn:
            line = b"\n" + line
        written = 0
        try:
            while written < len(line):  # what a full disk does not take any more fails with the reason
                written += os.write(self._fd, line[written:])
        finally:
            self._size += written
            if written:  # the record after one that was cut starts on a line of its own
                self._torn = written < len(line)

    def _follow(self) -> None:
        """Open the file again if another process rotated or removed it; update its size."""
        if self._fd < 0:
            self._open()
            return
        try:
            there = self.path.stat()
        except FileNotFoundError:
            self._open()
            return
        mine = os.fstat(self._fd)
        if (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):
            self._open()
        else:
            self._size = mine.st_size

    def _open(self) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # With O_NONBLOCK a pipe without a reader is an error; without it the write would block.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOCTTY | os.O_NONBLOCK
        fd = os.open(self.path, flags, 0o600)
        if self._fd >= 0:
            os.close(self._fd)
        state = os.fstat(fd)
        self._fd, self._size, self._torn = fd, state.st_size, False
        # A device or a pipe is written to, and never moved out of the way.
        self._regular = stat.S_ISREG(state.st_mode)

    def _rotate(self, room: int) -> None:
        lock = os.open(self._named(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return  # another process rotates: use the old file, and change over with the next record
            except OSError:
                pass  # a file system without locks: rotating twice is better than never
            self._follow()  # another process may have rotated just now
            if not self._regular or self._size + room <= self._max_bytes:
                return
            for number in range(self._backups - 1, 0, -1):
                with contextlib.suppress(FileNotFoundError):
                    self._named(f".{number}").replace(self._named(f".{number + 1}"))
            self.path.replace(self._named(".1"))
            self._open()
        finally:
            os.close(lock)

    def _named(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)


class Stderr(logging.Handler):
    """Writes the same lines to stderr, for journals (``PALLAS_LOG_STDERR=1``). Never raises.

    If that stream is systemd's journal, a line begins with its level as in ``sd-daemon(3)``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonLines())
        self._journal = is_journal(sys.__stderr__)
        self._repeats = Repeats()

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, unless it repeats another."""
        for each in self._repeats.admit(record):
            self._write(each)

    def close(self) -> None:
        """Write how often the last warnings were repeated."""
        with self.lock or contextlib.nullcontext():
            for each in self._repeats.rest():
                self._write(each)
        super().close()

    def _write(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:  # what the record was made of; the file has the same problem
            self.handleError(record)
        else:
            STDERR.write(f"{line}\n".encode(errors="replace"))

    def format(self, record: logging.LogRecord) -> str:
        """The line, with the level prefix that the journal removes."""
        line = super().format(record)
        return f"<{_priority(record.levelno)}>{line}" if self._journal else line

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore a record that has no text."""


def is_journal(stream: TextIO | None) -> bool:
    """Whether a stream is connected to systemd's journal, according to ``JOURNAL_STREAM``."""
    try:
        state = os.fstat(stream.fileno()) if stream is not None else None
    except (OSError, ValueError):
        return False
    return state is not None and os.environ.get("JOURNAL_STREAM") == f"{state.st_dev}:{state.st_ino}"


def _priority(level: int) -> int:
    """The syslog number of a level; a lower number is more severe."""
    steps = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
    return next((priority for least, priority in steps if level >= least), 7)
