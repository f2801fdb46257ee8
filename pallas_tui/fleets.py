"""What the workbench asks of the fleet that it runs, and what stands in for one."""

from dataclasses import replace
from time import time
from typing import Any, Final

from pallas.model import (
    EventBatch,
    Fault,
    FaultType,
    FleetPort,
    FleetSnapshot,
    FleetState,
    Operation,
    RunningFleet,
)
from pallas.telemetry.event_hub import Hub

READ_ONLY: Final = "read-only: this token may only look"
"""What is said to whoever would change a fleet that may only be looked at."""


def outlives(fleet: RunningFleet | None) -> bool:
    """Whether the fleet goes on without this workbench, because somebody else runs it."""
    return fleet is not None and fleet.outlives


class PlaceholderFleet(FleetPort):
    """What is shown before there is a fleet. Whatever is asked of it is refused with a Fault (TRANSPORT)."""

    can_control = False

    def __init__(self, name: str) -> None:
        self._snapshot = FleetSnapshot(name, FleetState.STARTING, time(), "")
        self._hub = Hub(1)

    def snapshot(self) -> FleetSnapshot:
        return self._snapshot

    def since(self, seq: int, limit: int = 5_000) -> EventBatch:
        return self._hub.since(seq, limit)

    async def _call(self, operation: Operation, arguments: dict[str, Any]) -> Any:
        raise Fault(FaultType.TRANSPORT, "the fleet is not running; wait until it has started")

    def _send(self, operation: Operation, arguments: dict[str, Any]) -> None:
        """There is nothing to control."""


class BrokenFleet(PlaceholderFleet):
    """What is shown when there is no fleet and will be none."""

    def __init__(self, name: str, error: str) -> None:
        super().__init__(name)
        self._snapshot = replace(self._snapshot, state=FleetState.FAILED, error=error)
