"""What stands before a fleet's agents: who there is, sessions, long work, and the one door to all of it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp

from pallas.config import Project
from pallas.health.preflight import ProviderReport
from pallas.model import AgentState, Event, FleetSnapshot, FleetState, Reloaded
from pallas.runs.agent_directory import Directory
from pallas.sessions import Admission, Sessions
from pallas.surfaces.bridge.place import BridgePlace
from pallas.surfaces.metrics import Metrics
from pallas.surfaces.published_agent import base_url
from pallas.surfaces.registry import registry_app
from pallas.surfaces.status_pages import Page, status_pages

from .ports import FleetPorts

if TYPE_CHECKING:
    from pallas.scripted.script_rules import Script
    from pallas.surfaces.bridge.bridge_server import BridgeParts
    from pallas.tasks import Tasks

    from .fleet import Fleet


class Pages:
    """The pages of one fleet. With ``alone`` it is one agent's, and nobody is told of others."""

    def __init__(
        self,
        project: Callable[[], Project],
        snapshot: Callable[[], FleetSnapshot],
        providers: Callable[[], Sequence[ProviderReport]],
        *,
        alone: bool,
    ) -> None:
        self._project = project
        self._snapshot = snapshot
        self._providers = providers
        self._alone = alone
        self.metrics = Metrics(snapshot, self._instance)

    def _instance(self) -> str:
        """``host:port`` under which others know the registry; empty without one."""
        return "" if self._alone else urlsplit(base_url(self._project())).netloc

    def of_agents(self) -> Mapping[str, Page]:
        """What is served on the agent's own port, by path."""
        return self._status() if self._alone else {}

    def app(self, control: ASGIApp | None, rest: ASGIApp | None = None) -> ASGIApp:
        """What is served on the fleet's port; ``control`` and ``rest`` are its APIs, if there are any."""
        if self._alone:
            return Starlette(routes=[Route(path, page) for path, page in self._status().items()])
        return registry_app(
            self._project,
            self._snapshot,
            metrics=self.metrics,
            providers=self._providers,
            control=control,
            rest=rest,
        )

    def _status(self) -> Mapping[str, Page]:
        return status_pages(self._snapshot, metrics=self.metrics, providers=self._providers)


class OfflineModel:
    """The scripted model that a project asks for, if it does; nothing of it is imported for others.

    Making one reads its script: raises ConfigError with the mistakes.
    """

    def __init__(self, project: Project) -> None:
        self._script: Script | None = None
        self.server: Starlette | None = None
        if project.scripted is not None:
            from pallas.scripted.script_file import load_script

            self._script = load_script(project.scripted.script)

    async def start(self, ports: FleetPorts) -> None:
        """Serve it at its port."""
        if self._script is None:
            return
        from pallas.scripted.scripted_server import scripted_app

        self.server = scripted_app(self._script)
        await ports.open_scripted(self.server)

    def replace(self, script: "Script") -> None:
        """From now on it answers by this script."""
        if self.server is not None:
            from pallas.scripted.scripted_server import replace_script

            replace_script(self.server, script)


class FleetSurfaces:
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
        from pallas.surfaces.bridge.bridge_server import BridgeParts

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
