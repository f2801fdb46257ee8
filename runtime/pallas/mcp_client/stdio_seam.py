"""Limits on the stdout of stdio servers: the length of lines, and how many of them are no message.

The SDK's transport logs a traceback for each invalid line, and takes lines of any length. Here invalid
lines are counted; a server that goes on is ended, and its pending calls fail with the reason.
``tests/contract/test_mcp_seam.py`` fails when a wrapped function of the SDK changes.
"""

import asyncio
import logging
import os
import signal
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from time import monotonic
from typing import Any, Final

import anyio
from anyio.abc import ByteReceiveStream
from mcp.client import stdio
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, ErrorData, JSONRPCError

from pallas.bounds import GARBAGE_SECONDS, MAX_GARBAGE, MAX_MESSAGE, in_mib
from pallas.bounds.message_nodes import too_many_nodes
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line
from pallas.telemetry.log.server_output import is_logged, server_lines
from pallas.telemetry.trace_context import current_agent

from . import library_hooks
from .library_hooks import Hook
from .odd_framing import messages_in
from .passing_streams import PassingReader, PassingStream

log = logging.getLogger(__name__)

_SHOWN: Final = 200
# How a message begins that is spread over lines.
_BRACES: Final = (b"{\n", b"{\r\n")
_COLUMNS: Final = "160"
RIGHT_AFTER: Final = "right after it answered"
"""What is said of a program that ends where others wait for the next request."""
_ENDED: Final = "local.pallas/serverEnded"
# Seconds for the system to say how a program ended whose output has ended, and between two looks.
_END_S: Final = 2.0
_LOOK_S: Final = 0.02
# A program that ends so soon after an answer has ended because it had answered.
_SOON_S: Final = 2.0
# Seconds for the SDK to end a program: it takes 6.5 at most.
_LEAVE_S: Final = 7.0
_MAX_ENDS: Final = 1_000
# By agent and server.
_ends: Final[dict[tuple[str, str], str]] = {}
_printed: Final[dict[tuple[str, str], str]] = {}


def install() -> None:
    """Install the hooks; further calls do nothing. Raises Fault (CONFIG)."""
    for hook in HOOKS:
        library_hooks.install(hook)


@asynccontextmanager
async def guarded(name: str, transport: Any) -> AsyncIterator[Any]:
    """Yield the guarded streams of a stdio transport that was not entered yet; ``name`` is the server's,
    for the log."""
    guard = _Guard(name)
    _ends.pop((current_agent(), name), None)
    _printed.pop((current_agent(), name), None)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(guard.close)
        stack.callback(guard.left)
        token = _spawning.set(guard)
        try:
            read, write = await stack.enter_async_context(transport)
        finally:
            _spawning.reset(token)
        try:
            yield _Read(read, guard), _Write(write, guard)
        finally:
            guard.leave()


def was_ended(error: BaseException) -> bool:
    """Return whether a call failed because its server was ended here."""
    return isinstance(error, MCPError) and isinstance(error.data, dict) and _ENDED in error.data


def end_of(error: BaseException) -> str:
    """Return why a server was ended here while it was connected; empty for any other error."""
    if was_ended(error):
        return str(error)
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for each in (*inner, error.__cause__, error.__context__):
        if each is not None and (found := end_of(each)):
            return found
    return ""


def how_it_ended(agent: str, server: str) -> str:
    """Return how the program of an agent's server ended, by itself; empty once it is started again."""
    return _ends.get((agent, server), "")


def what_it_printed(agent: str, server: str) -> str:
    """Return the last line on the stdout of an agent's server that was no message; empty without one."""
    return _printed.get((agent, server), "")


class _Garbage(ValueError):
    """A line that is no message."""

    def __init__(self, line: str, problem: str | None = None) -> None:
        super().__init__("not a message")
        self.line, self.problem = line[: 4 * _SHOWN], problem


class _Several(list[Any]):
    """The messages of one line."""


