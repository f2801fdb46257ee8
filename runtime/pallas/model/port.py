"""What the workbench asks of a fleet, whether it runs in the same process or elsewhere."""

from dataclasses import dataclass
from typing import Protocol

from .events import Event
from .snapshot import FleetSnapshot


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events after a sequence number, oldest first.

    ``next`` is the number to ask from next; ``dropped`` counts those that left the ring unread.
    """

    events: tuple[Event, ...]
    next: int
    dropped: int = 0


class FleetPort(Protocol):
    """All calls return at once and may come from any thread."""

    def snapshot(self) -> FleetSnapshot:
        """The fleet as it is now."""
        ...

    def since(self, seq: int, limit: int = 5_000) -> EventBatch:
        """Events with a number above ``seq``, at most ``limit`` of them."""
        ...

    def cancel(self, run_id: str) -> None:
        """Ask for a run to be cancelled; its ``RunFinished`` tells when it is."""
        ...
