"""The limits of an isolated handler: what the kernel enforces in its process, and what the fleet oversees.

The kernel limits each process by itself. How much all processes of a handler take together, only the fleet
can see.
"""

import asyncio
import ctypes
import os
import resource
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..ipc.child_process import children_of

MAX_DESCRIPTORS: Final = 1_024
"""File descriptors of its process."""
MAX_PROCESSES: Final = 64
"""Processes of a handler, its own included."""
_LOOK_INTERVAL_S: Final = 0.5
# The share of its memory that is allowed before all of it is ended: copies after a fork count twice.
_MEMORY_SLACK: Final = 1.25
# Bytes of a process that does nothing.
_IDLE_MEMORY: Final = 40 * 1024 * 1024
# Bytes of data of the empty process, where the system does not say.
_EMPTY_DATA: Final = 64 * 1024 * 1024
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_PR_SET_NO_NEW_PRIVS: Final = 38
_CAPABILITIES_VERSION: Final = 0x20080522


# In the child, before any of the handler's code is imported.


def limit_process(memory: int) -> None:
    """Limit this process, and all that it starts, for good.

    ``memory`` (bytes, 0 for any) is what each process may allocate beyond what the empty process has; a
    thread's stack counts.
    """
    _set_limit(resource.RLIMIT_CORE, 0)
    _set_limit(resource.RLIMIT_NOFILE, MAX_DESCRIPTORS)
    if memory > 0:
        _set_limit(resource.RLIMIT_DATA, _data_bytes() + memory)
    if sys.platform == "linux":  # setuid programs do not change the user
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(None, use_errno=True)
            library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            _drop_capabilities(library)


def _drop_capabilities(library: ctypes.CDLL) -> None:
    """Drop all capabilities: a handler of a fleet that runs as root cannot look into processes."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    none = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable, twice 32 bits of each
    library.capset(ctypes.byref(header), ctypes.byref(none))


def _data_bytes() -> int:
    """Bytes of data of this process; a guess where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[5])
    except (OSError, ValueError, IndexError):
        return _EMPTY_DATA
    return pages * _PAGE


def _set_limit(resource_kind: int, most: int) -> None:
    """Lower a soft and a hard limit; never raise one, which only root may."""
    with suppress(ValueError, OSError):
        hard = resource.getrlimit(resource_kind)[1]
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource_kind, (value, value))


# In the fleet.


@dataclass(frozen=True, slots=True)
class HandlerUsage:
    """Processes, and bytes of memory that are theirs alone."""

    processes: int
    memory: int


async def oversee(
    keeper: int, memory: int, wait_busy: Callable[[], Awaitable[object]], end: Callable[[str], None]
) -> None:
    """Call ``end`` with the reason when a handler takes too much; runs until cancelled.

    ``keeper`` is the process above all of the handler's, ``memory`` the bytes they may have together (0 for
    any). ``wait_busy`` is awaited before each look.
    """
    while True:
        await wait_busy()
        usage = await asyncio.to_thread(usage_below, keeper)
        if memory and usage.memory - usage.processes * _IDLE_MEMORY > memory * _MEMORY_SLACK:
            end(f"was ended, because it took more memory than its {memory // 1024**2} MB")
        elif usage.processes > MAX_PROCESSES:
            end(f"was ended, because it started more than {MAX_PROCESSES} processes")
        await asyncio.sleep(_LOOK_INTERVAL_S)


def usage_below(keeper: int) -> HandlerUsage:
    """Return what runs below a process; nothing where the system does not say. Blocks a little."""
    found: list[int] = []
    processes = [keeper]
    while processes and len(found) <= MAX_PROCESSES:
        below = children_of(processes.pop())
        found += below
        processes += below
    return HandlerUsage(len(found), sum(map(_own_memory, found)))


def _own_memory(pid: int) -> int:
    try:
        resident, shared = map(int, Path(f"/proc/{pid}/statm").read_text("ascii").split()[1:3])
    except (OSError, ValueError):
        return 0
    return (resident - shared) * _PAGE
