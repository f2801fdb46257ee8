"""The one clock of the workbench: what the fleet said and how it is, ten times a second while it changes.

A conversation draws its text by itself (``widgets/chat/conversation_view.py``).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from pallas.model import AgentSnapshot, AgentState, Attachment, Event, FleetPort, FleetSnapshot, FleetState

from .frame import FleetFrame

PERIOD: Final = 0.1
"""Seconds between two ticks."""
IDLE: Final = 1.0
"""Seconds between two ticks at rest, and after which a frame is made although nothing happened."""
LATELY: Final = 10.0
"""Seconds after the last change in which what is shown may still depend on the time."""
STILL: Final = 5.0
"""The same as ``IDLE`` after that, unless something counts time."""
QUIET: Final = 10
"""Ticks without a change after which the clock is at rest."""
BATCH: Final = 1_000
"""Events of one frame: more than that no one can follow, and a key would wait until they were taken in."""

_MOVING: Final = frozenset({AgentState.IMPORTING, AgentState.CONNECTING, AgentState.STOPPING})


@dataclass(slots=True)
class Counts:
    """What the clock has read since it began."""

    frames: int = 0
    events: int = 0
    dropped: int = 0


class UiClock:
    """Turns a fleet into frames. It never waits and holds at most one batch of the hub's events.

    ``attached`` gives the agents of instances elsewhere, the same tuple while nothing changed; ``elsewhere``
    gives what is new of the runs of other replicas.

    The clock is at rest once nothing has changed for a while and nothing is on its way. Then a tick each
    ``IDLE`` seconds is enough until it calls ``wake``, on any thread: the fleet has said something. What
    changed is in the frame of that tick; without a change there is a frame each ``STILL`` seconds.
    """

    def __init__(
        self,
        fleet: FleetPort,
        clock: Callable[[], float],
        attached: Callable[[], tuple[AgentSnapshot, ...]] = tuple,
        elsewhere: Callable[[], tuple[Event, ...]] = tuple,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._fleet = fleet
        self._clock = clock
        self._attached = attached
        self._elsewhere = elsewhere
        self._last_attached: tuple[AgentSnapshot, ...] = ()
        self.counts = Counts()
        self._seq = 0
        self._last: tuple[FleetSnapshot, Attachment | None] | None = None
        self._sent = self._changed_at = float("-inf")
        self._wake = wake
        self._quiet = 0
        self.at_rest = False
        self._deaf = fleet.listen(self._hear)

    def attach(self, fleet: FleetPort) -> None:
        """Read another fleet from now on, from its first event."""
        self._deaf()
        self._fleet, self._seq, self._last = fleet, 0, None
        self._deaf = fleet.listen(self._hear)
        self._hear()

    def _hear(self) -> None:
        # On the fleet's thread, for each event of a flood.
        if self.at_rest:
            self.at_rest = False
            self._wake()

    def read(self) -> FleetFrame | None:
        """The next frame; None when nothing happened, nothing is on its way and the last is not old."""
        batch = self._fleet.since(self._seq, BATCH)
        # After the events: a run that they do not end yet is still counted in the snapshot.
        snapshot, attachment = self._fleet.snapshot(), self._fleet.attachment
        now = self._clock()
        self._seq = batch.next
        self.counts.events += len(batch.events)
        self.counts.dropped += batch.dropped
        attached, elsewhere = self._attached(), self._elsewhere()
        changed = (
            bool(batch.events)
            or bool(batch.dropped)
            or bool(elsewhere)
            or attached is not self._last_attached
            or _differ((snapshot, attachment), self._last)
        )
        if not changed and self._last is not None:
            snapshot, attachment = self._last  # panes compare it with the one before
        moves = changed or _moving(snapshot)
        self._rest(moves)
        if moves:
            self._changed_at = now
        # A tick at rest may come a little early.
        elif 0 <= now - self._sent < self._pause(snapshot, now) - PERIOD:
            return None
        self._last, self._last_attached, self._sent = (snapshot, attachment), attached, now
        self.counts.frames += 1
        return FleetFrame(snapshot, batch.events, now, batch.dropped, attached, attachment, elsewhere)

    def _pause(self, snapshot: FleetSnapshot, now: float) -> float:
        """Seconds between two frames in which nothing changed."""
        is_late = 0 <= now - self._changed_at < LATELY
        due = *(each.restart_at for each in snapshot.agents), *(each.restart_at for each in snapshot.servers)
        return IDLE if is_late or any(due) else STILL

    def _rest(self, moves: bool) -> None:
        self._quiet = 0 if moves else self._quiet + 1
        self.at_rest = self._quiet >= QUIET
        # An event since the read found a clock that was not at rest yet, and woke nothing.
        if self.at_rest and self._fleet.since(self._seq, 1).events:
            self.at_rest = False


type _Picture = tuple[FleetSnapshot, Attachment | None]


def _differ(now: _Picture, before: _Picture | None) -> bool:
    """Whether more changed than the times at which agents were found as they were."""
    if before is None or now == before:
        return before is None
    return now[1] != before[1] or _unchecked(now[0]) != _unchecked(before[0])


def _unchecked(snapshot: FleetSnapshot) -> FleetSnapshot:
    agents = (replace(each, health=replace(each.health, checked_at=0.0)) for each in snapshot.agents)
    return replace(snapshot, agents=tuple(agents))


def _moving(snapshot: FleetSnapshot) -> bool:
    """Whether something on screen counts time."""
    return snapshot.state in (FleetState.STARTING, FleetState.STOPPING) or any(
        agent.runs_active or agent.state in _MOVING for agent in snapshot.agents
    )
