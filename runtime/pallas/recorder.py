"""What happened in runs, for the ledger: behind the runs, so that nobody waits for it.

A run of a durable thread is written with its messages; here go the runs of which nothing is remembered, and
what every run's events were. A fleet that is killed loses the last of these, never a message.
"""

import asyncio
import logging
from collections import deque
from contextlib import suppress
from time import time
from typing import TYPE_CHECKING, Final

from pallas.codec import dumps, encode_event, loads
from pallas.model import Event, Outcome, RunRecord, RunRequest, Usage
from pallas.runs import Run
from pallas.text import one_line

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger

log = logging.getLogger(__name__)

QUEUE: Final = 2_000
"""Runs that wait to be written; beyond that the oldest are left out, and counted."""
MAX_EVENTS: Final = 1_000
"""Events of a run that are kept: its last ones."""
WRITE_TIMEOUT: Final = 30.0
CLOSE_TIMEOUT: Final = 3.0


class Recorder:
    """Writes in one task, one run after the other."""

    def __init__(self, ledger: "Ledger") -> None:
        self._ledger = ledger
        self._waiting: deque[tuple[RunRecord | None, str, tuple[Event, ...]]] = deque(maxlen=QUEUE)
        self._task: asyncio.Task[None] | None = None
        self._lost = 0

    def over(self, run: Run, request: RunRequest, outcome: Outcome, fault: str, usage: Usage) -> None:
        """A run is over; returns at once."""
        record = None
        if not run.thread:
            now = time()
            record = RunRecord(
                run.id,
                run.agent,
                request.principal.id,
                surface=request.surface,
                status=outcome,
                started_at=now - run.seconds,
                finished_at=now,
                seconds=run.seconds,
                steps=run.steps,
                tools=run.tools,
                tokens_in=usage.input_tokens,
                tokens_out=usage.output_tokens,
                fault=one_line(fault, 500),
                partial=run.partial,
            )
        if len(self._waiting) == QUEUE:
            self._lost += 1
        self._waiting.append((record, run.id, tuple(run.events)))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write(), name="record runs")

    async def close(self) -> None:
        """Write what waits, within three seconds."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=CLOSE_TIMEOUT)
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _write(self) -> None:
        while self._waiting:
            record, run_id, events = self._waiting.popleft()
            if self._lost:
                log.warning("%d runs were not recorded: the ledger is too slow for them", self._lost)
                self._lost = 0
            try:
                async with asyncio.timeout(WRITE_TIMEOUT):
                    if record is not None:
                        await self._ledger.runs.finish(record)
                    rows = [(number, _plain(event)) for number, event in enumerate(events, 1)]
                    await self._ledger.runs.add_events(run_id, rows)
            except Exception:
                log.exception("run %s could not be recorded", run_id)


def _plain(event: Event) -> dict[str, object]:
    plain: dict[str, object] = loads(dumps(encode_event(event)))
    return plain
