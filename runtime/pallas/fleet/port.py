"""The FleetPort of a fleet for code that runs in the fleet's own event loop."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pallas.model import AgentDetail, EventBatch, Exchange, FleetSnapshot, FleetVerb, ToolOutcome, Verb
from pallas.surfaces.control.opening import open_control

from .fleet import Fleet


class LoopPort:
    """What the workbench asks of a fleet, passed on to it as it stands. Belongs to the fleet's loop."""

    can_control = True

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def snapshot(self) -> FleetSnapshot:
        """The fleet as it is now."""
        return self._fleet.snapshot()

    def since(self, seq: int, limit: int = 5_000) -> EventBatch:
        """Events with a number above ``seq``."""
        return self._fleet.hub.since(seq, limit)

    def cancel(self, run_id: str) -> None:
        """Ask for a run to be cancelled."""
        self._fleet.kernel.cancel(run_id)

    def control(self, agent: str, verb: Verb) -> None:
        """Ask for something to be done with one agent."""
        self._fleet.control(agent, verb)

    def control_fleet(self, verb: FleetVerb) -> None:
        """Ask for something to be done with the whole fleet."""
        self._fleet.control_fleet(verb)

    async def describe(self, agent: str) -> AgentDetail:
        """Everything about an agent. Raises Fault."""
        return await self._fleet.describe(agent)

    async def exchanges(self, run_id: str) -> tuple[Exchange, ...]:
        """What a run said over the wire. Raises Fault."""
        return self._fleet.exchanges(run_id)

    async def call_tool(
        self, agent: str, server: str, tool: str, arguments: Mapping[str, Any], bearer: str | None = None
    ) -> ToolOutcome:
        """Call a tool by hand. Raises Fault."""
        return await self._fleet.call_tool(agent, server, tool, arguments, bearer)


def offer_control(fleet: Fleet, log_file: Path) -> None:
    """Give a fleet that has its ports, and has not started, a control API where it may have one."""
    if not fleet.registry_url:
        return
    fleet.control_api = open_control(
        LoopPort(fleet),
        project=fleet.project.root,
        bind=fleet.bind,
        port=fleet.project.registry_port,
        log_file=log_file,
    )
