"""Reads the model steps of runs: from memory while they are there, else from the ledger."""

from typing import TYPE_CHECKING

from pallas.model import Step, StepDetail
from pallas.telemetry.step_record import RunSteps, StepRecord

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger


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
            return next((step.detail for step in kept.steps if step.value.number == number), None)
        return await self.ledger.steps.get(run_id, number) if self.ledger is not None else None

    def _in_memory(self, run_id: str) -> RunSteps | None:
        """The run, unless steps of it were dropped that the ledger has."""
        kept = self._record.of(run_id)
        is_whole = kept is not None and bool(kept.steps) and kept.steps[0].value.number == 1
        return kept if is_whole or self.ledger is None else None
