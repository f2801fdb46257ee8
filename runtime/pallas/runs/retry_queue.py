"""Retries writes of turn ends that the ledger did not take, until it does or the fleet ends.

Without it a thread would show a turn as pending for as long as the fleet lives, though no run works on it.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from pallas.model import Fault
from pallas.model.refusals import GONE, REASON

log = logging.getLogger(__name__)

TRY_EVERY: Final = 5.0
"""Seconds between two tries."""
MOST: Final = 1_000
"""Turns that may wait; beyond that the oldest are left to the next start of the fleet."""

type Write = Callable[[], Coroutine[Any, Any, None]]


class RetryQueue:
    """Writes that are still to be done, by run. One event loop only; ``close`` ends its task."""

    def __init__(self) -> None:
        self._owed: OrderedDict[str, tuple[str, Write]] = OrderedDict()
        self._one = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._owed)

    def has(self, run_id: str) -> bool:
        """Whether a write of that run is queued."""
        return run_id in self._owed

    def add(self, run_id: str, thread: str, write: Write) -> None:
        """Queue ``write`` for that run. It may be called more than once."""
        self._owed[run_id] = thread, write
        while len(self._owed) > MOST:
            left, _ = self._owed.popitem(last=False)
            log.warning("run %s: its end stays unwritten until the fleet starts again", left)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._try(), name="ends that are still to be written")

    async def settle(self, thread: str) -> None:
        """Do the queued writes of that thread before a run continues it. Raises Fault."""
        if any(each == thread for each, _ in self._owed.values()):
            async with self._one:
                for run_id, (of, _) in list(self._owed.items()):
                    if of == thread:
                        await self._write(run_id)

    async def close(self) -> None:
        """Stop trying."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _try(self) -> None:
        while self._owed:
            await asyncio.sleep(TRY_EVERY)
            with suppress(Fault):  # the ledger is not back yet
                async with self._one:
                    for run_id in list(self._owed):
                        await self._write(run_id)

    async def _write(self, run_id: str) -> None:
        if (owed := self._owed.get(run_id)) is None:
            return
        try:
            await owed[1]()
        except Fault as fault:
            if fault.data.get(REASON) not in GONE:
                raise
        self._owed.pop(run_id, None)