class _Guard:
    """One server: its invalid lines, and why it was ended."""

    def __init__(self, name: str) -> None:
        self.process: Any = None
        self.reason = ""
        self.is_closing = False
        self._printed = server_lines(name, "stdout")
        self.awaited: dict[Any, str] = {}
        """Requests that were not answered: their methods by their ids."""
        self._answered = ("", 0.0)
        self._name = name
        self._seen = 0
        self._recent: deque[float] = deque(maxlen=MAX_GARBAGE)
        self._ending: asyncio.Task[None] | None = None
        self._last: asyncio.TimerHandle | None = None

    def hear(self, garbage: _Garbage) -> None:
        if garbage.problem is not None:
            self.cut(garbage.problem)
            return
        if not garbage.line.strip():
            return
        self._seen += 1
        shown = one_line(redact_text(garbage.line), _SHOWN)
        _printed[current_agent(), self._name] = shown
        while len(_printed) > _MAX_ENDS:
            del _printed[next(iter(_printed))]
        if self._seen == 1:
            log.warning(
                "server %s wrote a line on its stdout that is not a JSON-RPC message: %s; only "
                "messages belong "
                "there, anything else on stderr. Further lines are counted",
                self._name,
                shown,
            )
        if is_logged():
            self._printed.take(shown)
        now = monotonic()
        self._recent.append(now)
        if len(self._recent) == MAX_GARBAGE and now - self._recent[0] < GARBAGE_SECONDS:
            self.cut(f"its stdout is not JSON-RPC: {MAX_GARBAGE} lines of it were not messages")

    def cut(self, reason: str) -> None:
        """End the server."""
        if self.reason:
            return
        self.reason = f"server {self._name} was ended: {reason}"
        log.error("%s", self.reason)
        self._kill()

    def leave(self) -> None:
        """The transport is being left: kill the program if that does not end it.

        A task that is cancelled again while it leaves ends no program, and waits for its output without end.
        """
        self.is_closing = True
        self._last = asyncio.get_running_loop().call_later(_LEAVE_S, self._kill)

    def left(self) -> None:
        """The transport was left."""
        if self._last is not None:
            self._last.cancel()

    def _kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            with suppress(OSError):  # it leads a session of its own
                os.killpg(self.process.pid, signal.SIGKILL)

    def answer(self, number: Any) -> None:
        """Note the answer to a request."""
        if method := self.awaited.pop(number, ""):
            self._answered = method, monotonic()

    def end(self) -> None:
        """Its output has ended: log how the program did, unless that is our doing."""
        if self.process is not None and not (self.is_closing or self.reason or self._ending):
            method, answered_at = self._answered
            after = f" {RIGHT_AFTER} {method}" if method and monotonic() - answered_at < _SOON_S else ""
            self._ending = asyncio.create_task(self._log_end(after), name=f"end of {self._name}")

    async def close(self) -> None:
        """Wait for what ``end`` began: the program is gone by now."""
        if self._ending is not None:
            await asyncio.wait({self._ending}, timeout=_END_S)

    async def _log_end(self, after: str) -> None:
        # Not ``wait``: a program that this one started may hold its pipes open.
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                while self.process.returncode is None:  # noqa: ASYNC110 - nothing tells when it is known
                    await asyncio.sleep(_LOOK_S)
        if (status := self.process.returncode) is None:
            words = "closed its stdout and keeps running"
        elif status < 0:
            words = f"was killed by {_signal_name(-status)}"
        else:
            words = f"ended with exit status {status}{after}"
        agent = current_agent()
        _ends[agent, self._name] = words
        while len(_ends) > _MAX_ENDS:
            del _ends[next(iter(_ends))]
        named = f"{agent}: server" if agent else "server"
        log.warning("%s %s %s", named, self._name, words, extra={"downstream": self._name})

    def last_words(self) -> SessionMessage | None:
        """Return the error for one pending request of a server that was ended."""
        if not self.reason or not self.awaited:
            return None
        number, _ = self.awaited.popitem()
        error = ErrorData(code=CONNECTION_CLOSED, message=self.reason, data={_ENDED: True})
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=number, error=error))


_spawning: Final[ContextVar[_Guard | None]] = ContextVar("stdio_guard", default=None)


class _Write(PassingStream):
    def __init__(self, stream: Any, guard: _Guard) -> None:
        super().__init__(stream)
        self._guard = guard

    async def send(self, item: Any) -> None:
        """Pass a message on; the answer to a request is expected from now on."""
        message = item.message
        if hasattr(message, "method") and (number := getattr(message, "id", None)) is not None:
            self._guard.awaited[number] = message.method
        await self._stream.send(item)


