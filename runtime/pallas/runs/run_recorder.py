"""Writes finished runs, their events and steps to the ledger in the background; reads the steps.

A run of a durable thread is written with its messages; this module writes the runs without a thread, and the
events and steps of all runs. A fleet that is killed loses the last of these, never a message.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from time import time
from typing import TYPE_CHECKING, Final, NamedTuple

from pallas.model import (
    Blob,
    EndedRun,
    Event,
    Outcome,
    RunRecord,
    RunRequest,
    Step,
    StepDetail,
    Usage,
)
from pallas.model.codec import encode_event
from pallas.runs.run import ActiveRun
from pallas.safe_text import one_line
from pallas.telemetry.request_parts import RequestPart
from pallas.telemetry.step_record import RunSteps, StepRecord

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger

log = logging.getLogger(__name__)

QUEUE: Final = 2_000
"""Runs that may wait to be written; beyond that the oldest are dropped, and counted."""
MAX_EVENTS: Final = 1_000
"""How many of a run's last events are kept."""
WRITE_TIMEOUT: Final = 30.0
GATHER: Final = 0.25
"""Seconds during which finished runs are collected for one write."""
BATCH: Final = 200
"""Runs in one write."""
STORED_FOR: Final = 3600.0
"""Seconds after which a part that many conversations share is written again, so that it counts as used."""


class _Ended(NamedTuple):
    """A run that waits to be written; ``record`` is None for a run of a thread."""

    run_id: str
    record: RunRecord | None
    events: tuple[Event, ...]
    steps: RunSteps | None


class RunRecorder:
    """Writes in one task, many runs at a time."""

    def __init__(self, ledger: "Ledger") -> None:
        self._ledger = ledger
        self._waiting: deque[_Ended] = deque(maxlen=QUEUE)
        self._writing: Sequence[_Ended] = ()
        self._task: asyncio.Task[None] | None = None
        self._lost = 0
        self._closing = asyncio.Event()

    def record_end(
        self,
        run: ActiveRun,
        request: RunRequest,
        outcome: Outcome,
        fault: str,
        usage: Usage,
        steps: RunSteps | None = None,
    ) -> None:
        """Queue a run that is over. Returns at once."""
        record = None
        if not run.thread:
            record = replace(
                run.record,
                thread="",
                status=outcome,
                finished_at=time(),
                tokens_in=usage.input_tokens,
                tokens_out=usage.output_tokens,
                fault=one_line(fault, 500),
                partial=run.partial,
            )
        if len(self._waiting) == QUEUE:
            self._lost += 1
        self._waiting.append(_Ended(run.id, record, tuple(run.events), steps))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write(), name="record runs")

    def unwritten(self) -> Iterator[RunRecord]:
        """Runs that are over and that the ledger does not know yet."""
        return (each.record for each in (*self._writing, *self._waiting) if each.record is not None)

    async def close(self, seconds: float) -> None:
        """Write the queued runs, within ``seconds``."""
        self._closing.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=seconds)
            if left := sum(1 for _ in self.unwritten()):
                log.warning("%d runs were not recorded: the ledger did not take them in time", left)
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _write(self) -> None:
        while self._waiting:
            # Runs that end during this wait are written together: no turn waits behind a write for each run.
            with suppress(TimeoutError):
                async with asyncio.timeout(GATHER):
                    await self._closing.wait()
            self._writing = taken = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            if self._lost:
                log.warning("%d runs were not recorded: the ledger is too slow for them", self._lost)
                self._lost = 0
            now = time()
            since = now - STORED_FOR
            seen: set[RequestPart] = set()
            parts = [each.steps.unstored(since, seen) if each.steps is not None else [] for each in taken]
            rows = [_ended_run(each, new) for each, new in zip(taken, parts, strict=True)]
            try:
                async with asyncio.timeout(WRITE_TIMEOUT):
                    await self._ledger.runs.record(rows)
            except Exception:
                log.exception("%d runs could not be recorded", len(rows))
            else:
                for part in chain.from_iterable(parts):
                    part.stored_at = now
            finally:
                self._writing = ()


def _ended_run(ended: _Ended, new: Sequence[RequestPart]) -> EndedRun:
    return EndedRun(
        ended.run_id,
        ended.record,
        [(number, encode_event(event)) for number, event in enumerate(ended.events, 1)],
        ended.steps.stored() if ended.steps is not None else (),
        [Blob(p.scope, p.digest, p.parent.digest if p.parent is not None else "", p.body) for p in new],
    )


class StepReader:
    """The steps of a fleet's runs. Raises Fault (TRANSPORT, TIMEOUT) if the ledger fails."""

    def __init__(self, record: StepRecord) -> None:
        self._record = record
        self.ledger: Ledger | None = None

    async def list(self, run_id: str) -> tuple[Step, ...]:
        """The steps of a run, in order; empty if none are known."""
        kept = self._in_memory(run_id)
        if kept is not None:
            return tuple(step.value for step in kept.steps)
        return await self.ledger.steps.list(run_id) if self.ledger is not None else ()

    async def get(self, run_id: str, number: int) -> StepDetail | None:
        """A step with its texts; None if it is not known."""
        kept = self._in_memory(run_id)
        if kept is not None:
            return next((step.detail for step in kept.steps if step.number == number), None)
        return await self.ledger.steps.get(run_id, number) if self.ledger is not None else None

    def _in_memory(self, run_id: str) -> RunSteps | None:
        """The run, unless steps of it were dropped that the ledger has."""
        kept = self._record.of(run_id)
        is_whole = kept is not None and bool(kept.steps) and kept.steps[0].number == 1
        return kept if is_whole or self.ledger is None else None
