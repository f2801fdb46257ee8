"""The log of a remote fleet as a local file for the log viewer: its end first, then the rest."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pallas.model import Fault, FaultType

if TYPE_CHECKING:
    from .control_client import ControlClient

LIMIT: Final = 64 * 1024 * 1024
"""Bytes of the local copy: half in the file, half in the one before it, which is ``path.1``."""
TAIL: Final = 512 * 1024
"""Bytes that are fetched before anything else."""
CHUNK: Final = 1024 * 1024
POLL: Final = 0.5
"""Seconds between two looks at a log that does not grow."""
_PAUSE: Final = 2.0


@dataclass(slots=True)
class _Older:
    """A stretch of one file of the log that is still to be fetched, from its end backwards."""

    part: str
    end: int


class LogMirror:
    """Fills the file at ``path`` over the current connection, until cancelled.

    Rotation there is followed without a gap; a log that was truncated is read on from its beginning. The
    part before the tail comes in the background and becomes ``path.1``, so that a reader here keeps the
    place. Beyond half of ``limit`` the file becomes ``path.1`` and a new one is begun.
    """

    def __init__(
        self, path: Path, client: "Callable[[], ControlClient | None]", *, limit: int = LIMIT
    ) -> None:
        self._path = path
        self._client = client
        self._half = limit // 2
        self._at: tuple[str, int] | None = None
        self._older: list[_Older] = []
        self._fetched: list[bytes] = []
        self._size = 0

    async def run(self) -> None:
        """Mirror until cancelled; without a connection wait for the next one."""
        from .control_client import NoControlApi, ResourceGone, TokenRejected

        while True:
            client = self._client()
            try:
                worked = client is not None and await self._step(client)
            except ResourceGone:  # rotated away between two looks
                self._at, worked = None, False
            except (Fault, TokenRejected, NoControlApi):
                await asyncio.sleep(_PAUSE)
                continue
            if not worked:
                await asyncio.sleep(POLL)

    async def _step(self, client: "ControlClient") -> bool:
        """Fetch something; whether there may be more at once."""
        if self._at is None:
            return await self._begin(client)
        if await self._forward(client):
            return True
        return await self._backward(client)

    async def _begin(self, client: "ControlClient") -> bool:
        """Show the end of the log as it is now."""
        parts = _parts(await client.get("/log"))
        if not parts:
            return False
        if self._size:  # the lines here stay, and newer ones follow
            self._at, self._older, self._fetched = (parts[-1][0], 0), [], []
            return True
        (newest, size), *before = parts
        start = max(0, size - TAIL)
        data, end, _ = await _read(client, newest, start, TAIL)
        cut = data.find(b"\n") + 1 if start else 0
        await asyncio.to_thread(self._write, data[cut:])
        self._at = (newest, end)
        self._fetched = []
        # In the order in which they are wanted: the part just before the tail comes first.
        self._older = [_Older(newest, start + cut), *(_Older(part, length) for part, length in before)]
        self._older = [older for older in self._older if older.end > 0]
        return True

    async def _forward(self, client: "ControlClient") -> bool:
        """Append the lines written since the last call."""
        assert self._at is not None
        part, offset = self._at
        data, end, newer = await _read(client, part, offset, CHUNK)
        if end < offset:  # truncated there: it starts from the beginning
            self._at = (part, 0)
            return True
        if data:
            await asyncio.to_thread(self._append, data)
            self._at = (part, end)
        elif newer:
            self._at = (newer, 0)
        return bool(data or newer)

    async def _backward(self, client: "ControlClient") -> bool:
        """Fetch a part from before the tail; when all that fits is here, it becomes the file before."""
        from .control_client import ResourceGone

        if not self._older:
            return False
        older = self._older[0]
        room = self._half - sum(map(len, self._fetched))
        start = max(0, older.end - min(CHUNK, max(0, room)))
        try:
            data, end, _ = await _read(client, older.part, start, older.end - start)
        except ResourceGone:
            data, end = b"", start
        if end == older.end and start < older.end:
            self._fetched.append(data)
            older.end = start
            if start > 0:
                return True
            self._older.pop(0)
        else:  # no room, or it is not what it was
            self._older = []
        if not self._older and self._fetched:
            before, self._fetched = b"".join(reversed(self._fetched)), []
            cut = before.find(b"\n") + 1 if start else 0
            await asyncio.to_thread(self._put_before, before[cut:])
        return bool(self._older)

    # The file; these block as a disk does

    def _write(self, data: bytes) -> None:
        _write(self._path, data)
        self._size = len(data)

    def _append(self, data: bytes) -> None:
        if self._size + len(data) > self._half:
            # The viewer follows such a change by itself; what was to come in front has no place any more.
            self._path.replace(self._before)
            self._older, self._fetched = [], []
            self._write(data)
            return
        with self._path.open("ab") as file:
            file.write(data)
        self._size += len(data)

    def _put_before(self, data: bytes) -> None:
        half_done = self._path.with_name(self._path.name + ".older")
        _write(half_done, data)
        half_done.replace(self._before)  # as a whole, or not at all

    @property
    def _before(self) -> Path:
        return self._path.with_name(self._path.name + ".1")


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _parts(document: object) -> list[tuple[str, int]]:
    files = document.get("files") if isinstance(document, dict) else None
    if not isinstance(files, list):
        raise Fault(FaultType.PROTOCOL, "the list of log files is not understood")
    return [
        (file["id"], file["size"])
        for file in files[:100]
        if isinstance(file, dict) and isinstance(file.get("id"), str) and isinstance(file.get("size"), int)
    ]


async def _read(client: "ControlClient", part: str, offset: int, limit: int) -> tuple[bytes, int, str]:
    """Bytes from ``offset`` on, where they end (below ``offset`` when the file is shorter), the next file."""
    from urllib.parse import quote

    data, headers = await client.read_bytes(f"/log/{quote(part, safe='')}?offset={offset}&limit={limit}")
    size = headers.get("pallas-log-size", "")
    if not size.isdigit() or len(data) > limit:
        raise Fault(FaultType.PROTOCOL, "the answer for a part of the log is not understood")
    end = offset + len(data)
    return data, int(size) if int(size) < offset else end, headers.get("pallas-log-newer", "")
