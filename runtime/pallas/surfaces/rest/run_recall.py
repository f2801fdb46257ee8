"""Finds the chunks of a run wherever they are: in memory, in the ledger, or at a run of another surface."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pallas.model import Fault, FaultType, Principal, RunRecord
from pallas.model.refusals import REASON, not_found
from pallas.runs.kernel import Kernel

from .chat_chunks import Chunk, error
from .rest_runs import RestRuns
from .run_replay import RunLog, RunReplay

if TYPE_CHECKING:
    from pallas.ledger import Ledger
    from pallas.sessions.thread_access import Threads


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
        return await self._ledger.runs.get(run_id) is not None

    async def record(self, run_id: str, principal: Principal) -> RunRecord:
        """Return the record of a run that the principal may see, from the run's start on. Raises Fault."""
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

        A run without a stored last chunk, because it did not come over this API or the fleet died, ends
        with the chunk that its record allows.
        """
        record = await self._record(run_id)
        last, ended = after, False
        # Read the one before again: it may have been the last.
        async for number, chunk in self._kept(run_id, max(0, after - 1)):
            ended = ended or chunk.get("type") in ("final", "error")
            if number > after:
                last = number
                yield number, chunk
        if not ended:
            yield last + 1, _end_of(record)

    async def answer(self, run_id: str) -> dict[str, Any]:
        """Return the complete answer of a run with an idempotency key. Raises the run's Fault."""
        record = await self._record(run_id)
        fault: Fault | None = None
        async for _, chunk in self._kept(run_id, 0):
            if chunk.get("type") == "answer":
                return {name: value for name, value in chunk.items() if name != "type"}
            if chunk.get("type") == "error":
                fault = _fault_in(chunk)
        raise fault or _fault_in(_end_of(record))

    async def _kept(self, run_id: str, after: int) -> AsyncIterator[tuple[int, Chunk]]:
        store = self._replay.store(run_id)
        while rows := await store.read(after):
            for number, chunk in rows:
                after = number
                yield number, chunk

    async def _record(self, run_id: str) -> RunRecord:
        record = await self._ledger.runs.get(run_id)
        if record is None:
            raise not_found("run not found: it is unknown, or was deleted with its thread")
        return record


def _end_of(record: RunRecord) -> Chunk:
    """Return the last chunk of a run, built from its record in the ledger."""
    if record.status == "ok":
        return {"type": "final", "threadId": record.thread or None, "turnIndex": record.turn_index}
    if record.status == "running":
        return error(
            Fault(FaultType.TRANSPORT, "this run goes on in another fleet; its thread has the answer")
        )
    data = {"cancelled": True} if record.status == "cancelled" else {}
    return error(Fault(FaultType.UPSTREAM, record.fault or f"the run ended as {record.status}", data=data))


def _fault_in(chunk: Chunk) -> Fault:
    data = dict(chunk.get("data") or {})
    kind, code, retryable = data.pop("type", "INTERNAL"), data.pop("code", None), data.pop("retryable", None)
    if chunk.get("type") != "error":
        return Fault(FaultType.UPSTREAM, "the answer of this run is not kept as a whole; its thread has it")
    return Fault(FaultType(kind), str(chunk.get("message")), code=code, retryable=retryable, data=data)
