"""The process of a worker: its start, its end, how it ended, and what it says on stderr."""

import asyncio
import os
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pallas.model.safe_text import one_line
from pallas.telemetry.log import redact_text

from ..ipc.child_process import ChildProcess, children_of, end_now, log_lines, start_below_keeper

_LAST_LINES: Final = 20


class WorkerProcess(ChildProcess):
    """A program below a keeper, in a process group of its own, of which nothing outlives this fleet."""

    def __init__(self, agent: str, process: Process, status: int) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        super().__init__(agent, process, status)
        self.stdin, self.stdout = process.stdin, process.stdout
        self._pid: int | None = None
        self.last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        # Nobody looks for anything in its stderr: it goes to the log.
        reading = log_lines(process.stderr, agent, "stderr", clean=_clean, keep=self._keep)
        self._readers = [asyncio.create_task(reading, name=f"{agent}: stderr")]

    @classmethod
    async def start(
        cls, agent: str, command: tuple[str, ...], cwd: Path, env: Mapping[str, str]
    ) -> "WorkerProcess":
        """Start it; ``command`` begins with the path of a program. Raises OSError."""
        reading, writing = os.pipe()
        nothing = os.open(os.devnull, os.O_RDWR)  # in place of the channel that our own children have
        process = None
        try:
            process = await start_below_keeper(
                command, status=writing, channel=nothing, cwd=cwd, stdin=PIPE, env=env
            )
            return cls(agent, process, reading)
        except BaseException:
            os.close(reading)
            end_now(process)
            raise
        finally:
            os.close(writing)
            os.close(nothing)

    @property
    def pid(self) -> int:
        """The program's own, or its keeper's where the system does not tell whose parent that is."""
        if self._pid is None:
            self._pid = next(iter(children_of(self.keeper)), None)
        return self._pid or self.keeper

    @property
    def last_said(self) -> str:
        """The last lines of its stderr in one, for messages; empty where it said nothing."""
        return one_line(" | ".join(list(self.last_lines)[-3:]), 300)

    def hang_up(self) -> None:
        """Close its stdin: most programs take that for the end."""
        self.stdin.close()

    async def close(self) -> None:
        """End it by force if it still is there, with its whole group, and let go of all that is held."""
        self.end(force=True)
        self.stdin.close()
        await self._kill_rest()
        await self._release("was ended")

    def _keep(self, line: str) -> None:
        self.last_lines.append(one_line(line, 200))


def _clean(line: str) -> str:
    return redact_text(line.rstrip("\r"))
