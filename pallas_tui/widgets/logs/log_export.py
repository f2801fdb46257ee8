"""Export of the listed records to a file."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from .log_index import OpenLogFile
from .log_record import FULL_LIMIT, as_text
from .log_source import LogSource

CHUNK: Final = 2_000
"""Lines that are written at a time."""

Span = tuple[OpenLogFile, int, int]


class ExportError(Exception):
    """The reason why nothing was written, in one line."""


class Export:
    """Writes the listed records of a source to ``target``: as text if its name ends in ``.txt``.

    An existing file is replaced only with ``overwrite``, and then atomically when all is written.
    """

    def __init__(self, source: LogSource, target: Path, *, overwrite: bool = False) -> None:
        self._source = source
        self._rows = source.rows
        self._target = target
        self._overwrite = overwrite
        self.total = len(self._rows)
        self.written = 0
        self.gone = 0
        """Records that could no longer be read."""

    async def run(self, run_in_thread: Callable[..., object], progress: Callable[[], None]) -> None:
        """Write all of it, calling ``progress`` after each part; raises ExportError. Can be cancelled.

        ``run_in_thread`` is ``asyncio.to_thread``.
        """
        draft = self._target.with_name(f".{self._target.name}.{os.getpid()}")
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ExportError(f"{draft.parent}: cannot be written to ({error.strerror})") from None
        try:
            for first in range(0, self.total, CHUNK):
                spans = self._spans(range(first, min(first + CHUNK, self.total)))
                await run_in_thread(self._write, descriptor, spans)  # type: ignore[misc]
                progress()
            self._finish(draft)
        except OSError as error:
            raise ExportError(f"{self._target}: cannot be written ({error.strerror})") from None
        finally:
            os.close(descriptor)
            with suppress(OSError):
                draft.unlink(missing_ok=True)

    def _spans(self, rows: range) -> list[Span]:
        """Return where the lines are; adjacent ones are joined, unless they become text."""
        spans: list[Span] = []
        for row in rows:
            number = self._rows.number(row)
            if (block := self._source.index.block(number)) is None:
                self.gone += 1
                continue
            start, end = block.bounds(number)
            spans.append((block.file, start, end))
        return spans

    def _write(self, descriptor: int, spans: list[Span]) -> None:
        parts: list[bytes] = []
        readable = self._target.suffix == ".txt"
        for file, start, end in spans:
            line = file.read(start, min(end, start + FULL_LIMIT) if readable else end).rstrip(b"\r\n")
            if not line:
                self.gone += 1
                continue
            parts.append(as_text(line, end - start).encode("utf-8", "replace") if readable else line)
            self.written += 1
        data = memoryview(b"".join(part + b"\n" for part in parts))
        while data:
            data = data[os.write(descriptor, data) :]

    def _finish(self, draft: Path) -> None:
        if self._overwrite:
            draft.replace(self._target)
            return
        try:
            # Unlike a rename this never replaces a file that another program put there.
            os.link(draft, self._target)
        except FileExistsError:
            raise ExportError(f"{self._target}: is there already") from None
        except OSError:  # a file system without links
            if self._target.exists():
                raise ExportError(f"{self._target}: is there already") from None
            draft.replace(self._target)


def refusal(source: LogSource, text: str) -> tuple[Path, str, bool]:
    """Return the file that the user named, why it cannot be written, and whether it exists."""
    if not text.strip():
        return Path(), "Which file? Give its name.", False
    target = Path(text.strip()).expanduser().absolute()
    try:
        if target.is_dir():
            return target, f"{target}: is a folder; add the name of a file", False
        if not target.parent.is_dir():
            return target, f"{target.parent}: there is no such folder", False
        exists = target.exists()
        if exists and any(target.samefile(path) for path in source.paths if path.exists()):
            return target, f"{target}: is the log itself; choose another file", True
    except (OSError, ValueError) as error:
        return target, f"cannot be used as a file: {error}", False
    return target, "", exists
