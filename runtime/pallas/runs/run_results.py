"""The results of runs that another caller began, or that another fleet works on."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from pallas.model import (
    Cost,
    Event,
    Fault,
    FaultType,
    QuestionAnswered,
    QuestionAsked,
    RunRecord,
    RunResult,
    TextDelta,
    Usage,
)

from .kernel import Kernel
from .run import ActiveRun, Listener

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger

LOOK_EVERY: Final = 0.5
"""Seconds between two looks at a run that another fleet works on."""


class RunResults:
    """Waits for runs of any fleet on the ledger. One event loop only."""

    def __init__(self, kernel: Kernel, ledger: "Ledger") -> None:
        self._kernel = kernel
        self._ledger = ledger

    async def of(self, run_id: str, listener: Listener | None = None) -> RunResult | None:
        """The result of a run, once it is over; None if the ledger does not know it. Raises Fault.

        The listener gets the events of a run that is in flight in this fleet, as with ``followed``.
        """
        while True:
            record = await self._ledger.runs.find(run_id)
            if record is None:
                return None
            if record.status != "running":
                return await self._result(record)
            if (run := self._kernel.in_flight.get(run_id)) is not None:
                return await joined(run, listener)
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


async def joined(run: ActiveRun, listener: Listener | None = None) -> RunResult:
    """The result of a run of this fleet that another caller began. Raises Fault."""
    assert run.task is not None
    with followed(run, listener):
        await asyncio.wait({run.task})
    if run.task.cancelled():
        raise Fault(FaultType.UPSTREAM, f"the run was cancelled: {run.why}", data={"cancelled": True})
    return run.task.result()


@contextmanager
def followed(run: ActiveRun | None, listener: Listener | None) -> Iterator[None]:
    """While the block runs, the listener gets the events of the run too: those so far, then each new one.

    Questions that are over are left out.
    """
    if run is None or listener is None:
        yield
        return
    over = {event.question for event in run.events if isinstance(event, QuestionAnswered)}
    so_far: list[Event] = [
        event
        for event in run.events
        if not (isinstance(event, QuestionAsked | QuestionAnswered) and event.question in over)
    ]
    if text := run.draft.text():
        so_far.append(TextDelta(run_id=run.id, agent=run.agent, text=text))
    for event in so_far:
        with suppress(Exception):  # as in the run
            listener(event)
    run.followers.append(listener)
    try:
        yield
    finally:
        run.followers.remove(listener)
