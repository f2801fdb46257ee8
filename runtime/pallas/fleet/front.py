"""What stands before a fleet's agents: who there is, sessions, long work, and the one door to all of it."""

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from pallas.model import AgentState, Event, FleetState, Reloaded
from pallas.routing.directory import Directory
from pallas.sessions import Admission, Sessions
from pallas.surfaces.bridge.place import BridgePlace

if TYPE_CHECKING:
    from pallas.surfaces.bridge.app import BridgeParts
    from pallas.tasks import Tasks

    from .fleet import Fleet


class Front:
    """The parts that look at the fleet as a whole. Made with the fleet, begun and ended with it.

    ``directory`` says who there is, ``sessions`` are those that are open, ``admission`` counts the requests
    that the bridge has under way.
    """

    def __init__(self, fleet: "Fleet") -> None:
        self._fleet = fleet
        self.directory = Directory(
            lambda: fleet.agents,
            hub=fleet.hub,
            may_run=lambda principal, agent: fleet.grants.may_run(principal, agent),
            default=lambda: fleet.project.default_agent,
        )
        self.sessions = Sessions(
            fleet.kernel,
            self.directory,
            hub=fleet.hub,
            limits=lambda: fleet.project.sessions,
            permit=fleet.inbound.permit,
        )
        self.admission = Admission(lambda: fleet.project.sessions.concurrent)
        fleet._members.listen(self._changed)
        self._unlisten = fleet.hub.listen(self._hear)
        self._tending: asyncio.Task[None] | None = None
        self._began = monotonic()
        self._bridge = BridgePlace(
            self._bridge_parts,
            project=lambda: fleet.project,
            inbound=fleet.inbound,
            wire=fleet.kernel.wire,
        )

    @property
    def tasks(self) -> "Tasks | None":
        """Long work with a durable handle; None where nothing is kept."""
        return self._fleet.lasting.tasks

    def before(self, app: ASGIApp) -> ASGIApp:
        """The application of the fleet's port, with the bridge at ``/mcp`` before it."""
        return self._bridge.before(app)

    async def start(self) -> None:
        """The ledger is open and the agents are known, none of them started yet."""
        self._tending = asyncio.create_task(self.sessions.tend(), name="sessions")

    async def end(self) -> None:
        """The fleet stops, and what answers is still there: sessions end; within two seconds."""
        if self._tending is not None:
            self._tending.cancel()
        await self.sessions.end()

    async def close(self) -> None:
        """The runs are over, and who asked for them over the bridge was told; within two seconds."""
        self._unlisten()
        self.directory.close()
        await self._bridge.close()

    def _bridge_parts(self) -> "BridgeParts":
        from pallas.surfaces.bridge.app import BridgeParts

        fleet = self._fleet
        return BridgeParts(
            directory=self.directory,
            sessions=self.sessions,
            admission=self.admission,
            snapshot=fleet.snapshot,
            inbound=fleet.inbound,
            started=self._started,
            tasks=lambda: self.tasks,
            handles=fleet.project.tasks.tools,
            began=self._began,
        )

    def _started(self) -> bool:
        """Whether the start is over, or some agent is ready before that."""
        return self._fleet.state is not FleetState.STARTING or any(
            agent.state is AgentState.READY for agent in self._fleet.agents
        )

    def _hear(self, event: Event) -> None:
        if isinstance(event, Reloaded) and event.outcome == "live":
            self.sessions.look()  # an agent of another kind may answer under the name now

    def _changed(self) -> None:
        self.directory.invalidate()
        self.sessions.look()
