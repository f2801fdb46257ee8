"""Descriptors 0 and 1 for JSON-RPC alone: all other output of this process goes to stderr (DR-1)."""

import asyncio
import contextlib
import fcntl
import os
import select
import sys
import threading
from collections import deque
from time import monotonic
from typing import Final

MAX_LINE: Final = 8 * 1024 * 1024
"""Bytes of one message that are read; a fleet accepts less."""
_AHEAD: Final = 64
_OUTGOING: Final = 1_000
_PATIENCE: Final = 60.0
_CHUNK: Final = 65_536


class TooLong(Exception):
    """A line above the limit, with its size; its content is dropped."""

    def __init__(self, size: int) -> None:
        super().__init__(f"a message of {size} bytes")
        self.size = size


class StdioWire:
    """Takes stdin and stdout for itself, at once and for good, and moves lines on its own threads.

    For all other code, including children, descriptor 0 returns end-of-file, and what they write to 1 goes to
    stderr. Belongs to one event loop from ``begin`` on.
    """

    def __init__(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        nowhere = os.open(os.devnull, os.O_RDWR)
        self._in = _mine(0, nowhere)
        self._out = _mine(1, nowhere)
        os.dup2(nowhere, 0)
        try:
            os.dup2(2, 1)
        except OSError:  # stderr is closed.
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
        if nowhere > 2:
            os.close(nowhere)
        self._lines: asyncio.Queue[bytes | TooLong | None] = asyncio.Queue()
        self._room = threading.Semaphore(_AHEAD)
        self._outgoing: deque[bytes] = deque()
        self._some = threading.Condition()
        self._gone = self._ended = False
        self._writer = threading.Thread(target=self._write_all, name="stdout", daemon=True)

    @property
    def gone(self) -> bool:
        """Whether the reader of stdout is gone."""
        if not self._gone:
            poll = select.poll()
            poll.register(self._out, 0)
            self._gone = any(event & (select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))
        return self._gone

    def begin(self) -> None:
        """Start reading and writing."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read_all, args=(loop,), name="stdin", daemon=True).start()
        self._writer.start()

    async def line(self) -> bytes | TooLong | None:
        """Return the next line; None when stdin has ended."""
        found = await self._lines.get()
        self._room.release()
        return found

    async def say(self, line: bytes) -> None:
        """Send a line without a line break. A reader that takes nothing for a minute counts as gone."""
        waits_until = monotonic() + _PATIENCE
        while len(self._outgoing) >= _OUTGOING and not self.gone:
            if monotonic() > waits_until:
                self._gone = True
            await asyncio.sleep(0.01)
        with self._some:
            if not self._gone:
                self._outgoing.append(line + b"\n")
            self._some.notify()

    async def end(self, seconds: float = 2.0) -> None:
        """Wait up to ``seconds`` until everything said is written."""
        with self._some:
            self._ended = True
            self._some.notify()
        if self._writer.ident is not None:
            await asyncio.to_thread(self._writer.join, seconds)

    def _read_all(self, loop: asyncio.AbstractEventLoop) -> None:
        rest = bytearray()
        skipped = 0
        while True:
            try:
                data = os.read(self._in, _CHUNK)
            except OSError:
                data = b""
            if not data:
                break
            *whole, last = data.split(b"\n")
            for part in whole:
                if skipped:
                    self._hand(loop, TooLong(skipped + len(part)))
                else:
                    self._hand(loop, bytes(rest + part))
                rest.clear()
                skipped = 0
            if skipped:
                skipped += len(last)
            else:
                rest += last
                if len(rest) > MAX_LINE:
                    skipped = len(rest)
                    rest.clear()
        if rest:
            self._hand(loop, bytes(rest))
        self._hand(loop, None)

    def _hand(self, loop: asyncio.AbstractEventLoop, line: bytes | TooLong | None) -> None:
        self._room.acquire()
        with contextlib.suppress(RuntimeError):  # The loop is over.
            loop.call_soon_threadsafe(self._lines.put_nowait, line)

    def _write_all(self) -> None:
        while True:
            with self._some:
                while not self._outgoing and not self._ended:
                    self._some.wait()
                if not self._outgoing:
                    return
                line = self._outgoing.popleft()
            try:
                left = memoryview(line)
                while left:
                    left = left[os.write(self._out, left) :]
            except OSError:
                self._gone = True
                return


def _mine(descriptor: int, nowhere: int) -> int:
    """Return a private copy of a descriptor, which no child inherits, above the well-known numbers."""
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    except OSError:  # It is closed.
        return fcntl.fcntl(nowhere, fcntl.F_DUPFD_CLOEXEC, 3)
