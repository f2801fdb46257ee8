"""Copying that works over ssh and in tmux, not only where the terminal takes OSC 52."""

import base64
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from pallas.processes.child_program import outliving, run
from pallas.safe_text import without_controls

TIMEOUT: Final = 1.0
"""Seconds that a program of the desktop gets."""
LIMIT: Final = 1_000_000
"""Characters that are copied at most."""
OSC52_LIMIT: Final = 74_994
"""Bytes that go through the terminal: xterm and others drop a request of more than 100,000 characters."""


class ClipboardTerminal(Protocol):
    """The part of a Textual application that reaches the terminal's own clipboard (OSC 52)."""

    def copy_to_clipboard(self, text: str) -> None:
        """Write the text to the terminal as a clipboard request."""
        ...


async def copy(terminal: ClipboardTerminal, text: str, environ: Mapping[str, str] | None = None) -> str:
    """Put ``text`` on the clipboard and say so in one line, ready to show: how much, and which way it went.

    The terminal is asked first; it gives no answer, so the desktop's own program is run as well where
    there is one. Takes at most 1 s; never raises for a program that fails.
    """
    environ = os.environ if environ is None else environ
    whole = len(text)
    text = without_controls(text, LIMIT)
    if not text:
        return "Nothing to copy."
    size = len(text.encode())
    if asked := size <= OSC52_LIMIT:
        _ask_terminal(terminal, text, environ)
    else:
        _remember(terminal, text)
    # In a browser the programs here would reach the clipboard of the wrong machine.
    command, problem = None if getattr(terminal, "is_web", False) else helper(environ), ""
    if command is not None:
        # It holds the text for others to paste, also after the workbench has ended.
        problem = (await run(command, text.encode(), timeout=TIMEOUT, env=outliving())).problem
    lines = text.count("\n") + 1
    amount = f"{lines} lines" if lines > 1 else f"{len(text)} characters" if len(text) > 1 else "1 character"
    if whole > LIMIT:
        amount += f" (the first {LIMIT:,} of {whole:,} characters)"
    if command is not None and not problem:
        return f"Copied {amount} with {_name(command)}."
    tail = f"; {problem}" if problem else ""
    if not asked:
        what = tail.removeprefix("; ") or missing(environ)
        return (
            f"{amount[0].upper()}{amount[1:]} not copied: {size / 1000:.0f} kB is more than a terminal takes "
            f"({OSC52_LIMIT // 1000} kB) and {what}. ctrl+v in the prompt pastes it here."
        )
    return f"Copied {amount} through the terminal{tail}."


def helper(environ: Mapping[str, str], platform: str = sys.platform) -> Sequence[str] | None:
    """The command that takes clipboard text on its standard input here, None where there is none.

    Over ssh a forwarded display is the person's own; without one only the terminal reaches their clipboard.
    """
    remote = is_remote(environ)
    candidates: list[tuple[bool, Sequence[str]]] = [
        (platform == "darwin" and not remote, ("pbcopy",)),
        ("WAYLAND_DISPLAY" in environ, ("wl-copy",)),
        ("DISPLAY" in environ, ("xclip", "-selection", "clipboard")),
        ("DISPLAY" in environ, ("xsel", "--clipboard", "--input")),
        (is_wsl(environ) and not remote, ("clip.exe",)),
        # tmux passes OSC 52 on only if it is configured to; its own buffer always works.
        ("TMUX" in environ, ("tmux", "load-buffer", "-w", "-")),
    ]
    for applies, command in candidates:
        if applies and (program := shutil.which(command[0], path=environ.get("PATH"))):
            return (program, *command[1:])
    return None


def is_remote(environ: Mapping[str, str]) -> bool:
    """Whether the person sits at another machine."""
    return any(environ.get(name) for name in ("SSH_CONNECTION", "SSH_TTY", "SSH_CLIENT"))


def is_wsl(environ: Mapping[str, str]) -> bool:
    """Whether this is Linux within Windows."""
    return any(environ.get(name) for name in ("WSL_DISTRO_NAME", "WSL_INTEROP"))


def missing(environ: Mapping[str, str], platform: str = sys.platform) -> str:
    """Why there is no program that reaches the clipboard here, and what would fix that."""
    if "WAYLAND_DISPLAY" in environ:
        return "wl-clipboard is not installed"
    if "DISPLAY" in environ:
        return "neither xclip nor xsel is installed"
    if is_remote(environ):
        return "over ssh without a forwarded display no program reaches your clipboard"
    if platform == "darwin":
        return "pbcopy is not installed"
    return "there is no desktop here (no DISPLAY, no WAYLAND_DISPLAY)"


def _ask_terminal(terminal: ClipboardTerminal, text: str, environ: Mapping[str, str]) -> None:
    # The workbench's own ``copy_to_clipboard`` comes here: it is for Textual, whose copies say nothing.
    getattr(terminal, "write_clipboard", terminal.copy_to_clipboard)(text)
    # The plain request reaches a tmux that takes it (set-clipboard). One that does not still hands on what is
    # wrapped for the terminal around it (allow-passthrough); where both do, the same text is set twice.
    driver: Any = getattr(terminal, "_driver", None)
    wrapped = wrapped_request(text, environ)
    if driver is not None and wrapped and not getattr(terminal, "is_web", False):
        driver.write(wrapped)


def wrapped_request(text: str, environ: Mapping[str, str]) -> str:
    """The clipboard request as tmux or screen hand it on unread; empty outside of both."""
    request = f"\x1b]52;c;{base64.b64encode(text.encode()).decode('ascii')}\x07"
    if "TMUX" in environ:
        return "\x1bPtmux;" + request.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    if "STY" in environ:
        # GNU screen takes at most 768 bytes in one string.
        return "".join(f"\x1bP{request[at : at + 500]}\x1b\\" for at in range(0, len(request), 500))
    return ""


def _remember(terminal: ClipboardTerminal, text: str) -> None:
    """Store the text, so that pasting within the workbench works with any terminal."""
    remember = getattr(terminal, "remember_copied", None)
    if remember is not None:
        remember(text)


def _name(command: Sequence[str]) -> str:
    name = Path(command[0]).name
    return "tmux" if name == "tmux" else name.removesuffix(".exe")
