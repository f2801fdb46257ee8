"""Writes of running turns to the ledger: within a deadline, to their end, and again if they failed."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from pallas.model import Fault, FaultType, Notice
from pallas.runs.retry_queue import RetryQueue
from pallas.runs.run import ActiveRun
from pallas.telemetry.event_hub import EventHub

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger

log = logging.getLogger(__name__)

WRITE_TIMEOUT: Final = 30.0
"""Seconds that a write may take, with all its tries, before the run fails because it could not be stored."""
PROGRESS_EVERY: Final = 1.0
"""Seconds between two writes of the progress of runs."""


type Progressed = Callable[[ActiveRun], None]


class ProgressWriter:
    """Writes the progress of running runs at intervals, so that a kill does not lose it.

    ``also`` is called with each run at these times.
    """

    def __init__(self, ledger: "Ledger", also: Progressed) -> None:
        self._ledger = ledger
        self._also = also
        self._runs: dict[str, ActiveRun] = {}
        self._task: asyncio.Task[None] | None = None

    def begin(self, run: ActiveRun) -> None:
        """Write the progress of this run until ``end``."""
        self._runs[run.id] = run
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write(), name="progress of runs")

    def end(self, run: ActiveRun) -> None:
        """Stop writing the progress of this run. How it ended is written elsewhere."""
        if self._runs.get(run.id) is run:  # else this fleet has claimed the run again since
            del self._runs[run.id]

    async def close(self) -> None:
        """Stop writing."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _write(self) -> None:
        while self._runs:
            await asyncio.sleep(PROGRESS_EVERY)
            for run in self._runs.values():
                self._also(run)
            if under_way := [run.record for run in self._runs.values()]:
                try:
                    async with asyncio.timeout(WRITE_TIMEOUT):
                        await self._ledger.threads.progress(under_way)
                except Exception:
                    log.warning("the progress of %d runs was not written", len(under_way), exc_info=True)


class LedgerWrites:
    """The writes of one fleet's turns. One event loop only.

    ``retries`` has those that failed and are tried again, ``progress`` writes how far running runs are.
    """

    def __init__(self, ledger: "Ledger", hub: EventHub, progressed: Progressed) -> None:
        self._hub = hub
        self.retries = RetryQueue()
        self.progress = ProgressWriter(ledger, progressed)
        # Writes of turn beginnings and ends that are under way.
        self._last: set[asyncio.Task[Any]] = set()

    async def close(self, seconds: float) -> None:
        """Wait ``seconds`` for the writes under way and stop retrying. The next start finds the rest."""
        await self.retries.close()
        await self.progress.close()
        if self._last:
            await asyncio.wait(self._last, timeout=seconds)
        for task in self._last:
            task.cancel()

    def own[T](self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run ``work`` in a task that a cancelled caller does not cancel: half a turn must not be stored."""
        task = asyncio.create_task(work, name=name)
        self._last.add(task)
        task.add_done_callback(self._last.discard)
        return task

    async def within[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Await ``work`` within the deadline. Raises Fault (TRANSPORT) if the ledger cannot be used."""
        try:
            async with asyncio.timeout(WRITE_TIMEOUT):
                return await work
        except Fault as fault:
            if fault.type is not FaultType.TIMEOUT:
                raise
            # TRANSPORT, since not the run took too long: the caller may send the same again.
            raise Fault(FaultType.TRANSPORT, fault.message) from None
        except Exception as error:
            log.exception("the ledger failed")
            text = f"the ledger could not be used ({type(error).__name__}): conversations cannot be stored"
            self._hub.publish(Notice(level="error", text=f"{text}; the log has the details"))
            raise Fault(
                FaultType.TRANSPORT, f"{text}; try again, and look at database_url and the disk"
            ) from error


async def finished(task: asyncio.Task[Any]) -> bool:
    """Wait until the task is done; returns whether the caller was cancelled while it waited.

    A cancellation, even a second one, ends neither the task nor this wait.
    """
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    return cancelled
