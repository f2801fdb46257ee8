"""What the system reports about the files of some folders, as it happens.

On Linux the event loop waits for inotify itself: nothing wakes up while no file changes. Elsewhere watchfiles
is used, whose thread wakes up fifty times a second.
"""

import asyncio
import ctypes
import errno
import os
import struct
import sys
from collections.abc import AsyncGenerator, Iterable, Iterator
from functools import cache
from typing import Any, Final

QUIET: Final = 20
"""Milliseconds without another change before changes are reported."""
LONGEST: Final = 200
"""Milliseconds that others may delay that."""

type Change = tuple[bool, str]
"""Whether it was added, and its path."""


class EventsLostError(Exception):
    """The system had more to report than it keeps."""


def folder_events(folders: Iterable[str]) -> AsyncGenerator[list[Change]]:
    """Yield what changes in these folders, not below them, from the first step on; on one event loop.

    Raises OSError if the system cannot watch them, and EventsLostError.
    """
    return _by_inotify(folders) if sys.platform == "linux" else _by_watchfiles(folders)


def takes_any_name() -> bool:
    """Whether folders may have names that are not in UTF-8."""
    return sys.platform == "linux"


async def _by_watchfiles(folders: Iterable[str]) -> AsyncGenerator[list[Change]]:
    from watchfiles import Change as Kind
    from watchfiles import awatch

    async for batch in awatch(
        *folders, watch_filter=None, step=QUIET, debounce=LONGEST, recursive=False, force_polling=False
    ):
        yield [(change is Kind.added, path) for change, path in batch]


async def _by_inotify(folders: Iterable[str]) -> AsyncGenerator[list[Change]]:
    inotify, clock = _Inotify(folders), asyncio.get_running_loop().time
    try:
        while True:
            await _readable(inotify.descriptor)
            changes = dict.fromkeys(inotify.read())
            until = clock() + LONGEST / 1000
            while clock() < until:
                await asyncio.sleep(QUIET / 1000)
                if not (more := dict.fromkeys(inotify.read())):
                    break
                changes.update(more)
            if changes:
                yield list(changes)
    finally:
        inotify.close()


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    loop.add_reader(descriptor, arrived.set)
    try:
        await arrived.wait()
    finally:
        loop.remove_reader(descriptor)


_CREATED: Final = 0x100
_MOVED_IN: Final = 0x80
# Also: written, its attributes changed, moved away, deleted, and the folder itself moved or deleted.
_WATCHED: Final = _CREATED | _MOVED_IN | 0x2 | 0x4 | 0x40 | 0x200 | 0x400 | 0x800
_OVERFLOW: Final = 0x4000
_IGNORED: Final = 0x8000
_EVENT: Final = struct.Struct("iIII")
_READ: Final = 64 * 1024


class _Inotify:
    """The system's notifications of some folders."""

    def __init__(self, folders: Iterable[str]) -> None:
        library = _library()
        self.descriptor: int = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.descriptor < 0:
            raise _failure()
        self._folders: dict[int, str] = {}
        try:
            for folder in folders:
                watch = library.inotify_add_watch(self.descriptor, os.fsencode(folder), _WATCHED)
                if watch < 0:
                    raise _failure(folder)
                self._folders[watch] = folder
        except BaseException:
            self.close()
            raise

    def read(self) -> Iterator[Change]:
        """Yield what has happened since the last time. Raises EventsLostError."""
        while True:
            try:
                data = os.read(self.descriptor, _READ)
            except BlockingIOError:
                return
            start = 0
            while start < len(data):
                watch, mask, _, size = _EVENT.unpack_from(data, start)
                start += _EVENT.size + size
                if mask & _OVERFLOW:
                    raise EventsLostError("the system has lost changes of files")
                if mask & _IGNORED:  # its folder is gone, which was reported
                    self._folders.pop(watch, None)
                elif (folder := self._folders.get(watch)) is not None:
                    name = os.fsdecode(data[start - size : start].rstrip(b"\0"))
                    yield bool(mask & (_CREATED | _MOVED_IN)), f"{folder}/{name}" if name else folder

    def close(self) -> None:
        """End the notifications."""
        os.close(self.descriptor)


def _failure(folder: str | None = None) -> OSError:
    code = ctypes.get_errno() or errno.EINVAL
    return OSError(code, os.strerror(code), folder)


@cache
def _library() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    library.inotify_add_watch.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
    return library
