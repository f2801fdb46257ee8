"""The runs of other replicas, as events for the feed; nothing of the screen in here."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from pallas.model import (
    Event,
    Fault,
    FleetPort,
    FleetSnapshot,
    RunElsewhere,
    RunFinished,
    RunRecord,
    RunStarted,
)
from pallas.safe_text import one_line

LOOK_EVERY: Final = 1.0
"""Seconds between two looks."""
MOST: Final = 150
"""Runs that are followed at once; a request names no more than 200."""
MAX_DOUBTFUL: Final = 50
"""Runs in doubt that one look asks for."""
PAUSE: Final = 5
"""Looks that are left out after one that failed."""
_REMEMBERED: Final = 2_000
_GONE: Final = "it was deleted with its thread"


class RunsElsewhere:
    """Follows the runs of other replicas of the fleet that ``port`` gives. Belongs to one event loop."""

    def __init__(self, port: Callable[[], Any]) -> None:
        self._port = port
        self._running: dict[str, RunElsewhere] = {}
        # Runs of which the end was told, or about which the ledger knows nothing.
        self._settled: OrderedDict[str, None] = OrderedDict()
        self._told: list[Event] = []
        self._of: FleetPort | None = None
        self._is_first = True
        self._is_asking = False
        # Looks that are left out after a failure.
        self._left_out = 0

    def take(self) -> tuple[Event, ...]:
        """What was learned since the last call."""
        told, self._told = tuple(self._told), []
        return told

    def is_due(self, snapshot: FleetSnapshot, doubtful: Iterable[str] = ()) -> bool:
        """Whether there is anything to ask, so that a look is worth its task."""
        if not snapshot.replica:
            return False
        is_other = self._port() is not self._of
        return is_other or snapshot.replicas > 1 or bool(self._running or self._to_ask(doubtful))

    def _to_ask(self, doubtful: Iterable[str]) -> list[str]:
        asked = (each for each in doubtful if each not in self._settled and each not in self._running)
        return list(islice(asked, MAX_DOUBTFUL))

    async def look(self, snapshot: FleetSnapshot, doubtful: Iterable[str] = ()) -> None:
        """Ask the fleet once, if there is anything to ask; a failure is left to the next look.

        ``doubtful`` are runs of which the feed does not know how they ended.
        """
        fleet: FleetPort | None = self._port()
        if fleet is None or snapshot.stale or not snapshot.replica or self._is_asking:
            return
        if self._left_out > 0:
            self._left_out -= 1
            return
        if fleet is not self._of:
            self._forget(fleet)
        asked = self._to_ask(doubtful)
        if snapshot.replicas < 2 and not asked and not self._running:
            return
        self._is_asking = True
        try:
            found = await fleet.runs_elsewhere(",".join((*self._running, *asked)), snapshot.replica)
        except Fault:  # also of a fleet of an older release, which cannot tell
            self._left_out = PAUSE
            return
        finally:
            self._is_asking = False
        if fleet is self._port():
            self._take_in(found, asked, snapshot.replica)

    async def find(self, run_id: str, snapshot: FleetSnapshot) -> None:
        """Ask for one run, of any replica, to be reported with its end; nothing if it is not known."""
        fleet: FleetPort | None = self._port()
        if fleet is None or not snapshot.replica:
            return
        try:
            found = await fleet.runs_elsewhere(run_id, snapshot.replica)
        except Fault:
            return
        each = next((each for each in found if each.run.id == run_id), None)
        if each is None:
            return
        if each.replica == snapshot.replica:
            each = replace(each, replica="")
        self._told.append(begin_of(each))
        if each.run.status == "running":
            self._running[run_id] = each
            self._settled.pop(run_id, None)
        else:
            self._settle(run_id)
            self._told.append(end_of(each))

    def _take_in(self, found: Iterable[RunElsewhere], asked: Iterable[str], here: str) -> None:
        there = {each.run.id: each for each in found}
        for run_id in [each for each in self._running if each not in there]:
            before = self._running.pop(run_id)
            self._told.append(
                RunFinished(
                    run_id=run_id,
                    agent=before.run.agent,
                    outcome="error",
                    seconds=before.run.seconds,
                    fault=_GONE,
                    replica=before.replica,
                )
            )
        for run_id in asked:
            if run_id not in there:
                self._settle(run_id)
        wanted = set(asked)
        for each in sorted(there.values(), key=lambda one: one.run.started_at):
            if each.run.status == "running":
                self._goes_on(each, here)
            else:
                self._ended(each, here, wanted)
        self._is_first = False

    def _goes_on(self, each: RunElsewhere, here: str) -> None:
        """A run that is under way. Of one of this fleet its own events tell."""
        run_id, before = each.run.id, self._running.get(each.run.id)
        if each.replica == here:
            self._running.pop(run_id, None)
        elif before is None and len(self._running) < MOST and each.replica:
            self._running[run_id] = each
            self._settled.pop(run_id, None)
            self._told.append(begin_of(each))
        elif before is not None and each.replica and before.replica != each.replica:
            self._running[run_id] = each
            self._told.append(begin_of(each))

    def _ended(self, each: RunElsewhere, here: str, asked: set[str]) -> None:
        run_id = each.run.id
        before = self._running.pop(run_id, None)
        if run_id in self._settled:
            return
        self._settle(run_id)
        if run_id in asked or (before is not None and each.replica != here):
            self._told.append(end_of(each))
        elif before is None and each.replica != here and not self._is_first:
            self._told += (begin_of(each), end_of(each))

    def _settle(self, run_id: str) -> None:
        self._settled[run_id] = None
        while len(self._settled) > _REMEMBERED:
            self._settled.popitem(last=False)

    def _forget(self, fleet: FleetPort) -> None:
        # Runs that are under way in the feed are asked for again: their end may have been missed.
        self._of, self._is_first = fleet, True
        self._settled.clear()


def begin_of(each: RunElsewhere) -> RunStarted:
    """The event that a run began, without its texts."""
    run = each.run
    return RunStarted(
        at=run.started_at,
        run_id=run.id,
        agent=one_line(run.agent, 100),
        principal=each.principal,
        identity=each.identity,
        parent_span=run.parent_span,
        surface=run.surface,
        thread=run.thread,
        forked_from=run.forked_from,
        forked_at=run.forked_at,
        replica=each.replica,
    )


def end_of(each: RunElsewhere) -> RunFinished:
    """The event that a run ended."""
    run: RunRecord = each.run
    return RunFinished(
        at=run.finished_at or run.started_at + run.seconds,
        run_id=run.id,
        agent=one_line(run.agent, 100),
        outcome="error" if run.status == "running" else run.status,
        seconds=run.seconds,
        steps=run.steps,
        tools=run.tools,
        tokens_in=run.tokens_in,
        tokens_out=run.tokens_out,
        cost=run.cost,
        unpriced=run.unpriced,
        fault=one_line(run.fault, 500),
        replica=each.replica,
    )
