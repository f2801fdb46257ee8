"""Input lines: from an editor on a terminal, or from stdin otherwise."""

import asyncio
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from platformdirs.unix import Unix
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from pallas.commands import COMMANDS, ChatHost

from .chat_terminal import ChatTerminal

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.key_binding import KeyBindings


QUOTES: Final = '"""'


def goes_on(text: str) -> bool:
    """Return whether the next line belongs to the same message."""
    body = text.lstrip()
    if body.startswith(QUOTES):
        return QUOTES not in body[len(QUOTES) :]
    last = text.rpartition("\n")[2]
    # An even number of them are literal backslashes.
    return (len(last) - len(last.rstrip("\\"))) % 2 == 1


def typed(text: str) -> str:
    """Return the message without the backslashes that only continue a line."""
    body = text.strip()
    if body.startswith(QUOTES):
        inner, _, rest = body[len(QUOTES) :].partition(QUOTES)
        return (inner + rest).strip("\n")
    return text.replace("\\\n", "\n")


MAX_BYTES: Final = 1_000_000


def history_path() -> Path:
    """Return the path of the history file; creates nothing."""
    return Unix("pallas", appauthor=False).user_state_path / "chat" / "history"


def open_history(path: Path | None = None) -> History:
    """Return the prompt's history, stored in the file, or in memory when the file cannot be used."""
    path = path or history_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "rb+") as file:
            os.fchmod(file.fileno(), 0o600)
            if os.fstat(file.fileno()).st_size > MAX_BYTES:
                _shorten(file.fileno())
    except OSError:
        return InMemoryHistory()
    return _Kept(str(path))


class _Kept(FileHistory):
    """A history file that stops being written after an error, while typing goes on."""

    def load_history_strings(self) -> Iterable[str]:
        try:
            return super().load_history_strings()
        except OSError:
            return ()

    def store_string(self, string: str) -> None:
        try:
            super().store_string(string)
        except OSError:
            return


def _shorten(descriptor: int) -> None:
    """Keep the newer half, from the beginning of an entry on."""
    data = os.pread(descriptor, 64 * MAX_BYTES, 0)
    newer = data[-MAX_BYTES // 2 :]
    _, entry, rest = newer.partition(b"\n# ")
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, entry + rest, 0)


_AHEAD: Final = 0.5
"""Seconds after a prompt opens in which input was typed before the prompt was there."""


class Interrupted(Exception):
    """Ctrl-C at the prompt; ``empty`` when nothing was typed yet."""

    def __init__(self, empty: bool) -> None:
        super().__init__()
        self.empty = empty


class LineInput(Protocol):
    """Reads messages as a person types them."""

    async def read(self, prompt: str) -> str:
        """Return the next message, of one or more lines.

        Raises EOFError at the end, Interrupted on ctrl-c.
        """
        ...


class Plain:
    """Reads lines from stdin; the prompt goes to stderr."""

    def __init__(self, terminal: ChatTerminal) -> None:
        self._terminal = terminal
        self._rest = b""
        # If stdin was closed at the start, its descriptor may belong to something else now.
        self._ended = sys.stdin is None

    async def read(self, prompt: str) -> str:
        """Return the next message."""
        text = ""
        while True:
            self._terminal.aside(prompt if not text else "... ", "")
            line = await self._line()
            self._terminal.entered()
            text += line
            if not goes_on(text):
                return text
            text += "\n"

    async def _line(self) -> str:
        while b"\n" not in self._rest and not self._ended:
            data = await _readable()
            self._ended = not data
            self._rest += data
        if not self._rest:
            raise EOFError
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace")


async def _readable() -> bytes:
    """Return the next bytes of stdin. No thread waits for them: it could not be ended."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def tell() -> None:
        if not ready.done():
            ready.set_result(None)

    try:
        loop.add_reader(0, tell)
    except PermissionError:  # A regular file never blocks.
        return os.read(0, 65_536)
    try:
        await ready
        return os.read(0, 65_536)
    finally:
        loop.remove_reader(0)


class Edited:
    """Reads a line from an editor, with history and completion of commands."""

    def __init__(self, terminal: ChatTerminal, host: ChatHost, base: Path) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.output.defaults import create_output
        from prompt_toolkit.shortcuts import CompleteStyle

        self._began = 0.0
        self._session: PromptSession[str] = PromptSession(
            history=open_history(),
            completer=_completer(host, base),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            multiline=True,
            prompt_continuation=lambda width, number, wrapped: "... ".rjust(width)[:width],
            key_bindings=_keys(lambda: monotonic() - self._began < _AHEAD),
            enable_history_search=True,
            output=create_output(stdout=terminal.editor_output()),
        )

    async def read(self, prompt: str) -> str:
        """Return the next message."""
        self._began = monotonic()
        try:
            text: str = await self._session.prompt_async(prompt, handle_sigint=False)
        except KeyboardInterrupt:
            raise Interrupted(not self._session.default_buffer.text.strip()) from None
        return text


def _keys(typed_ahead: Callable[[], bool]) -> "KeyBindings":
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys = KeyBindings()

    @keys.add("enter")
    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None
        elif buffer.document.is_cursor_at_the_end and goes_on(buffer.text):
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def line_break(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-j")
    def _(event: KeyPressEvent) -> None:
        # Without a prompt, the terminal translates an enter key to this.
        (enter if typed_ahead() else line_break)(event)

    return keys


def _completer(host: ChatHost, base: Path) -> "Completer":
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
    from prompt_toolkit.document import Document

    class Commands(Completer):
        """Completes commands and their arguments, and files where a command takes one."""

        def __init__(self) -> None:
            self._paths = PathCompleter(expanduser=True, get_paths=lambda: [str(base)])

        def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
            line = document.text_before_cursor
            name, space, rest = line.partition(" ")
            if space and name.lower() in ("/image", "/export"):
                path = rest.rpartition(" ")[2]
                yield from self._paths.get_completions(Document(path, len(path)), event)
            found = COMMANDS.complete(host, line)
            for each in found.candidates:
                yield Completion(each, start_position=found.start - len(line))

    return Commands()
