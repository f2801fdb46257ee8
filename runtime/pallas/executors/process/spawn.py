"""A process for one agent: its start, its end, how it ended, and what it writes."""

import asyncio
import logging
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

from pallas.log import redact_text
from pallas.text import one_line, sanitize

from . import keeper
from .channel import Channel
from .messages import OUT_OF_MEMORY

log = logging.getLogger(__name__)

_LINE: Final = 8_192
_LINES_A_SECOND: Final = 200
_LAST_LINES: Final = 100
# Seconds for the last lines to be read once a process has ended, and for the keeper beyond its own grace.
_READ: Final = 0.5
_LEEWAY: Final = 4.0


class Spawned:
    """An interpreter that runs ``child`` for one agent, in a process group of its own.

    ``ended`` is done with the words for how it ended ("ended by SIGSEGV") as soon as it did; what it left
    behind is gone when ``gone`` has returned.
    """

    def __init__(self, agent: str, process: Process, channel: Channel, status: int) -> None:
        self._agent = agent
        self._process = process
        self._status = status
        self._said = b""
        self._why = ""
        self._loop = asyncio.get_running_loop()
        self.channel = channel
        self.pid: int | None = None
        self.ended: asyncio.Future[str] = self._loop.create_future()
        self.last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        os.set_blocking(status, False)
        self._loop.add_reader(status, self._hear)
        self._readers = [
            asyncio.create_task(self._read(stream, source), name=f"{agent}: {source}")
            for stream, source in ((process.stdout, "stdout"), (process.stderr, "stderr"))
            if stream is not None
        ]

    @classmethod
    async def start(cls, agent: str, cwd: Path) -> "Spawned":
        """Start it; it begins to import at once. Raises OSError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        reading, writing = os.pipe()
        channel, process = None, None
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", keeper.__file__),
                *(str(os.getpid()), str(writing), str(theirs.fileno())),
                *(sys.executable, "-P", "-X", "faulthandler", "-m", "pallas.executors.process.child"),
                str(theirs.fileno()),
                cwd=cwd,
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=PIPE,
                limit=_LINE,
                pass_fds=(writing, theirs.fileno()),
                start_new_session=True,
            )
            ours.setblocking(False)
            channel = await Channel.over(ours)
            return cls(agent, process, channel, reading)
        except BaseException:
            os.close(reading)
            if channel is None:
                ours.close()
            else:
                channel.close()
            if process is not None and process.returncode is None:
                process.send_signal(signal.SIGUSR1)
            raise
        finally:
            theirs.close()
            os.close(writing)

    def end(self, why: str = "", *, force: bool = False) -> None:
        """Ask it to end, at once with ``force``; ``why`` are the words for how it ended in that case."""
        if not self.ended.done():
            self._why = self._why or why
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGUSR1 if force else signal.SIGTERM)

    async def gone(self, timeout: float) -> bool:
        """Whether nothing of it is left, after ``timeout`` seconds at most."""
        try:
            async with asyncio.timeout(timeout):
                await self._process.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """End it by force if it still is there, and let go of all that is held for it."""
        self.end(force=True)
        if not await self.gone(_LEEWAY):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self.gone(_LEEWAY)
        self.channel.close()
        if self._readers:
            _, late = await asyncio.wait(self._readers, timeout=_READ)
            for reader in late:
                reader.cancel()
        self._tell("ended")

    async def read_out(self) -> None:
        """Until what it wrote before its end is read, half a second at most."""
        await asyncio.wait(self._readers, timeout=_READ)

    def _hear(self) -> None:
        try:
            data = os.read(self._status, 64)
        except BlockingIOError:
            return
        self._said += data
        if not data or self._said.endswith(b"\n"):
            self._tell(_words(self._said.decode("ascii", "replace")))

    def _tell(self, words: str) -> None:
        if self._status >= 0:
            self._loop.remove_reader(self._status)
            os.close(self._status)
            self._status = -1
        if not self.ended.done():
            self.ended.set_result(self._why or words)

    async def _read(self, stream: asyncio.StreamReader, source: str) -> None:
        logger = logging.getLogger(f"pallas.agents.{self._agent}")
        extra = {"agent": self._agent, "source": source}
        second, told, left_out = 0, 0, 0
        while True:
            try:
                raw = await stream.readline()
            except ValueError:  # a line over the limit: what was read of it is dropped
                left_out += 1
                continue
            line = sanitize(raw.decode(errors="replace").rstrip("\n"), _LINE)
            if (now := int(monotonic())) != second or not raw:
                if left_out:
                    logger.warning("%d more lines were left out", left_out, extra=extra)
                second, told, left_out = now, 0, 0
            if not raw:
                return
            if not line.strip():
                continue
            if source == "stderr":
                self.last_lines.append(one_line(redact_text(line), 300))
            told += 1
            if told > _LINES_A_SECOND:
                left_out += 1
            else:
                logger.info("%s", line, extra=extra)


def _words(said: str) -> str:
    """How it ended, after what the keeper wrote."""
    what, _, number = said.strip().partition(" ")
    if what == "exit" and number == str(OUT_OF_MEMORY):
        return "ran out of memory"
    if what == "exit" and number.isdigit():
        return f"ended with exit status {number}"
    if what == "signal" and number.isdigit():
        try:
            name = signal.Signals(int(number)).name
        except ValueError:
            name = f"signal {number}"
        more = " (from outside, or for want of memory)" if name == "SIGKILL" else ""
        return f"ended by {name}{more}"
    return "was ended from outside"
