"""Logs the stderr of programs that are servers, and finds exceptions in it.

Off unless ``pallas dev`` or the user turns it on: servers may write their arguments, which hold secrets that
we cannot mask.
"""

import asyncio
import io
import os
from collections import deque
from contextlib import suppress
from typing import Final

from pallas.model.redaction import redact_text
from pallas.safe_text import one_line, sanitize
from pallas.telemetry.log.printed_lines import EXCEPTION, FRAME, LINE, TRACEBACK
from pallas.telemetry.log.server_output import server_lines

_AT_ONCE: Final = 16 * 1024
_FLOOD_PAUSE_S: Final = 0.01
_KEPT: Final = 20
_MAX_SHOWN: Final = 300


class ServerErrors(io.TextIOBase):
    """The writing end of a pipe that is read in this loop, one record for each line.

    Lines are cut at 8 KiB; beyond 200 in a second they are counted and left out. The pipe is read until the
    process and its starter have closed this end.
    """

    def __init__(self, server: str) -> None:
        super().__init__()
        reading, self._writing = os.pipe()
        os.set_blocking(reading, False)
        self.reader = ServerErrorReader(io.FileIO(reading, "rb"), server)
        self.reader.begin()

    def fileno(self) -> int:
        """Return the descriptor that the process gets as its stderr."""
        return self._writing

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str, /) -> int:
        """Write our own notes about the process."""
        with suppress(OSError):
            os.write(self._writing, text.encode(errors="replace"))
        return len(text)

    def close(self) -> None:
        """Close this end; garbage collection does so as well."""
        if not self.closed:
            with suppress(OSError):
                os.close(self._writing)
        super().close()


class ServerErrorReader:
    """The reading end of such a pipe. It remembers the newest exceptions of the server."""

    def __init__(self, file: io.FileIO, server: str) -> None:
        self.count = 0
        """How many exceptions there were so far."""
        self._last = ""
        self._exceptions: deque[str] = deque(maxlen=_KEPT)
        self._in_traceback, self._before = False, ""
        self._file = file
        self._log = server_lines(server, "stderr")
        self._rest = b""

    def begin(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._file.fileno(), self._read)

    def last_line(self) -> str:
        """Return the last line that is not empty."""
        if not self._file.closed:
            self._read()
        return self._last

    def exception_since(self, count: int, said: str) -> str:
        """Return the last line of the newest exception after the first ``count``; empty if there is none.

        One whose text is part of what the server ``said`` itself tells nothing new.
        """
        if not self._file.closed:
            self._read()
        for line in [*self._exceptions][::-1][: self.count - count]:
            text = line.partition(": ")[2]
            if not text or text not in said:
                return line
        return ""

    def _read(self) -> None:
        try:
            data = self._file.read(_AT_ONCE)
        except OSError:
            data = b""
        if data is None:  # nothing to read after all
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE or (self._rest and not data):
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._tell(line)
        if not data:
            self._log.flush()
            self._loop.remove_reader(self._file.fileno())
            self._file.close()
        elif len(data) == _AT_ONCE:  # it floods: others get a turn
            self._loop.remove_reader(self._file.fileno())
            self._loop.call_later(_FLOOD_PAUSE_S, self._go_on)

    def _go_on(self) -> None:
        if not self._file.closed:
            self._loop.add_reader(self._file.fileno(), self._read)

    def take_traceback(self) -> str:
        """Return the newest traceback if it is not in the log yet, where it is left out then."""
        return self._log.take_traceback()

    def _tell(self, raw: bytes) -> None:
        line = sanitize(raw.decode(errors="replace").rstrip(), LINE)
        if line.strip():
            self._last = one_line(redact_text(line), _MAX_SHOWN)
            self._note_exception(line)
            self._log.take(line)

    def _note_exception(self, line: str) -> None:
        """Remember the last line of a traceback."""
        text, before = line.strip(), self._before
        self._before = text
        if TRACEBACK in text:
            self._in_traceback = True
        elif self._in_traceback and (line == text or before.startswith(FRAME)) and EXCEPTION.fullmatch(text):
            self._in_traceback = False
            self.count += 1
            self._exceptions.append(one_line(redact_text(text), _MAX_SHOWN))
