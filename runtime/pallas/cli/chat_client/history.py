"""What was typed at the prompt before, in a file that only this user can read."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from platformdirs.unix import Unix
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

MAX_BYTES: Final = 1_000_000


def history_path() -> Path:
    """Where the file is; nothing is made."""
    return Unix("pallas", appauthor=False).user_state_path / "chat" / "history"


def open_history(path: Path | None = None) -> History:
    """The history of the prompt, kept in the file; in memory only where that cannot be."""
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
    """A file that stops being written where that fails: what is typed goes on."""

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
    """Leave the newer half, from the beginning of an entry on."""
    data = os.pread(descriptor, 64 * MAX_BYTES, 0)
    newer = data[-MAX_BYTES // 2 :]
    _, entry, rest = newer.partition(b"\n# ")
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, entry + rest, 0)
