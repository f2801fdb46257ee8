"""Output of `pallas chat`: the answer's text on stdout, everything about it on stderr."""

import os
import re
import select
import sys
from collections.abc import Mapping
from contextlib import suppress
from io import BufferedWriter, RawIOBase, TextIOWrapper
from textwrap import wrap
from time import monotonic
from typing import Any, Final, TextIO

DIM: Final = "\x1b[2m"
DIM_ITALIC: Final = "\x1b[2;3m"
BOLD: Final = "\x1b[1m"
RED: Final = "\x1b[31m"
_PIECE: Final = 256
"""Bytes that a terminal or pipe which can be written to takes at once."""
_WAIT_S: Final = 0.2
_LEAVING_S: Final = 0.5
"""Seconds for which output still waits for its reader once the process is to end."""
_RESET: Final = "\x1b[0m"
_COLUMN: Final = re.compile(r"\s*\S[^\n]{0,60}?\s{2,}(?=\S)|\s+")


class ChatTerminal:
    """Writes at once. Callers pass sanitised text; only this class adds escape codes.

    It writes to copies of the two descriptors, so that other output of this process can be redirected. Raises
    BrokenPipeError when the reader of the answer is gone; output on stderr may be lost.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ, *, out: int = 1, err: int = 2) -> None:
        self.out, self.err = _copy(out), _copy(err)
        plain = bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"
        self.out_tty, self.err_tty = _is_tty(self.out), _is_tty(self.err)
        self.styles = self.err_tty and not plain
        self.moves = self.err_tty and environ.get("TERM", "dumb") != "dumb"
        self._encoding = (sys.__stdout__.encoding if sys.__stdout__ is not None else None) or "utf-8"
        self._answer = ""
        self._screen = ""
        """The open lines as far as they are written: the answer's, and the one on the screen of stderr."""
        self._note_open = False
        self._begun = False
        self._broken = False
        """Whether other text was written into an open line of the answer, when both share one screen."""
        self.status: TerminalStatus | None = TerminalStatus(self) if self.moves else None
        self._leaves_at: float | None = None

    def leave(self) -> None:
        """Lose what is not read within half a second, as on a paused terminal. For signal handlers."""
        self._leaves_at = monotonic() + _LEAVING_S

    def stay(self) -> None:
        """Wait for the reader again."""
        self._leaves_at = None

    def editor_output(self) -> TextIO:
        """Return a stream to stdout for an editor; it waits for the reader as this class does."""
        return TextIOWrapper(BufferedWriter(_EditorOutput(self)), "utf-8", errors="replace")

    @property
    def together(self) -> bool:
        """Whether both streams are shown on one screen, as far as can be known."""
        return self.out_tty and self.err_tty

    @property
    def column(self) -> int:
        """The cells used in the open line on the screen of stderr."""
        from prompt_toolkit.utils import get_cwidth

        width = max(1, self.width)
        column = 0
        for character in self._screen:
            cells = 8 - column % 8 if character == "\t" else max(0, get_cwidth(character))
            column = cells if column + cells > width else column + cells
        return column

    @property
    def width(self) -> int:
        """The columns of the screen; 80 when unknown."""
        for descriptor in (self.err, self.out):
            try:
                return os.get_terminal_size(descriptor).columns or 80
            except OSError:
                continue
        return 80

    def text(self, text: str) -> None:
        """Write more of the answer."""
        if not text:
            return
        if self._broken and not (text := text.lstrip("\n")):
            return  # The screen already shows that line as ended.
        self._broken, self._begun = False, True
        self._hide()
        self._close_note()
        self._write(self.out, text)
        self._answer = _last_line(self._answer + text)
        if self.together:
            self._screen = _last_line(self._screen + text)

    def end_text(self) -> None:
        """End the answer, or a part of it: its last line ends."""
        if self._broken:
            self._broken, self._answer = False, ""
        elif self._answer:
            self.text("\n")

    def note(self, text: str, style: str = DIM) -> None:
        """Write whole lines about the answer."""
        self._hide()
        # On one screen, an open line of the answer ends in what is shown, not in what is written to stdout.
        self._break()
        self.write_err("\n".join(self._styled(line, style) for line in text.split("\n")) + "\n")
        self._screen, self._note_open = "", False

    def table(self, text: str, style: str = "") -> None:
        """Write whole lines, wrapped at the width of the screen; a pipe gets them as they are."""
        self.note(folded(text, self.width) if self.err_tty else text, style)

    def aside(self, text: str, style: str = DIM_ITALIC) -> None:
        """Write more side text, such as thinking, as it arrives."""
        if not text:
            return
        self._hide()
        if not self._note_open:
            self._break()
        self.write_err("\n".join(self._styled(part, style) for part in text.split("\n")))
        self._screen = _last_line(self._screen + text)
        self._note_open = bool(self._screen)

    def entered(self) -> None:
        """Note that the user pressed enter behind the open line, which ends it."""
        self._screen, self._note_open = "", False

    def show(self, status: str) -> None:
        """Show a line that stays until anything else is written; only on a screen.

        Once the answer has begun to go into a pipe, no status is shown: its reader may write to the same
        screen.
        """
        if self.status is not None and (self.together or not self._begun):
            self.status.show(status)

    def settle(self) -> None:
        """Close the open line and the status."""
        self._hide()
        self._close_note()

    def _break(self) -> None:
        if self._screen:
            self._broken = self._broken or not self._note_open
            self.write_err("\n")
            self._screen = ""

    def _close_note(self) -> None:
        if self._note_open:
            self._note_open, self._screen = False, ""
            self.write_err("\n")

    def _hide(self) -> None:
        if self.status is not None:
            self.status.hide()

    def _styled(self, text: str, style: str) -> str:
        return f"{style}{text}{_RESET}" if self.styles and text and style else text

    def write_err(self, text: str) -> None:
        """Write text to stderr as it is; a reader that is gone ends only the status."""
        try:
            self._write(self.err, text)
        except OSError:
            self.status = None  # The reader is gone; the answer goes on.

    def _write(self, descriptor: int, text: str) -> None:
        self.write_bytes(descriptor, text.encode(self._encoding, "replace"))

    def write_bytes(self, descriptor: int, data: bytes) -> None:
        """Write it, as soon as it is read; what is not read is lost after ``leave``."""
        while data and self._has_room(descriptor):
            with suppress(BlockingIOError):  # Another process that shares it made it non-blocking.
                data = data[os.write(descriptor, data[:_PIECE]) :]

    def _has_room(self, descriptor: int) -> bool:
        while True:
            leaves_at = self._leaves_at
            left = _WAIT_S if leaves_at is None else min(_WAIT_S, max(0.0, leaves_at - monotonic()))
            if select.select([], [descriptor], [], left)[1]:
                return True
            if leaves_at is not None and monotonic() >= leaves_at:
                return False


