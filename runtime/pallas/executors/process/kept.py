"""A program below the keeper: its start, its end, how it ended, and the lines that it writes."""

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

from pallas.model.safe_text import sanitize

from . import keeper

LINE: Final = 8_192
"""Characters of a line that are read at most."""
_LINES_A_SECOND: Final = 200
# Seconds for the last lines to be read once it has ended, and for the keeper beyond its own grace.
_READ: Final = 0.5
_LEEWAY: Final = 4.0


async def start_below(
    command: Sequence[str],
    *,
    status: int,
    channel: int,
    cwd: Path,
    stdin: int,
    env: Mapping[str, str] | None = None,
) -> Process:
    """Start ``command`` below a keeper, in a group of its own. Raises OSError.

    The keeper writes to the descriptor ``status`` how it ended; ``channel`` is the one that the program has.
    """
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", keeper.__file__),
        *(str(os.getpid()), str(status), str(channel)),
        *command,
        cwd=cwd,
        env=None if env is None else dict(env),
        stdin=stdin,
        stdout=PIPE,
        stderr=PIPE,
        limit=LINE,
        pass_fds=(status, channel),
        start_new_session=True,
    )


def end_now(process: Process | None) -> None:
    """Have the keeper end all of it at once, where it was started and still is there."""
    if process is not None and process.returncode is None:
        process.send_signal(signal.SIGUSR1)


class Kept:
    """A program below a keeper, of which nothing outlives this fleet.

    ``ended`` is done with the words for how it ended ("ended with exit status 3") as soon as it did, which
    ``words`` makes of what the keeper wrote; what it left behind is gone when ``gone`` has returned. A
    subclass starts it and puts what reads its output into ``_readers``.
    """

    def __init__(self, agent: str, process: Process, status: int, words: Callable[[str], str]) -> None:
        self._agent = agent
        self._process = process
        self._status = status
        self._words = words
        self._said = b""
        self._why = ""
        self._loop = asyncio.get_running_loop()
        self._readers: list[asyncio.Task[None]] = []
        self.ended: asyncio.Future[str] = self._loop.create_future()
        os.set_blocking(status, False)
        self._loop.add_reader(status, self._hear)

    @property
    def keeper(self) -> int:
        """The process above it, and above all that it starts."""
        return self._process.pid

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

    async def read_out(self) -> None:
        """Until what it wrote before its end is read, half a second at most."""
        await asyncio.wait(self._readers, timeout=_READ)

    async def _surely_gone(self) -> None:
        """Until nothing of it is left: the keeper first, then its whole group, is ended by force."""
        if not await self.gone(_LEEWAY):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self.gone(_LEEWAY)

    async def _let_go(self, words: str) -> None:
        """Read what is left of its output and end reading; ``words`` where nothing told how it ended."""
        await self.read_out()
        for reader in self._readers:
            reader.cancel()
        self._tell(words)

    def _hear(self) -> None:
        try:
            data = os.read(self._status, 64)
        except BlockingIOError:
            return
        self._said += data
        if not data or self._said.endswith(b"\n"):
            self._tell(self._words(self._said.decode("ascii", "replace")))

    def _tell(self, words: str) -> None:
        if self._status >= 0:
            self._loop.remove_reader(self._status)
            os.close(self._status)
            self._status = -1
        if not self.ended.done():
            self.ended.set_result(self._why or words)


async def log_lines(
    stream: asyncio.StreamReader,
    agent: str,
    source: str,
    *,
    clean: Callable[[str], str] = str,
    keep: Callable[[str], None] | None = None,
) -> None:
    """What an agent's program writes goes to its log line by line, 200 a second at most, until it ends.

    ``clean`` is put before all else is done with a line, ``keep`` gets each as it is logged.
    """
    logger = logging.getLogger(f"pallas.agents.{agent}")
    extra = {"agent": agent, "source": source}
    second, told, left_out = 0, 0, 0
    while True:
        try:
            raw = await stream.readline()
        except ValueError:  # a line over the limit: what was read of it is dropped
            left_out += 1
            continue
        line = sanitize(clean(raw.decode(errors="replace").rstrip("\n")), LINE)
        if (now := int(monotonic())) != second or not raw:
            if left_out:
                logger.warning("%d more lines were left out", left_out, extra=extra)
            second, told, left_out = now, 0, 0
        if not raw:
            return
        if not line.strip():
            continue
        if keep is not None:
            keep(line)
        told += 1
        if told > _LINES_A_SECOND:
            left_out += 1
        else:
            logger.info("%s", line, extra=extra)
