"""Logs what agents' code and programs print: a record for each line, one for a whole traceback."""

import io
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock, Timer, local
from time import monotonic
from typing import Any, Final, TextIO, cast

from pallas.safe_text import one_line, sanitize
from pallas.telemetry.code_owners import agent_on_stack
from pallas.telemetry.trace_context import current_agent, current_run

from .log_setup import is_on_stderr, write_record
from .unread_output import write_text

LINE: Final = 8_192
"""Characters of a line that are logged at most."""
LINES_A_SECOND: Final = 200
"""Lines of one source that are logged in a second at most."""
TRACEBACK: Final = "Traceback (most recent call last"
# The last line of a traceback, as Python writes it or below the frame that Rich draws.
EXCEPTION: Final = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:: .*)?")
FRAME: Final = "╰"
_CHAINED: Final = ("During handling of the above exception", "The above exception was the")
_MAX_TRACEBACK: Final = 1_000
_MAX_AGENTS: Final = 1_000
# Seconds that a traceback waits for another one that it caused.
_PAUSE_S: Final = 0.2


class OutputLog:
    """The log of one source of lines; safe from any thread.

    ``write`` gets each record. A line is INFO, a traceback one WARNING with its last line as message; it is
    written when another line comes, or after a fifth of a second. Lines beyond 200 in a second are counted.
    """

    def __init__(
        self, logger: str, extra: Mapping[str, str], write: Callable[[logging.LogRecord], None] | None = None
    ) -> None:
        self._logger = logging.getLogger(logger)
        self._extra = dict(extra)
        self._write = write or self._logger.handle
        self._lock = Lock()
        self._held: list[str] = []
        self._is_open = False
        self._before, self._run_id = "", ""
        self._second, self._count, self._left_out = 0, 0, 0
        self._timer: Timer | None = None

    def take(self, line: str) -> None:
        """Log a line without its newline."""
        line = sanitize(line.rstrip(), LINE)
        if not line.strip():
            return
        with self._lock:
            self._count_second()
            if self._count > LINES_A_SECOND:
                self._left_out += 1
                return
            begins = TRACEBACK in line
            if self._held and not (self._is_open or begins or line.strip().startswith(_CHAINED)):
                self._write_held()
            if not (self._held or begins):
                self._log(logging.INFO, line)
                return
            if not self._held:
                run = current_run()
                self._run_id = run.run_id if run is not None else ""
            self._held.append(line)
            text, before, self._before = line.strip(), self._before, line.strip()
            if begins:
                self._is_open = True
            elif self._is_open and (line == text or (before.startswith(FRAME) and EXCEPTION.fullmatch(text))):
                self._is_open = False
            if len(self._held) >= _MAX_TRACEBACK:
                self._write_held()
            self._wait()

    def leave_out(self) -> None:
        """Count a line that could not be read."""
        with self._lock:
            self._count_second()
            self._left_out += 1

    def flush(self) -> None:
        """Log what is still held, and how many lines were left out."""
        with self._lock:
            self._write_held()
            self._tell_left_out()

    def take_traceback(self) -> str:
        """Return a traceback that was not written yet, which is left out of the log then; else empty."""
        with self._lock:
            if self._is_open or not self._held:
                return ""
            text = "\n".join(self._held)
            self._held.clear()
            return text

    def _wait(self) -> None:
        if self._held and (self._timer is None or not self._timer.is_alive()):
            self._timer = Timer(_PAUSE_S, self.flush)
            self._timer.daemon = True
            self._timer.start()

    def _write_held(self) -> None:
        if self._held:
            text = "\n".join(self._held)
            last = next((each for each in reversed(self._held) if each == each.lstrip()), self._held[-1])
            self._held.clear()
            self._is_open = False
            self._log(logging.WARNING, one_line(last.strip(), LINE), text)

    def _count_second(self) -> None:
        if (now := int(monotonic())) != self._second:
            self._tell_left_out()
            self._second, self._count = now, 0
        self._count += 1

    def _tell_left_out(self) -> None:
        if self._left_out:
            left_out, self._left_out = self._left_out, 0
            self._log(logging.WARNING, f"{left_out} more lines were left out")

    def _log(self, level: int, text: str, traceback: str = "") -> None:
        if not self._logger.isEnabledFor(level):
            return
        extra = {**self._extra, "run_id": self._run_id} if traceback and self._run_id else self._extra
        record = self._logger.makeRecord(self._logger.name, level, "", 0, text, (), None, extra=extra)
        record.exc_text = traceback or None
        self._write(record)


