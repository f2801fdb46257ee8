"""What became of calls whose answers were lost with a fleet, as the run that went on says of itself."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pallas.model import Event, RunContinued
from pallas.model.codec import Undecodable, decode_event

from .kernel import Kernel
from .run import MAX_EVENTS

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger


async def unfinished_calls(kernel: Kernel, ledger: "Ledger | None", run_id: str) -> tuple[str, ...]:
    """A line for each such call of the run's last attempt: its name, and what was done.

    Empty for a run that no other fleet began. Raises Fault (TRANSPORT, TIMEOUT).
    """
    if (active := kernel.in_flight.get(run_id)) is not None:
        return _lines(active.events)
    run = await ledger.runs.get(run_id) if ledger is not None else None
    if ledger is None or run is None or run.attempt == 1:
        return ()
    if kernel.recorder is not None:
        await kernel.recorder.settle()
    stored = await ledger.runs.events(run_id, limit=MAX_EVENTS)
    # What is numbered above was written for readers of its stream.
    return _lines(event for number, body in stored if number <= MAX_EVENTS and (event := _event(body)))


def _event(body: object) -> Event | None:
    try:
        return decode_event(body)
    except Undecodable:  # written by another release
        return None


def _lines(events: Iterable[Event]) -> tuple[str, ...]:
    return tuple(line for each in events if isinstance(each, RunContinued) for line in each.calls)