class _EditorOutput(RawIOBase):
    def __init__(self, terminal: ChatTerminal) -> None:
        self._terminal = terminal

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._terminal.out

    def isatty(self) -> bool:
        return self._terminal.out_tty

    def write(self, data: Any) -> int:
        self._terminal.write_bytes(self._terminal.out, bytes(data))
        return len(data)


class TerminalStatus:
    """One line below the text, drawn without moving the text."""

    def __init__(self, terminal: ChatTerminal) -> None:
        self._terminal = terminal
        self._shown = False

    def show(self, text: str) -> None:
        """Show it in place of the previous one."""
        terminal = self._terminal
        column = terminal.column
        width = terminal.width
        if column >= width:  # The cursor is between two lines: its place is unknown.
            return
        line = text[: max(0, width - 1)]
        line = f"{DIM}{line}{_RESET}" if terminal.styles else line
        if column:
            # One line down, which scrolls at the bottom, and back up to where the text continues.
            self._put(f"\n\r\x1b[K{line}\x1b[1A\x1b[{column + 1}G")
        else:
            self._put(f"\r\x1b[K{line}\r")
        self._shown = True

    def hide(self) -> None:
        """Remove it; the cursor is where the text continues."""
        if self._shown:
            self._shown = False
            self._put("\x1b[J")

    def _put(self, text: str) -> None:
        self._terminal.write_err(text)


def folded(text: str, width: int) -> str:
    """Wrap ``text`` to ``width`` between words; continuation lines begin below their column."""
    return "\n".join(_fold(line, max(20, width)) for line in text.split("\n"))


def _fold(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    found = _COLUMN.match(line)
    indent = found.end() if found is not None and found.end() <= width // 2 else 0
    # The leading columns stay as they are, with all their spaces.
    rest = wrap(line[indent:], width - indent, break_long_words=False, break_on_hyphens=False)
    return line[:indent] + f"\n{' ' * indent}".join(rest)


def _last_line(text: str) -> str:
    return text.rpartition("\n")[2][-4_000:]


def _is_tty(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor)
    except OSError:
        return False


def _copy(descriptor: int) -> int:
    try:
        return os.dup(descriptor)
    except OSError:  # It is closed: output is discarded.
        return os.open(os.devnull, os.O_WRONLY)
