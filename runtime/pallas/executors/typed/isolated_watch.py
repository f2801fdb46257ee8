"""How much all processes of an isolated handler take together: the system limits each by itself alone."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROCESSES: Final = 64
"""Processes that a handler has at most, its own among them."""
# Seconds between two looks, while a message is handled.
_LOOK: Final = 0.5
# Of what it may have, what is beyond that until all of it is ended: copies after a fork count twice.
_ROOM: Final = 1.25
# What a process has that does nothing.
_EMPTY: Final = 40 * 1024 * 1024
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Taken:
    """What there is now: processes, and bytes of memory that are theirs alone."""

    processes: int
    memory: int


async def oversee(
    keeper: int, memory: int, busy: Callable[[], Awaitable[object]], end: Callable[[str], None]
) -> None:
    """Have it ended where it takes too much, with the words for that; until cancelled.

    ``keeper`` is the process above all of it, ``memory`` the bytes it may have (0 for any); ``busy`` is
    awaited before each look.
    """
    while True:
        await busy()
        taken = await asyncio.to_thread(look, keeper)
        if memory and taken.memory - taken.processes * _EMPTY > memory * _ROOM:
            end(f"was ended, because it took more memory than its {memory // 1024**2} MB")
        elif taken.processes > PROCESSES:
            end(f"was ended, because it started more than {PROCESSES} processes")
        await asyncio.sleep(_LOOK)


def look(keeper: int) -> Taken:
    """What is below that process; nothing where the system does not tell. Blocks a little, never raises."""
    found: list[int] = []
    wanted = [keeper]
    while wanted and len(found) <= PROCESSES:
        below = children(wanted.pop())
        found += below
        wanted += below
    return Taken(len(found), sum(map(_memory, found)))


def children(pid: int) -> list[int]:
    """What that process started and still is there; none where the system does not tell."""
    try:
        return [
            int(child)
            for thread in Path(f"/proc/{pid}/task").iterdir()
            for child in (thread / "children").read_text("ascii").split()
        ]
    except (OSError, ValueError):
        return []


def _memory(pid: int) -> int:
    try:
        resident, shared = map(int, Path(f"/proc/{pid}/statm").read_text("ascii").split()[1:3])
    except (OSError, ValueError):
        return 0
    return (resident - shared) * _PAGE
