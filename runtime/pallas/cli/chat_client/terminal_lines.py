"""Lines that a person types on the terminal while a run goes on."""

import asyncio
import os
import sys
import termios

from .chat_terminal import ChatTerminal


class TerminalLines:
    """Reads lines from the terminal on stdin, which echoes and edits them itself; prompts go to stderr."""

    def __init__(self, terminal: ChatTerminal) -> None:
        self._terminal = terminal

    def discard(self) -> bool:
        """Throw away what was typed so far: it was meant for something else. Whether there was any."""
        import fcntl

        waiting = fcntl.ioctl(0, termios.FIONREAD, b"\0" * 4)
        termios.tcflush(0, termios.TCIFLUSH)
        return any(waiting)

    async def read(self, prompt: str) -> str:
        """The next line, without its end. Raises EOFError on ctrl-d."""
        self._terminal.aside(prompt, "")
        line = await _readable()
        if not line.endswith(b"\n"):
            raise EOFError
        self._terminal.entered()
        return line.decode("utf-8", "replace").rstrip("\n")


async def _readable() -> bytes:
    """A line of the terminal. No thread waits for it: it could not be ended."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def tell() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(0, tell)
    try:
        await ready
        return os.read(0, 65_536)
    finally:
        loop.remove_reader(0)


def terminal_lines(terminal: ChatTerminal) -> TerminalLines | None:
    """The lines of the person at the terminal; None where stdin or stderr is none."""
    try:
        is_tty = sys.stdin is not None and os.isatty(0)
    except OSError:
        is_tty = False
    return TerminalLines(terminal) if is_tty and terminal.err_tty else None
