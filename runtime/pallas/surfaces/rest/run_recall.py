"""Finds the chunks of a run wherever they are: in memory, in the ledger, or at a run of another surface."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from time import time
from typing import TYPE_CHECKING, Any, Final

from pallas.model import Cost, Fault, FaultType, Principal, RunRecord, RunResult, Usage
from pallas.model.refusals import REASON, not_found
from pallas.model.run_values import STREAMED_SURFACES
from pallas.runs.kernel import Kernel

from .chat_chunks import Chunk, answer_of, error
from .rest_runs import RestRuns
from .run_replay import PER_ATTEMPT, RunLog, RunReplay

if TYPE_CHECKING:
    from pallas.ledger import Ledger
    from pallas.sessions.thread_access import Threads


FOLLOW_EVERY: Final = 0.5
"""Seconds between two looks for new chunks of a run that another fleet works on."""
STORED_SECONDS: Final = 3.0
"""Seconds after the end of a run within which its fleet stores its last chunks."""


class Recall:
    """Finds the chunks of a run."""

    def __init__(
        self, kernel: Kernel, ledger: "Ledger", threads: "Threads", replay: RunReplay, turns: RestRuns
    ) -> None:
        self._kernel = kernel
        self._ledger = ledger
        self._threads = threads
        self._replay = replay
        self._turns = turns

    def log(self, run_id: str) -> RunLog | None:
        """Return the log of a run that is in flight or ended a short while ago."""
        if (found := self._replay.get(run_id)) is not None:
            return found
        run = self._kernel.in_flight.get(run_id)
        return self._turns.watch(run) if run is not None else None

    async def begun(self, run_id: str) -> bool:
        """Return whether that run is known, here or in another fleet on the same ledger."""
        if self.log(run_id) is not None or any(each.id == run_id for each in self._kernel.unwritten()):
            return True
        return await self._ledger.runs.find(run_id) is not None

    async def record(self, run_id: str, principal: Principal) -> RunRecord:
        """Return the record of a run that the principal may see, from the run's start on. Raises Fault.

        The run may wait for its thread in another fleet.
        """
        try:
            found = await self._threads.run(run_id, principal)
            known = self._replay.get(run_id)
            if found.status == "running" and not found.thread and known is not None:
                return replace(found, thread=known.thread)
            return found
        except Fault as fault:
            log = self._replay.get(run_id)
            # The ledger gets a run when its turn starts, or, without history, when the run has ended.
            early = log is not None and log.owner == principal.id and not (log.done and log.thread)
            if fault.data.get(REASON) != "not_found" or log is None or not early:
                raise
            return RunRecord(
                run_id, log.agent, log.owner, log.thread, surface="rest", started_at=log.began_at
            )

    async def chunks(self, run_id: str, after: int = 0) -> AsyncIterator[tuple[int, Chunk]]:
        """Yield the chunks of a run after number ``after`` from the ledger, to its end.

        A run that another fleet works on is followed: its chunks are there a moment later, as is the last
        chunk of one that has just ended. A run without a stored last chunk, because it did not come over this
        API or the fleet died, ends with what its record and its thread allow.
        """
        last, ended = after, False
        # Read the one before again: it may have been the last.
        start = max(0, after - 1)
        while not ended:
            record = await self._record(run_id)
            async for number, chunk in self._kept(run_id, start):
                ended = ended or chunk.get("type") in ("final", "error")
                start = max(start, number)
                if number > last:
                    last = number
                    yield number, chunk
            if ended:
                return
            if record.status != "running" and not _is_storing(record):
                break
            await asyncio.sleep(FOLLOW_EVERY)
        async for number, chunk in self._end(record, last):
            yield number, chunk

    async def _end(self, record: RunRecord, last: int) -> AsyncIterator[tuple[int, Chunk]]:
        """Yield the end of a run whose last chunk is not stored, after number ``last``.

        Chunks of it that were not stored may have been read. So these are numbered as those of another
        attempt, and take the text of the last step back. Of a run that came another way nothing is stored.
        """
        number, end = record.attempt * PER_ATTEMPT, [Chunk(type="rollback")]
        if record.surface not in STREAMED_SURFACES and record.attempt == 1 and not last:
            number, end = 0, []
        if record.status == "ok" and record.thread and (text := await self._answer_in(record)):
            end.append({"type": "text", "delta": text})
        for chunk in (*end, _end_of(record)):
            number += 1
            if number > last:
                yield number, chunk

    async def _answer_in(self, record: RunRecord) -> str:
        """The text of the answer in the run's thread; empty without one."""
        if record.turn_index is None:
            return ""
        return await self._ledger.threads.text_at(record.thread, record.turn_index)

    async def answer(self, run_id: str) -> dict[str, Any]:
        """Return the complete answer of a run with an idempotency key, once it is over.

        Raises the run's Fault.
        """
        record = await self._record(run_id)
        while record.status == "running":
            await asyncio.sleep(FOLLOW_EVERY)
            record = await self._record(run_id)
        fault: Fault | None = None
        async for _, chunk in self._kept(run_id, 0):
            if chunk.get("type") == "answer":
                return {name: value for name, value in chunk.items() if name != "type"}
            if chunk.get("type") == "error":
                fault = _fault_in(chunk)
        if fault is None and record.status == "ok" and (text := await self._answer_in(record)):
            below = await self._ledger.costs.below([run_id])  # another fleet went on with it
            tree = Cost.sum((record, *below.get(run_id, {}).values()))
            return answer_of(_result_of(record, text, tree))
        raise fault or _fault_in(_end_of(record))

    async def _kept(self, run_id: str, after: int) -> AsyncIterator[tuple[int, Chunk]]:
        store = self._replay.store(run_id)
        while rows := await store.read(after):
            for number, chunk in rows:
                after = number
                yield number, chunk

    async def _record(self, run_id: str) -> RunRecord:
        record = await self._ledger.runs.find(run_id)
        if record is None:
            raise not_found("run not found: it is unknown, or was deleted with its thread")
        return record


def _is_storing(record: RunRecord) -> bool:
    """Whether the fleet that ended the run may be about to store its last chunks."""
    return record.surface in STREAMED_SURFACES and abs(time() - (record.finished_at or 0.0)) < STORED_SECONDS


def _result_of(record: RunRecord, text: str, tree: Cost) -> RunResult:
    return RunResult(
        record.id,
        (text,),
        None,
        record.seconds,
        record.steps,
        record.tools,
        Usage(record.tokens_in, record.tokens_out, record.cost, record.unpriced),
        thread=record.thread,
        turn_index=record.turn_index,
        tree=tree,
    )


def _end_of(record: RunRecord) -> Chunk:
    """Return the last chunk of a run, built from its record in the ledger."""
    if record.status == "ok":
        return {"type": "final", "threadId": record.thread or None, "turnIndex": record.turn_index}
    data = {"cancelled": True} if record.status == "cancelled" else {}
    return error(Fault(FaultType.UPSTREAM, record.fault or f"the run ended as {record.status}", data=data))


def _fault_in(chunk: Chunk) -> Fault:
    data = dict(chunk.get("data") or {})
    kind, code, retryable = data.pop("type", "INTERNAL"), data.pop("code", None), data.pop("retryable", None)
    if chunk.get("type") != "error":
        return Fault(FaultType.UPSTREAM, "the whole answer of this run is no longer kept; its thread has it")
    return Fault(FaultType(kind), str(chunk.get("message")), code=code, retryable=retryable, data=data)