class PrintedLines(io.TextIOBase):
    """A standard stream whose text goes to the log where an agent's code writes it, with the agent's name.

    That is what runs in the agent's context, and threads in which code of that agent alone is on the stack.

    All other text goes to ``stream``, and that of agents as well if it ``passes``, unless the log is on
    stderr itself; then a terminal that is not read delays nothing (``unread_output``). ``on_line`` gets each
    line of an agent.
    """

    def __init__(
        self,
        stream: TextIO,
        source: str,
        *,
        passes: bool = False,
        on_line: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__()
        self._stream, self._source, self._passes, self._on_line = stream, source, passes, on_line
        self._logs: dict[str, OutputLog] = {}
        self._rests: dict[str, str] = {}
        self._inside = local()

    def write(self, text: str, /) -> int:
        """Log the lines of an agent, or write the text to the stream."""
        if getattr(self._inside, "writes", False):
            return self._stream.write(text)
        agent = current_agent() or agent_on_stack()
        if not agent:
            return self._pass_on(text)
        *lines, rest = (self._rests.pop(agent, "") + text).split("\n")
        if len(rest) > LINE:
            lines, rest = [*lines, rest], ""
        if rest and len(self._rests) < _MAX_AGENTS:
            self._rests[agent] = rest
        self._inside.writes = True
        try:
            for line in lines:
                self._log_of(agent).take(line)
                self._on_line(line)
        finally:
            self._inside.writes = False
        return self._pass_on(text) if self._passes and not is_on_stderr() else len(text)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The stream's encoding."""
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """What the stream does with characters that it cannot encode."""
        return self._stream.errors

    def flush(self) -> None:
        """Flush the stream."""
        self._stream.flush()

    def close(self) -> None:
        """Leave the stream open: it is not ours."""

    def fileno(self) -> int:
        """Return the stream's descriptor."""
        return self._stream.fileno()

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._stream.isatty()

    def writable(self) -> bool:
        """Return True."""
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def end(self) -> None:
        """Log what is not a whole line yet."""
        for agent, rest in self._rests.items():
            self._log_of(agent).take(rest)
        self._rests.clear()
        for log in self._logs.values():
            log.flush()

    def _pass_on(self, text: str) -> int:
        if not self._passes:
            return self._stream.write(text)
        write_text(self._stream, text)
        return len(text)

    def _log_of(self, agent: str) -> OutputLog:
        if (log := self._logs.get(agent)) is None:
            if len(self._logs) >= _MAX_AGENTS:
                self._logs.clear()
            extra = {"agent": agent, "source": self._source}
            log = self._logs[agent] = OutputLog(f"pallas.agents.{agent}", extra, write_record)
        return log


def logged_stream(stream: TextIO, source: str) -> TextIO:
    """Return ``PrintedLines`` of a stream that agents' text does not reach."""
    return cast("TextIO", PrintedLines(stream, source))


@contextmanager
def logging_prints(
    *, passes: bool = False, on_line: Callable[[str], None] = lambda _: None
) -> Iterator[None]:
    """Log in this block what agents' code in this process prints, as ``PrintedLines`` does."""
    before = sys.stdout, sys.stderr
    ours = (
        PrintedLines(sys.stdout, "stdout", passes=passes, on_line=on_line),
        PrintedLines(sys.stderr, "stderr", passes=passes, on_line=on_line),
    )
    sys.stdout, sys.stderr = ours
    try:
        yield
    finally:
        if (sys.stdout, sys.stderr) == ours:
            sys.stdout, sys.stderr = before
        for each in ours:
            each.end()
