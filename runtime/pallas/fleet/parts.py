"""What of a fleet has to be ended, in the order of its end."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .programs import Program
from .shutdown import ShutdownParts

if TYPE_CHECKING:
    from .fleet import Fleet


def parts_of(
    fleet: "Fleet", tasks: Iterable[asyncio.Task[None]], programs: Iterable[Program]
) -> ShutdownParts:
    """As it is now; ``tasks`` are the fleet's own."""
    agents = fleet._agents
    return ShutdownParts(
        tasks=tuple(tasks),
        helpers=(
            fleet.front.end,
            fleet.messaging.close,
            fleet.made.close,
            fleet._control.close,
            fleet._inspector.close,
            fleet._members.close,
            *(agent.supervisor.close for agent in fleet.agents),
        ),
        layers=[[agents[name] for name in layer if name in agents] for layer in fleet.project.start_layers()],
        programs=tuple(programs),
        listeners=fleet.ports.listeners,
        control_api=fleet.control_api,
        pages=(fleet.front.close, fleet.virtual.close, *([fleet.api.close] if fleet.api is not None else [])),
    )
