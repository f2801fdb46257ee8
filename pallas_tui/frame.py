"""What one tick of the UI clock brings to every pane."""

from dataclasses import dataclass

from pallas.model import AgentSnapshot, Attachment, Event, FleetSnapshot


@dataclass(frozen=True, slots=True)
class FleetFrame:
    """The fleet as it is, and what it said since the frame before.

    ``events`` are in order, oldest first. ``now`` is the clock of the workbench in Unix seconds: panes
    take it for elapsed times and never look at a clock themselves. ``dropped`` counts events that left
    the hub's ring before the clock could read them. ``attached`` are agents of instances elsewhere,
    ``attachment`` says how the fleet itself is attached if another process runs it. ``elsewhere`` are
    the begins and ends of runs of its other replicas.
    """

    snapshot: FleetSnapshot
    events: tuple[Event, ...]
    now: float
    dropped: int = 0
    attached: tuple[AgentSnapshot, ...] = ()
    attachment: Attachment | None = None
    elsewhere: tuple[Event, ...] = ()