class _Read(PassingReader):
    def __init__(self, stream: Any, guard: _Guard) -> None:
        super().__init__(stream)
        self._guard = guard
        self._held: deque[SessionMessage] = deque()

    async def receive(self) -> Any:
        """Return the next message. Counts invalid ones; raises EndOfStream for a server that was ended."""
        while True:
            try:
                item = self._held.popleft() if self._held else await self._stream.receive()
            except anyio.EndOfStream:
                if (last := self._guard.last_words()) is None:
                    self._guard.end()
                    # Who hears of the end is told how it came about.
                    await self._guard.close()
                    raise
                return last
            if isinstance(item, _Several):
                self._held.extend(map(SessionMessage, item))
                continue
            if isinstance(item, _Garbage):
                self._guard.hear(item)
                if (last := self._guard.last_words()) is not None:
                    return last
                continue
            message = getattr(item, "message", None)
            if not hasattr(message, "method"):
                self._guard.answer(getattr(message, "id", None))
            return item


class _Lines(ByteReceiveStream):
    """A program's stdout in whole lines of at most ``MAX_MESSAGE`` bytes, as valid UTF-8."""

    def __init__(self, stream: ByteReceiveStream, guard: _Guard) -> None:
        self._stream, self._guard = stream, guard
        self._held: list[bytes] = []
        self._folded: list[bytes] = []
        self._size = 0

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        """Return the next lines; raises EndOfStream after the last, and for a line that is too long."""
        while True:
            data = await self._stream.receive(max_bytes)
            end = data.find(b"\n") + 1
            self._size += end or len(data)
            self._held.append(data)
            if self._size > MAX_MESSAGE:
                self._held.clear()
                self._guard.cut(f"a line of its stdout has more than {in_mib(MAX_MESSAGE)}")
                raise anyio.EndOfStream
            if not end:
                continue
            whole = b"".join(self._held)
            end = whole.rfind(b"\n") + 1
            self._held, self._size = [whole[end:]], len(whole) - end
            return self._unfolded(whole[:end].decode("utf-8", "replace").encode())

    def _unfolded(self, lines: bytes) -> bytes:
        """Return lines with those of a message that is spread over several as one."""
        if (
            not self._folded
            and not lines.startswith(_BRACES)
            and b"\n{\n" not in lines
            and b"\n{\r" not in lines
        ):
            return lines
        made: list[bytes] = []
        for line in lines.splitlines(keepends=True):
            bare = line.rstrip()
            if not self._folded:
                (self._folded if bare == b"{" else made).append(line)
                continue
            self._folded.append(line)
            if bare == b"}":
                made.append(b"".join(each.strip() for each in self._folded) + b"\n")
            elif line[:1] in b" \t\r\n" and sum(map(len, self._folded)) <= MAX_MESSAGE:
                continue
            else:  # it was none
                made += self._folded
            self._folded = []
        return b"".join(made)

    async def aclose(self) -> None:
        """Close the pipe."""
        await self._stream.aclose()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _quiet(original: Any) -> Any:
    def _parse_line(line: str) -> Any:
        if (problem := too_many_nodes(line)) is not None:
            return _Garbage(line, problem)
        messages = messages_in(line)
        if not messages:
            return _Garbage(line)
        return SessionMessage(messages[0]) if len(messages) == 1 else _Several(messages)

    return _parse_line


def _bounded(original: Any) -> Any:
    async def _create_platform_compatible_process(
        command: str, args: Any, env: Any = None, errlog: Any = None, cwd: Any = None
    ) -> Any:
        # Tracebacks are drawn for a terminal of 80 columns otherwise.
        env = {"COLUMNS": _COLUMNS, **env} if env is not None else None
        process = await original(command, args, env, errlog, cwd)
        guard = _spawning.get()
        if guard is None or process.stdout is None:
            return process
        guard.process = process
        return replace(process, _stdout=_Lines(process.stdout, guard))

    return _create_platform_compatible_process


HOOKS: Final = (
    Hook("stdio.lines", stdio, "_parse_line", ("line",), _quiet),
    Hook(
        "stdio.process",
        stdio,
        "_create_platform_compatible_process",
        ("command", "args", "env", "errlog", "cwd"),
        _bounded,
    ),
)
