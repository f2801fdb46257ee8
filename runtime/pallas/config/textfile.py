"""A text file read with care: regular, bounded, UTF-8."""

import os
import stat
from pathlib import Path
from typing import Final

from .models import Where
from .notes import Notes

MAX_BYTES: Final = 1 << 20


def text_problem(path: Path) -> str:
    """Return why the file is no text of ours: ``is not text: ...``, or ``is larger than ...``.

    Empty for text, and for what cannot be read.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
            size = os.fstat(stream.fileno()).st_size
    except OSError:
        return ""
    if b"\0" in data:
        return f"is not text: it has a null byte on line {data.count(b'\n', 0, data.index(b'\0')) + 1}"
    if len(data) > MAX_BYTES:
        return f"has {size / MAX_BYTES:.1f} MiB, and may have 1 MiB"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return f"is not text: byte 0x{data[error.start]:02x} on line {line} is not UTF-8"
    return ""


def read_text(path: Path, file: str, notes: Notes) -> str | None:
    """The whole of a regular UTF-8 file of at most 1 MiB; None after noting why not."""
    here = Where(file)
    try:
        # A pipe or a device would make the read wait for ever.
        if not stat.S_ISREG(path.stat().st_mode):
            notes.error(here, "", "is not a file", "put a text file there")
            return None
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        hint = "check the spelling of its path" if missing else "check the file's permissions"
        notes.error(here, "", f"cannot be read: {error.strerror or error}", hint)
        return None
    if len(data) > MAX_BYTES:
        notes.error(here, "", "is larger than 1 MiB", "allowed: at most 1 MiB of configuration")
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = f"is not UTF-8: byte 0x{data[error.start]:02x} on line {line}"
        notes.error(Where(file, line), "", what, "save the file as UTF-8")
        return None
