"""Copying that works over ssh and in tmux, not only where the terminal takes OSC 52."""

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from pallas.text import sanitize

TIMEOUT: Final = 1.0
LIMIT: Final = 1_000_000
"""Characters that are copied at most."""


class Terminal(Protocol):
    """The part of a Textual application that reaches the terminal's own clipboard (OSC 52)."""

    def copy_to_clipboard(self, text: str) -> None:
        """Write the text to the terminal as a clipboard request."""
        ...


async def copy(terminal: Terminal, text: str, environ: Mapping[str, str] | None = None) -> str:
    """Put ``text`` on the clipboard and say so in one line, ready to show.

    The terminal is asked first; it gives no answer, so the desktop's own program is run as well where
    there is one. Takes at most 1 s; never raises for a program that fails.
    """
    text = sanitize(text, LIMIT)
    if not text:
        return "Nothing to copy."
    terminal.copy_to_clipboard(text)
    program = helper(os.environ if environ is None else environ)
    if program is not None:
        await _feed(program, text.encode())
    lines = text.count("\n") + 1
    amount = f"{lines} lines" if lines > 1 else f"{len(text)} characters" if len(text) > 1 else "1 character"
    return f"Copied {amount}."


def helper(environ: Mapping[str, str], platform: str = sys.platform) -> Sequence[str] | None:
    """The command that takes clipboard text on its standard input here, None where there is none."""
    candidates: list[tuple[bool, Sequence[str]]] = [
        (platform == "darwin", ("pbcopy",)),
        ("WAYLAND_DISPLAY" in environ, ("wl-copy",)),
        ("DISPLAY" in environ, ("xclip", "-selection", "clipboard")),
        ("DISPLAY" in environ, ("xsel", "--clipboard", "--input")),
        # tmux passes OSC 52 on only where it is told to; its own buffer always works.
        ("TMUX" in environ, ("tmux", "load-buffer", "-w", "-")),
    ]
    for applies, command in candidates:
        if applies and (program := shutil.which(command[0], path=environ.get("PATH"))):
            return (program, *command[1:])
    return None


async def _feed(command: Sequence[str], data: bytes) -> None:
    quiet: dict[str, Any] = {"stdout": asyncio.subprocess.DEVNULL, "stderr": asyncio.subprocess.DEVNULL}
    process: asyncio.subprocess.Process | None = None
    try:
        async with asyncio.timeout(TIMEOUT):
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, start_new_session=True, **quiet
            )
            await process.communicate(data)
    except (OSError, TimeoutError):
        pass
    finally:
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
