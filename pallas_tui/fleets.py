"""What the workbench asks of the fleet that it runs, and what stands in for one."""

from collections.abc import Mapping
from dataclasses import replace
from time import time
from typing import Any, Final, Protocol

from pallas.model import (
    AgentDetail,
    Envelope,
    EventBatch,
    Exchange,
    Fault,
    FaultType,
    FleetPort,
    FleetSnapshot,
    FleetState,
    FleetVerb,
    MessageRecord,
    Page,
    TaskRecord,
    ThreadRecord,
    ToolOutcome,
    Verb,
)
from pallas.telemetry.events import Hub

READ_ONLY: Final = "read-only: this token may only look"
"""What is said to whoever would change a fleet that may only be looked at."""


class RunningFleet(FleetPort, Protocol):
    """A fleet that this process starts and stops; ``start`` returns at once, ``stop`` blocks."""

    def start(self) -> None:
        """Begin to start."""
        ...

    def stop(self, timeout: float) -> None:
        """Stop, within ``timeout`` seconds."""
        ...


def outlives(fleet: RunningFleet | None) -> bool:
    """Whether the fleet goes on without this workbench, because somebody else runs it."""
    return bool(getattr(fleet, "outlives", False))


class NoFleet:
    """What is shown before there is a fleet. Whatever is asked of it is refused with a Fault (TRANSPORT)."""

    can_control = False

    def __init__(self, name: str) -> None:
        self._snapshot = FleetSnapshot(name, FleetState.STARTING, time(), "")
        self._hub = Hub(1)

    def snapshot(self) -> FleetSnapshot:
        return self._snapshot

    def since(self, seq: int, limit: int = 5_000) -> EventBatch:
        return self._hub.since(seq, limit)

    def cancel(self, run_id: str) -> None:
        """There is nothing to cancel."""

    def control(self, agent: str, verb: Verb) -> None:
        """There is nothing to control."""

    def control_fleet(self, verb: FleetVerb) -> None:
        """There is nothing to control."""

    async def describe(self, agent: str) -> AgentDetail:
        raise _not_there()

    async def exchanges(self, run_id: str) -> tuple[Exchange, ...]:
        raise _not_there()

    async def envelopes(self, run_id: str, after: int = 0, limit: int = 1_000) -> tuple[Envelope, ...]:
        raise _not_there()

    async def call_tool(
        self, agent: str, server: str, tool: str, arguments: Mapping[str, Any], bearer: str | None = None
    ) -> ToolOutcome:
        raise _not_there()

    async def threads(self, agent: str = "", limit: int = 50, cursor: str = "") -> Page[ThreadRecord]:
        raise _not_there()

    async def thread(self, agent: str, thread: str) -> ThreadRecord:
        raise _not_there()

    async def thread_messages(
        self, thread: str, limit: int = 50, cursor: str = "", newest_first: bool = False
    ) -> Page[MessageRecord]:
        raise _not_there()

    async def rename_thread(self, thread: str, title: str) -> ThreadRecord:
        raise _not_there()

    async def delete_thread(self, thread: str) -> None:
        raise _not_there()

    async def tasks(self, agent: str = "", limit: int = 50, cursor: str = "") -> Page[TaskRecord]:
        raise _not_there()

    async def task(self, id: str) -> TaskRecord:  # noqa: A002 - the word of the record
        raise _not_there()

    async def cancel_task(self, id: str) -> TaskRecord:  # noqa: A002 - as above
        raise _not_there()

    async def save_params(self, agent: str, params: Mapping[str, Any]) -> str:
        raise _not_there()


def _not_there() -> Fault:
    return Fault(FaultType.TRANSPORT, "the fleet is not running; wait until it has started")


class BrokenFleet(NoFleet):
    """What is shown when there is no fleet and will be none."""

    def __init__(self, name: str, error: str) -> None:
        super().__init__(name)
        self._snapshot = replace(self._snapshot, state=FleetState.FAILED, error=error)
