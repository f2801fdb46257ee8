"""The last runs of the ledger, as events for the feed; nothing of the screen in here."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple

from pallas.model import (
    Event,
    Fault,
    FleetPort,
    FleetSnapshot,
    FleetState,
    PastRun,
    RunEvent,
    RunFinished,
    RunStarted,
)

from .runs_elsewhere import begin_of, end_of

MOST: Final = 100
"""Runs that the feed gets."""
ATTEMPTS: Final = 5
"""How often a fleet that cannot tell them is asked."""


class RecalledRun(NamedTuple):
    """A run that is over, with its begin, what is known of its steps, and its end."""

    run_id: str
    events: tuple[Event, ...]
    is_before: bool
    """Whether the fleet that had it is gone."""


class PastRuns:
    """Asks the fleet that ``port`` gives once, when it runs. Belongs to one event loop."""

    def __init__(self, port: Callable[[], Any]) -> None:
        self._port = port
        self._of: FleetPort | None = None
        self._left = ATTEMPTS
        self._is_asking = False

    def is_due(self, snapshot: FleetSnapshot) -> bool:
        """Whether the fleet is to be asked now."""
        fleet = self._port()
        if fleet is not None and fleet is not self._of:
            self._of, self._left = fleet, ATTEMPTS
        # Without a ledger it has no replica.
        runs = snapshot.state is FleetState.RUNNING and bool(snapshot.replica) and not snapshot.stale
        return fleet is not None and self._left > 0 and runs and not self._is_asking

    async def read(self, snapshot: FleetSnapshot) -> tuple[RecalledRun, ...]:
        """The runs, the oldest first; none if the fleet cannot tell them now."""
        fleet: FleetPort | None = self._port()
        if fleet is None:
            return ()
        self._is_asking = True
        self._left -= 1
        try:
            found = await fleet.past_runs(MOST)
        except Fault:  # also of a fleet of an older release, which does not know the question
            return ()
        finally:
            self._is_asking = False
        if fleet is not self._of:
            return ()
        self._left = 0
        return tuple(_recalled(each, snapshot.replica) for each in found)


def _recalled(past: PastRun, here: str) -> RecalledRun:
    there = past.about.replica
    about = replace(past.about, replica="" if there == here else there)
    events = list(_events(past, about.replica))
    if not any(isinstance(event, RunStarted) for event in events):
        events.insert(0, begin_of(about))
    if not any(isinstance(event, RunFinished) for event in events):
        events.append(end_of(about))
    return RecalledRun(about.run.id, tuple(events), is_before=not there)


def _events(past: PastRun, replica: str) -> Iterator[RunEvent]:
    # Not before the first paint: it loads pydantic.
    from pallas.model.codec import Undecodable, decode_event

    for document in past.events:
        with suppress(Undecodable):  # of an older release
            event = decode_event(document)
            if isinstance(event, RunStarted | RunFinished):
                event = replace(event, replica=replica)
            if isinstance(event, RunEvent) and event.run_id == past.about.run.id:
                yield event
