"""A fleet that does what a test says: settable snapshots, a real hub, everything asked of it noted."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pallas.events import Hub
from pallas.model import (
    AgentDetail,
    AgentSnapshot,
    AgentState,
    Downstream,
    Event,
    EventBatch,
    Exchange,
    Fault,
    FaultType,
    FleetSnapshot,
    FleetState,
    FleetVerb,
    Health,
    HealthStatus,
    Reach,
    ToolOutcome,
    Verb,
)

NOON = 1_750_000_000.0
"""A fixed moment: 2025-06-15 15:06:40 UTC."""


def agent(name: str, port: int, **changes: object) -> AgentSnapshot:
    """A ready, healthy agent; keyword arguments replace its fields."""
    base = AgentSnapshot(
        name=name,
        title=name.title(),
        description=f"What {name} is for",
        state=AgentState.READY,
        since=NOON - 60,
        health=Health(HealthStatus.OK, "", NOON - 60, NOON - 1),
        port=port,
        url=f"http://127.0.0.1:{port}/mcp",
        model="generic.scripted",
        started_in=0.8,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def desk() -> FleetSnapshot:
    """Four agents: one that needs two others, one of those degraded, and one that sees pictures."""
    return FleetSnapshot(
        name="desk",
        state=FleetState.RUNNING,
        since=NOON - 60,
        registry_url="http://127.0.0.1:24200",
        agents=(
            agent(
                "concierge", 24201, depends_on=("research", "engineering"), runs_total=12, last_latency=3.1
            ),
            agent(
                "research",
                24202,
                downstreams=(
                    Downstream("docs", "stdio", "python docs.py", Reach.OK),
                    Downstream("vault", "http", "http://127.0.0.1:9001/mcp", Reach.AUTH_REQUIRED, "401"),
                ),
            ),
            agent(
                "engineering",
                24203,
                health=Health(HealthStatus.DEGRADED, "tickets: connection refused", NOON - 300, NOON - 1),
                downstreams=(
                    Downstream(
                        "tickets",
                        "http",
                        "http://127.0.0.1:9002/mcp",
                        Reach.UNREACHABLE,
                        "connection refused",
                    ),
                ),
            ),
            agent("vision", 24204, vision=True),
        ),
    )


class FakeFleet:
    """A ``FleetPort`` double that is also started and stopped, as ``FleetThread`` is."""

    def __init__(self, snapshot: FleetSnapshot | None = None) -> None:
        self.hub = Hub()
        self.current = snapshot if snapshot is not None else desk()
        self.cancelled: list[str] = []
        self.can_control = True
        self.controlled: list[tuple[str, Verb]] = []
        self.fleet_controlled: list[FleetVerb] = []
        self.details: dict[str, AgentDetail] = {}
        self.wire: dict[str, tuple[Exchange, ...]] = {}
        self.called: list[tuple[str, str, str, dict[str, Any], str | None]] = []
        self.outcome = ToolOutcome(ok=True, content="{}", seconds=0.1)
        self.started = 0
        self.stopped = 0

    def start(self) -> None:
        """Note that it was started."""
        self.started += 1

    def stop(self, timeout: float = 5.0) -> None:
        """Note that it was stopped."""
        self.stopped += 1

    def snapshot(self) -> FleetSnapshot:
        """The snapshot that was set last."""
        return self.current

    def since(self, seq: int, limit: int = 5_000) -> EventBatch:
        """What the hub has."""
        return self.hub.since(seq, limit)

    def cancel(self, run_id: str) -> None:
        """Note whose cancelling was asked."""
        self.cancelled.append(run_id)

    def control(self, agent: str, verb: Verb) -> None:
        """Note what was asked."""
        self.controlled.append((agent, verb))

    def control_fleet(self, verb: FleetVerb) -> None:
        """Note what was asked of the whole fleet."""
        self.fleet_controlled.append(verb)

    async def describe(self, agent: str) -> AgentDetail:
        """What was put into ``details``."""
        if agent not in self.details:
            raise Fault(FaultType.UPSTREAM, f"Agent not found: {agent}")
        return self.details[agent]

    async def exchanges(self, run_id: str) -> tuple[Exchange, ...]:
        """What was put into ``wire``."""
        return self.wire.get(run_id, ())

    async def call_tool(
        self, agent: str, server: str, tool: str, arguments: Mapping[str, Any], bearer: str | None = None
    ) -> ToolOutcome:
        """Note the call; gives ``outcome``."""
        self.called.append((agent, server, tool, dict(arguments), bearer))
        return self.outcome

    def say(self, *events: Event) -> None:
        """Publish events."""
        for event in events:
            self.hub.publish(event)

    def change(self, name: str, **changes: object) -> None:
        """Replace fields of one agent."""
        agents = tuple(
            replace(one, **changes) if one.name == name else one  # type: ignore[arg-type]
            for one in self.current.agents
        )
        self.current = replace(self.current, agents=agents)
