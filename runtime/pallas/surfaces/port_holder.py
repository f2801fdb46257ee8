"""Finds the process that holds a port, as far as this user may see it."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from pallas.model.redaction import redact_text
from pallas.safe_text import one_line

_LISTENS: Final = "0A"
_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_MAX_COMMAND: Final = 100
# Values of options that hold a credential, whatever its shape.
_SECRET: Final = re.compile(r"(--?[\w-]*(?:token|password|secret|key)[ =])\S+", re.IGNORECASE)


def holder_of(port: int) -> str:
    """Return the program that listens on ``port``: its process, command and folder. Empty if unknown.

    On Linux only; root is needed for other users' programs.
    """
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    if not sockets:
        return ""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if any(os.readlink(fd) in sockets for fd in (process / "fd").iterdir()):  # noqa: PTH115 - text
                return process_line(int(process.name))
    return ""


def process_line(pid: int) -> str:
    """Describe a process in a few words; only its number if no more is visible."""
    command = folder = ""
    with suppress(OSError):
        raw = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        command = one_line(redact_text(_SECRET.sub(r"\1[redacted]", raw)), _MAX_COMMAND)
    with suppress(OSError):
        folder = one_line(str(Path(f"/proc/{pid}/cwd").readlink()), _MAX_COMMAND)
    return f"process {pid}" + (f", {command}" if command else "") + (f", in {folder}" if folder else "")


def _listening(port: int) -> Iterator[str]:
    for table in _TABLES:
        with suppress(OSError):
            for line in table.read_text("ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]
