"""The process of a worker: its start, its end, how it ended, and what it says on stderr."""

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

from pallas.log import redact_text
from pallas.text import one_line, sanitize

from ..process import keeper

_LINE: Final = 8_192
_LINES_A_SECOND: Final = 200
_LAST_LINES: Final = 20
# Seconds for the last lines to be read once it has ended, and for the keeper beyond its own grace.
_READ: Final = 0.5
_LEEWAY: Final = 4.0


class WorkerProcess:
    """A program below a keeper, in a process group of its own, of which nothing outlives this fleet.

    ``ended`` is done with the words for how it ended ("ended with exit status 3") as soon as it did; what it
    left behind is gone when ``gone`` has returned.
    """

    def __init__(self, agent: str, process: Process, status: int) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.stdin, self.stdout = process.stdin, process.stdout
        self._agent = agent
        self._process = process
        self._status = status
        self._said = b""
        self._why = ""
        self._pid: int | None = None
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[str] = self._loop.create_future()
        self.last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        os.set_blocking(status, False)
        self._loop.add_reader(status, self._hear)
        self._reader = asyncio.create_task(self._read(process.stderr), name=f"{agent}: stderr")

    @classmethod
    async def start(
        cls, agent: str, command: tuple[str, ...], cwd: Path, env: Mapping[str, str]
    ) -> "WorkerProcess":
        """Start it; ``command`` begins with the path of a program. Raises OSError."""
        reading, writing = os.pipe()
        nothing = os.open(os.devnull, os.O_RDWR)  # in place of the channel that our own children have
        process = None
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", keeper.__file__),
                *(str(os.getpid()), str(writing), str(nothing)),
                *command,
                cwd=cwd,
                env=dict(env),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                limit=_LINE,
                pass_fds=(writing, nothing),
                start_new_session=True,
            )
            return cls(agent, process, reading)
        except BaseException:
            os.close(reading)
            if process is not None and process.returncode is None:
                process.send_signal(signal.SIGUSR1)
            raise
        finally:
            os.close(writing)
            os.close(nothing)

    @property
    def pid(self) -> int:
        """The program's own, or its keeper's where the system does not tell whose parent that is."""
        if self._pid is None:
            above = self._process.pid
            with suppress(OSError, ValueError, IndexError):
                children = Path(f"/proc/{above}/task/{above}/children").read_text("ascii")
                self._pid = int(children.split()[0])
        return self._pid or self._process.pid

    @property
    def last_said(self) -> str:
        """The last lines of its stderr in one, for messages; empty where it said nothing."""
        return one_line(" | ".join(list(self.last_lines)[-3:]), 300)

    def end(self, why: str = "", *, force: bool = False) -> None:
        """Ask it to end, at once with ``force``; ``why`` are the words for how it ended in that case."""
        if not self.ended.done():
            self._why = self._why or why
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGUSR1 if force else signal.SIGTERM)

    def hang_up(self) -> None:
        """Close its stdin: most programs take that for the end."""
        self.stdin.close()

    async def gone(self, timeout: float) -> bool:
        """Whether nothing of it is left, after ``timeout`` seconds at most."""
        try:
            async with asyncio.timeout(timeout):
                await self._process.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """End it by force if it still is there, with its whole group, and let go of all that is held."""
        self.end(force=True)
        self.stdin.close()
        if not await self.gone(_LEEWAY):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self.gone(_LEEWAY)
        await self.read_out()
        self._reader.cancel()
        self._tell("was ended")

    async def read_out(self) -> None:
        """Until what it wrote to stderr before its end is read, half a second at most."""
        await asyncio.wait({self._reader}, timeout=_READ)

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

    async def _read(self, stream: asyncio.StreamReader) -> None:
        """Its stderr goes to the log line by line; nobody looks for anything in it."""
        logger = logging.getLogger(f"pallas.agents.{self._agent}")
        extra = {"agent": self._agent, "source": "stderr"}
        second, told, left_out = 0, 0, 0
        while True:
            try:
                raw = await stream.readline()
            except ValueError:  # a line over the limit: what was read of it is dropped
                left_out += 1
                continue
            line = sanitize(redact_text(raw.decode(errors="replace").rstrip("\r\n")), _LINE)
            if (now := int(monotonic())) != second or not raw:
                if left_out:
                    logger.warning("%d more lines were left out", left_out, extra=extra)
                second, told, left_out = now, 0, 0
            if not raw:
                return
            if not line.strip():
                continue
            self.last_lines.append(one_line(line, 200))
            told += 1
            if told > _LINES_A_SECOND:
                left_out += 1
            else:
                logger.info("%s", line, extra=extra)


def _words(said: str) -> str:
    """How it ended, after what the keeper wrote."""
    what, _, number = said.strip().partition(" ")
    if what == "exit" and number.isdigit():
        return f"ended with exit status {number}"
    if what == "signal" and number.isdigit():
        try:
            return f"ended by {signal.Signals(int(number)).name}"
        except ValueError:
            return f"ended by signal {number}"
    return "was ended from outside"
