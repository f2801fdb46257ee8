"""Logs the stderr of stdio servers, which fast-agent sends to /dev/null.

Off by default: servers may write their arguments, which hold secrets that we cannot mask.
"""

import asyncio
import io
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, Final

from fast_agent.mcp import client_gateway

from pallas.executors.ipc.child_process import LINE, LINES_A_SECOND
from pallas.mcp_client.library_hooks import Hook
from pallas.safe_text import sanitize

ASKED: Final = "PALLAS_SERVER_STDERR"
"""The environment variable that turns it on with ``1``."""
_AT_ONCE: Final = 64 * 1024


class ServerErrors(io.TextIOBase):
    """The writing end of a pipe that is read in this loop, one record for each line.

    Lines are cut at 8 KiB; beyond 200 in a second they are counted and left out. The pipe is read until the
    process and its starter have closed this end.
    """

    def __init__(self, server: str) -> None:
        super().__init__()
        reading, self._writing = os.pipe()
        os.set_blocking(reading, False)
        _Reader(io.FileIO(reading, "rb"), server).begin()

    def fileno(self) -> int:
        """Return the descriptor that the process gets as its stderr."""
        return self._writing

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str, /) -> int:
        """Write our own notes about the process."""
        with suppress(OSError):
            os.write(self._writing, text.encode(errors="replace"))
        return len(text)

    def close(self) -> None:
        """Close this end; garbage collection does so as well."""
        if not self.closed:
            with suppress(OSError):
                os.close(self._writing)
        super().close()


class _Reader:
    def __init__(self, file: io.FileIO, server: str) -> None:
        self._file = file
        self._log = logging.getLogger(f"pallas.servers.{server}")
        self._rest = b""
        self._second, self._told, self._left_out = 0, 0, 0

    def begin(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._file.fileno(), self._read)

    def _read(self) -> None:
        try:
            data = self._file.read(_AT_ONCE)
        except OSError:
            data = b""
        if data is None:  # nothing to read after all
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE or (self._rest and not data):
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._tell(line)
        if not data:
            self._loop.remove_reader(self._file.fileno())
            self._file.close()

    def _tell(self, raw: bytes) -> None:
        line = sanitize(raw.decode(errors="replace").rstrip(), LINE)
        if not line.strip():
            return
        if (second := int(monotonic())) != self._second:
            if self._left_out:
                self._log.warning("%d more lines were left out", self._left_out, extra={"source": "stderr"})
            self._second, self._told, self._left_out = second, 0, 0
        self._told += 1
        if self._told > LINES_A_SECOND:
            self._left_out += 1
            return
        self._log.info("%s", line, extra={"source": "stderr"})


def _to_log(original: Callable[..., Any]) -> Callable[..., Any]:
    def get_stderr_handler(server_name: str, *, on_line: Any = None) -> Any:
        if os.environ.get(ASKED) != "1":
            return original(server_name, on_line=on_line)
        # ``on_line`` would put whole lines into the failure text for a model.
        return ServerErrors(server_name)

    return get_stderr_handler


HOOK: Final = Hook("stdio.stderr", client_gateway, "get_stderr_handler", ("server_name", "on_line"), _to_log)
