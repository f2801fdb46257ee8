"""Placeholders for a fleet that is not there yet, or cannot be."""

from collections.abc import Callable
from dataclasses import replace
from time import time
from typing import Any

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
from pallas.telemetry.event_hub import EventHub


def outlives(fleet: RunningFleet | None) -> bool:
    """Whether the fleet runs on without this workbench, because another process runs it."""
    return fleet is not None and fleet.outlives


class PlaceholderFleet(FleetPort):
    """Shown before there is a fleet. It refuses every operation with a Fault (TRANSPORT)."""

    can_control = False

    def __init__(self, name: str) -> None:
        self._snapshot = FleetSnapshot(name, FleetState.STARTING, time(), "")
        self._hub = EventHub(1)

    def snapshot(self) -> FleetSnapshot:
        return self._snapshot

    def since(self, seq: int, limit: int = 5_000) -> EventBatch:
        return self._hub.since(seq, limit)

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        return self._hub.listen(lambda event: wake())

    async def _call(self, operation: Operation, arguments: dict[str, Any]) -> Any:
        raise Fault(FaultType.TRANSPORT, "the fleet is not running; wait until it has started")

    def _send(self, operation: Operation, arguments: dict[str, Any]) -> None:
        """There is nothing to control."""


class BrokenFleet(PlaceholderFleet):
    """Shown when the fleet cannot be started."""

    def __init__(self, name: str, error: str) -> None:
        super().__init__(name)
        self._snapshot = replace(self._snapshot, state=FleetState.FAILED, error=error)
