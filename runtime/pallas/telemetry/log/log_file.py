"""The file the log goes to.

A record is one ``write`` of one line to a file opened for appending: no thread, no queue, nothing that
could be lost when the process dies, and several processes may share the file. That costs a few
microseconds into the page cache, less than handing the record to another thread would, so the caller
waits for nothing worth a queue with its drops and its flush at exit.
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

MAX_BYTES: Final = 10 * 1024 * 1024
BACKUPS: Final = 5
_LOST: Final = "%d log records could not be written"


class LogFileHandler(logging.Handler):
    """Appends JSON lines to ``path`` (mode 0600), keeping ``backups`` old files of about ``max_bytes`` each.

    Never raises into a caller, whatever happens to the disk: what could not be written is counted in
    ``failed`` and told in the file as soon as writing works again; ``trouble`` says why the last record could
    not be, empty where it could. The first opening raises OSError.
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
        self.setFormatter(JsonLines())
        self._open()

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; a failure is counted, never raised."""
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
        """Close the file. Nothing is pending: each record was written when it was made."""
        with self.lock or contextlib.nullcontext():
            if self._fd >= 0:
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
            # An old file that cannot be moved away must not stop the log: it grows until it can.
            with contextlib.suppress(OSError):
                self._rotate(len(line))
        if self._torn:
            line = b"\n" + line
        written = os.write(self._fd, line)
        self._size += written
        self._torn = written < len(line)
        if self._torn:  # the disk is full inside a line: the next record starts on a line of its own
            raise OSError("short write")

    def _follow(self) -> None:
        """Reopen when another process has rotated the file, or someone removed it; learn its size."""
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
        # Without O_NONBLOCK a pipe that nobody reads would hold us up: so it is an error instead.
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
                return  # another process is at it: go on in the old file, move over with the next record
            except OSError:
                pass  # a file system without locks: better rotated twice than never
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


class Stderr(logging.StreamHandler):  # type: ignore[type-arg]
    """The same lines on the error stream, for journals (``PALLAS_LOG_STDERR=1``). Never raises.

    Where that stream is systemd's journal, a line begins with its level as ``sd-daemon(3)`` has it.
    """

    def __init__(self) -> None:
        super().__init__(sys.__stderr__)
        self.setFormatter(JsonLines())
        self._journal = is_journal(sys.__stderr__)

    def format(self, record: logging.LogRecord) -> str:
        """The line; the journal takes the level off again."""
        line = super().format(record)
        return f"<{_priority(record.levelno)}>{line}" if self._journal else line

    def handleError(self, record: logging.LogRecord) -> None:
        """A closed pipe is nobody's business: the file has the record."""


def is_journal(stream: TextIO | None) -> bool:
    """Whether a stream is the one that systemd connected to its journal, as ``JOURNAL_STREAM`` says."""
    try:
        state = os.fstat(stream.fileno()) if stream is not None else None
    except (OSError, ValueError):
        return False
    return state is not None and os.environ.get("JOURNAL_STREAM") == f"{state.st_dev}:{state.st_ino}"


def _priority(level: int) -> int:
    """The level as syslog numbers it: a lower one is worse."""
    steps = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
    return next((priority for least, priority in steps if level >= least), 7)
