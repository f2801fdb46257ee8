"""The results of runs that another caller began, or that another fleet works on."""

import asyncio
from typing import TYPE_CHECKING, Final

from pallas.model import Cost, Fault, FaultType, RunRecord, RunResult, Usage

from .kernel import Kernel
from .run import ActiveRun

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger

LOOK_EVERY: Final = 0.5
"""Seconds between two looks at a run that another fleet works on."""


class RunResults:
    """Waits for runs of any fleet on the ledger. One event loop only."""

    def __init__(self, kernel: Kernel, ledger: "Ledger") -> None:
        self._kernel = kernel
        self._ledger = ledger

    async def of(self, run_id: str) -> RunResult | None:
        """The result of a run, once it is over; None if the ledger does not know it. Raises Fault."""
        while True:
            record = await self._ledger.runs.find(run_id)
            if record is None:
                return None
            if record.status != "running":
                return await self._result(record)
            if (run := self._kernel.in_flight.get(run_id)) is not None:
                return await joined(run)
            await asyncio.sleep(LOOK_EVERY)

    async def _result(self, record: RunRecord) -> RunResult:
        if record.status != "ok":
            text = record.fault or f"the run ended as {record.status}"
            data = {"cancelled": True} if record.status == "cancelled" else {}
            raise Fault(FaultType.UPSTREAM, text, data=data)
        below = await self._ledger.costs.below([record.id])
        texts = await self._ledger.threads.answers(record.thread, record.id) if record.thread else ()
        return RunResult(
            record.id,
            texts,
            record.thread or None,
            record.seconds,
            record.steps,
            record.tools,
            Usage(record.tokens_in, record.tokens_out, record.cost, record.unpriced),
            thread=record.thread,
            turn_index=record.turn_index,
            tree=Cost.sum((record, *below.get(record.id, {}).values())),
        )


async def joined(run: ActiveRun) -> RunResult:
    """The result of a run of this fleet that another caller began. Raises Fault."""
    assert run.task is not None
    await asyncio.wait({run.task})
    if run.task.cancelled():
        raise Fault(FaultType.UPSTREAM, f"the run was cancelled: {run.why}", data={"cancelled": True})
    return run.task.result()
