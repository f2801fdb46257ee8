"""What the workbench asks of a fleet, whether it runs in the same process or elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from .events import Event
from .inspect import AgentDetail, Exchange, ToolOutcome
from .snapshot import FleetSnapshot

Verb = Literal["start", "stop", "restart", "reload", "rollback"]
"""What can be done with one agent. ``reload`` reads its definition anew and answers on meanwhile;
``rollback`` puts the version before the one that answers in its place."""

FleetVerb = Literal["pause", "resume", "reload"]
"""What can be done with the fleet: ``pause`` and ``resume`` looking after its files, or ``reload`` whatever
is different in them now."""


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events after a sequence number, oldest first.

    ``next`` is the number to ask from next; ``dropped`` counts those that left the ring unread.
    """

    events: tuple[Event, ...]
    next: int
    dropped: int = 0


class FleetPort(Protocol):
    """The plain calls return at once and may come from any thread; the others are awaited on any loop.

    What is awaited raises Fault, and gives up by itself within its deadline (30 s; a tool's call 300 s).
    ``can_control`` is False where the fleet may only be looked at: ``cancel``, ``control``,
    ``control_fleet`` and ``call_tool`` are refused there.
    """

    @property
    def can_control(self) -> bool:
        """Whether anything may be changed."""
        ...

    def snapshot(self) -> FleetSnapshot:
        """The fleet as it is now."""
        ...

    def since(self, seq: int, limit: int = 5_000) -> EventBatch:
        """Events with a number above ``seq``, at most ``limit`` of them."""
        ...

    def cancel(self, run_id: str) -> None:
        """Ask for a run to be cancelled; its ``RunFinished`` tells when it is."""
        ...

    def control(self, agent: str, verb: Verb) -> None:
        """Ask for something to be done with one agent; ``AgentChanged`` and ``Notice`` tell the outcome."""
        ...

    def control_fleet(self, verb: FleetVerb) -> None:
        """Ask for something to be done with the whole fleet; snapshot, ``Reloaded`` and ``Notice`` tell."""
        ...

    async def describe(self, agent: str) -> AgentDetail:
        """Everything about an agent, its tools and its downstreams' with their schemas."""
        ...

    async def exchanges(self, run_id: str) -> tuple[Exchange, ...]:
        """What a run said over the wire, oldest first; empty when nothing of it is kept any more."""
        ...

    async def call_tool(
        self, agent: str, server: str, tool: str, arguments: Mapping[str, Any], bearer: str | None = None
    ) -> ToolOutcome:
        """Call a tool by hand: one of the agent's own where ``server`` is empty, else of a downstream.

        A downstream is called as the agent would, with the project's settings; ``bearer`` goes along only
        where that downstream was opted in.
        """
        ...
