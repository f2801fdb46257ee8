"""A program below the keeper: its start, its end, how it ended, and the lines that it writes."""

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from pallas.model.redaction import redact_text
from pallas.safe_text import one_line, sanitize
from pallas.telemetry.log.printed_lines import LINE, OutputLog

from . import keeper
from .channel import MAX_FRAME, Channel
from .child_messages import OUT_OF_MEMORY

_PROGRAM: Final = "pallas.executors.ipc.child"
_LAST_LINES: Final = 100
# Seconds to read the last lines after the end, and to wait for the keeper beyond its own grace.
_READ_TIMEOUT_S: Final = 0.5
_LEEWAY_S: Final = 4.0


class ChildProcess:
    """A program below a keeper; nothing that it starts outlives this fleet.

    ``ended`` resolves as soon as the program ended, to the words for how ("ended with exit status 3"). What
    it left behind is gone when ``wait_gone`` returns True. A subclass starts the program and puts the tasks
    that read its output into ``_readers``.
    """

    def __init__(self, agent: str, process: Process, status: int) -> None:
        self._agent = agent
        self._process = process
        self._status = status
        self._status_line = b""
        self._why = ""
        self._loop = asyncio.get_running_loop()
        self._readers: list[asyncio.Task[None]] = []
        self.ended: asyncio.Future[str] = self._loop.create_future()
        os.set_blocking(status, False)
        self._loop.add_reader(status, self._read_status)

    @property
    def keeper(self) -> int:
        """The pid of the keeper, the ancestor of all that the program starts."""
        return self._process.pid

    def end(self, why: str = "", *, force: bool = False) -> None:
        """Ask it to end, or end it at once with ``force``. ``why`` replaces the words for how it ended."""
        if not self.ended.done():
            self._why = self._why or why
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGUSR1 if force else signal.SIGTERM)

    @property
    def was_ended(self) -> bool:
        """Whether ``end`` was called with a reason: it did not end by itself."""
        return bool(self._why)

    async def wait_gone(self, timeout_s: float) -> bool:
        """Return whether nothing of it is left, after ``timeout_s`` at most."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._process.wait()
        except TimeoutError:
            return False
        return True

    async def read_out(self) -> None:
        """Wait until all that it wrote before its end is read, half a second at most."""
        await asyncio.wait(self._readers, timeout=_READ_TIMEOUT_S)

    def describe_exit(self, exit_code: int | None, signal_number: int | None) -> str:
        """The words for how it ended; both None where the keeper could not tell."""
        if exit_code is not None:
            return f"ended with exit status {exit_code}"
        if signal_number is not None:
            try:
                return f"ended by {signal.Signals(signal_number).name}"
            except ValueError:
                return f"ended by signal {signal_number}"
        return "was ended from outside"

    async def _kill_rest(self) -> None:
        """Wait until nothing of it is left; end its whole group by force where the keeper does not."""
        if not await self.wait_gone(_LEEWAY_S):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self.wait_gone(_LEEWAY_S)

    async def _release(self, words: str) -> None:
        """Read the rest of its output, then stop reading. ``words`` hold where nothing said how it ended."""
        await self.read_out()
        for reader in self._readers:
            reader.cancel()
        self._set_ended(words)

    def _read_status(self) -> None:
        try:
            data = os.read(self._status, 64)
        except BlockingIOError:
            return
        self._status_line += data
        if not data or self._status_line.endswith(b"\n"):
            what, _, text = self._status_line.decode("ascii", "replace").strip().partition(" ")
            number = int(text) if text.isdigit() else None
            self._set_ended(
                self.describe_exit(number if what == "exit" else None, number if what == "signal" else None)
            )

    def _set_ended(self, words: str) -> None:
        if self._status >= 0:
            self._loop.remove_reader(self._status)
            os.close(self._status)
            self._status = -1
        if not self.ended.done():
            self.ended.set_result(self._why or words)


class InterpreterProcess(ChildProcess):
    """A Python interpreter that runs a program of Pallas for one agent and has a ``channel`` to the fleet."""

    def __init__(self, agent: str, process: Process, channel: Channel, status: int) -> None:
        super().__init__(agent, process, status)
        self.channel = channel
        self.last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._readers = [
            asyncio.create_task(log_lines(stream, agent, source, on_line=keep), name=f"{agent}: {source}")
            for stream, source, keep in (
                (process.stdout, "stdout", None),
                (process.stderr, "stderr", self._keep_line),
            )
            if stream is not None
        ]

    @classmethod
    async def start(
        cls,
        agent: str,
        cwd: Path,
        *,
        module: str,
        env: Mapping[str, str] | None = None,
        max_frame: int = MAX_FRAME,
    ) -> "InterpreterProcess":
        """Start it; it begins to import at once. Raises OSError.

        ``module`` has the ``serve`` function that ``ipc.child`` calls. Without ``env`` it has the fleet's
        environment. ``max_frame`` is how many bytes one frame from it may have.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        interpreter = (sys.executable, "-P", "-X", "faulthandler", "-m", _PROGRAM)
        command = (*interpreter, module, str(theirs.fileno()))
        try:
            process, status = await start_below_keeper(
                command, channel=theirs.fileno(), cwd=cwd, stdin=DEVNULL, env=env
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        channel = None
        try:
            ours.setblocking(False)
            channel = await Channel.over(ours, max_frame)
            return cls(agent, process, channel, status)
        except BaseException:
            (channel or ours).close()
            os.close(status)
            if process.returncode is None:
                process.send_signal(signal.SIGUSR1)
            raise

    async def close(self) -> None:
        """End it by force if it still runs, and release all that is held for it."""
        self.end(force=True)
        await self._kill_rest()
        self.channel.close()
        await self._release("ended")

    def describe_exit(self, exit_code: int | None, signal_number: int | None) -> str:
        """As ``ChildProcess.describe_exit``, with the reasons that only our own program can have."""
        if exit_code == OUT_OF_MEMORY:
            return "ran out of memory"
        words = super().describe_exit(exit_code, signal_number)
        return (
            f"{words} (by another process, or because the machine ran out of memory)"
            if signal_number == signal.SIGKILL
            else words
        )

    def _keep_line(self, line: str) -> None:
        self.last_lines.append(one_line(redact_text(line), 300))


async def start_below_keeper(
    command: Sequence[str],
    *,
    channel: int,
    cwd: Path,
    stdin: int,
    env: Mapping[str, str] | None = None,
) -> tuple[Process, int]:
    """Start ``command`` below a keeper, in a process group of its own. Raises OSError.

    ``channel`` is the one descriptor that the program inherits. Returns the keeper's process, and the
    descriptor that the keeper writes to when the program has ended.
    """
    reading, writing = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", keeper.__file__),
            *(str(os.getpid()), str(writing), str(channel)),
            *command,
            cwd=cwd,
            env=None if env is None else dict(env),
            stdin=stdin,
            stdout=PIPE,
            stderr=PIPE,
            limit=LINE,
            pass_fds=(writing, channel),
            start_new_session=True,
        )
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    return process, reading


def children_of(pid: int) -> list[int]:
    """The pids of the processes that ``pid`` started and that still run; none if the system does not say."""
    try:
        return [
            int(child)
            for thread in Path(f"/proc/{pid}/task").iterdir()
            for child in (thread / "children").read_text("ascii").split()
        ]
    except (OSError, ValueError):
        return []


async def log_lines(
    stream: asyncio.StreamReader,
    agent: str,
    source: str,
    *,
    clean: Callable[[str], str] = str,
    on_line: Callable[[str], None] | None = None,
) -> None:
    """Log what an agent's program writes line by line, 200 a second at most, until the stream ends.

    ``clean`` is applied to each line first; ``on_line`` gets each line as it is logged.
    """
    log = OutputLog(f"pallas.agents.{agent}", {"agent": agent, "source": source})
    while True:
        try:
            raw = await stream.readline()
        except ValueError:  # a line over the limit: what was read of it is dropped
            log.leave_out()
            continue
        if not raw:
            log.flush()
            return
        line = sanitize(clean(raw.decode(errors="replace").rstrip("\n")), LINE)
        if line.strip():
            if on_line is not None:
                on_line(line)
            log.take(line)
