"""A program on a real terminal: when it paints, and how long a key takes to show."""

import fcntl
import os
import pty
import select
import signal
import struct
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from time import perf_counter

from .programs import DEADLINE

# Letters that nothing on the screen holds, so that one in the output is the key that was pressed.
LETTERS = "".join(
    chr(code)
    for first, last in ((0x430, 0x44F), (0x561, 0x586), (0x10D0, 0x10F0), (0x3B1, 0x3C9), (0x531, 0x556))
    for code in range(first, last + 1)
)


class Screen:
    """A program's terminal. Everything it writes is read and kept until it was looked for."""

    def __init__(self, pid: int, terminal: int, began: float) -> None:
        self.pid = pid
        self.began = began
        self.written = 0
        """Bytes that were read from it so far."""
        self._terminal = terminal
        self._seen = bytearray()
        self._keys = iter(LETTERS)

    def until(self, *texts: str, timeout: float = DEADLINE) -> float:
        """Until one of ``texts`` was written since the last time; returns how many seconds that took."""
        wanted = [text.encode() for text in texts]
        began = perf_counter()
        while perf_counter() - began < timeout:
            if any(text in self._seen for text in wanted):
                took = perf_counter() - began
                self._seen.clear()
                return took
            self.read(0.2)
        raise SystemExit(f"{texts} not painted within {timeout:g} s: {bytes(self._seen[-2000:])!r}")

    def read(self, timeout: float) -> bool:
        """Take what was written, waiting ``timeout`` seconds at most; False once the program has ended."""
        if select.select([self._terminal], [], [], timeout)[0]:
            try:
                data = os.read(self._terminal, 65536)
            except OSError:
                return False
            if not data:
                return False
            self.written += len(data)
            self._seen += data
            del self._seen[:-1_000_000]
        return True

    def drain(self, seconds: float) -> None:
        """Read and forget for that long."""
        until = perf_counter() + seconds
        while (left := until - perf_counter()) > 0:
            self.read(min(left, 0.05))
        self._seen.clear()

    def take(self, timeout: float) -> int:
        """Read once, and forget it; returns how many bytes that were."""
        self.read(timeout)
        count = len(self._seen)
        self._seen.clear()
        return count

    def press(self, keys: str) -> None:
        """Press keys; what was written before is forgotten."""
        self._seen.clear()
        os.write(self._terminal, keys.encode())

    def type_letter(self) -> float:
        """Type a letter never typed before where the focus is; returns the seconds until it shows."""
        letter = next(self._keys)
        self.press(letter)
        return self.until(letter, timeout=30)

    def end(self, number: int = signal.SIGTERM) -> float:
        """Send a signal, and read until the program is gone; returns how many seconds that took."""
        began = perf_counter()
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)
        return self.gone(began)

    def gone(self, began: float) -> float:
        """Read until the program has ended, 15 s at most; what does not end is killed."""
        while perf_counter() - began < 15:
            done, _ = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.pid = 0
                return perf_counter() - began
            self.read(0.02)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.pid = 0
        return perf_counter() - began

    def close(self) -> None:
        """End the program, if it runs, and the terminal."""
        if self.pid:
            self.end()
        os.close(self._terminal)


@contextmanager
def screen(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    columns: int = 120,
    rows: int = 40,
    cwd: str | os.PathLike[str] | None = None,
) -> Iterator[Screen]:
    """``command`` on a terminal of that size; it is ended with the block."""
    began = perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        if cwd is not None:
            os.chdir(cwd)
        os.execvpe(command[0], list(command), {**environment, "TERM": "xterm-256color"})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    shown = Screen(pid, terminal, began)
    try:
        yield shown
    finally:
        shown.close()
