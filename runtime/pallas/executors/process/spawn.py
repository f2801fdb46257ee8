"""A process for one agent: its start, its end, how it ended, and what it writes."""

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pallas.model.safe_text import one_line
from pallas.telemetry.log import redact_text

from .channel import MAX_FRAME, Channel
from .ending import OUT_OF_MEMORY
from .kept import Kept, end_now, log_lines, start_below

AGENT: Final = "pallas.executors.process.child"
"""The program of an agent."""
_LAST_LINES: Final = 100


class Spawned(Kept):
    """An interpreter that runs a program of ours for one agent, in a process group of its own."""

    def __init__(self, agent: str, process: Process, channel: Channel, status: int) -> None:
        super().__init__(agent, process, status, _words)
        self.channel = channel
        self.pid: int | None = None
        self.last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._readers = [
            asyncio.create_task(log_lines(stream, agent, source, keep=keep), name=f"{agent}: {source}")
            for stream, source, keep in (
                (process.stdout, "stdout", None),
                (process.stderr, "stderr", self._keep),
            )
            if stream is not None
        ]

    @classmethod
    async def start(
        cls,
        agent: str,
        cwd: Path,
        *,
        program: str = AGENT,
        env: Mapping[str, str] | None = None,
        frame: int = MAX_FRAME,
    ) -> "Spawned":
        """Start it; it begins to import at once. Raises OSError.

        ``program`` is a module, told the number of its descriptor; ``env`` None is that of the fleet;
        ``frame`` how many bytes one frame of it may have.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        reading, writing = os.pipe()
        channel, process = None, None
        try:
            process = await start_below(
                (
                    *(sys.executable, "-P", "-X", "faulthandler", "-m", program),
                    str(theirs.fileno()),
                ),
                status=writing,
                channel=theirs.fileno(),
                cwd=cwd,
                stdin=DEVNULL,
                env=env,
            )
            ours.setblocking(False)
            channel = await Channel.over(ours, frame)
            return cls(agent, process, channel, reading)
        except BaseException:
            os.close(reading)
            if channel is None:
                ours.close()
            else:
                channel.close()
            end_now(process)
            raise
        finally:
            theirs.close()
            os.close(writing)

    async def close(self) -> None:
        """End it by force if it still is there, and let go of all that is held for it."""
        self.end(force=True)
        await self._surely_gone()
        self.channel.close()
        await self._let_go("ended")

    def _keep(self, line: str) -> None:
        self.last_lines.append(one_line(redact_text(line), 300))


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
