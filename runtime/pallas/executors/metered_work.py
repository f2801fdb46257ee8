"""Turns that another program answers: the run's meter is asked before, and told afterwards what was used."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from pallas.limits.meter import ModelCall, ModelUse
from pallas.model import StepUsage, Usage
from pallas.model.spend_limits import ANY, SpendLimits
from pallas.telemetry.trace_context import current_run

from .base import ExecutorTurn


class ReportedWork:
    """What a program says of a turn that it answered."""

    def __init__(self) -> None:
        self.use = ModelUse(answered=False)

    def cut_short(self) -> None:
        """Note that it was cancelled: what it used is not known."""
        if not self.use.answered:
            self.use = ModelUse()

    def take(self, usage: Usage, texts: Sequence[str]) -> None:
        """Note what it used, and the texts of its answer."""
        counted = StepUsage(usage.input_tokens, usage.output_tokens)
        self.use = ModelUse(counted, written=sum(map(len, texts)), cost=usage.cost)


@asynccontextmanager
async def metered_work(turn: ExecutorTurn, model: str = "") -> AsyncIterator[ReportedWork]:
    """Reserve for a turn, and settle it by what the value has taken at the end of the block.

    ``model`` is the one that answers, if the program says it. Raises LimitReached before the block.
    """
    run = current_run()
    report = ReportedWork()
    if run is None or run.meter is None:
        yield report
        return
    call = ModelCall("", model, size=len(turn.text), images=len(turn.images))
    reserved = await run.meter.reserve(call)
    try:
        yield report
    except asyncio.CancelledError:
        report.cut_short()
        raise
    finally:
        reserved.settle(report.use)


async def limits_left() -> SpendLimits:
    """What remains of the limits of the current run; no limits where nothing limits it. Raises Fault."""
    run = current_run()
    return await run.meter.remaining() if run is not None and run.meter is not None else ANY
