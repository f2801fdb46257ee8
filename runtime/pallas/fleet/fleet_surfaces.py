"""What a fleet serves at its own port: registry, pages, REST, control API, bridge and virtual servers."""

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp

from pallas.config import Project
from pallas.health.preflight import ProviderReport
from pallas.model import AgentState, Event, FleetPort, FleetSnapshot, FleetState, Reloaded
from pallas.runs.agent_directory import AgentDirectory
from pallas.sessions import Admission, Sessions
from pallas.surfaces.bridge.place import BridgePlace
from pallas.surfaces.metrics import Metrics
from pallas.surfaces.published_agent import base_url
from pallas.surfaces.registry import registry_app
from pallas.surfaces.status_pages import Page, status_pages
from pallas.surfaces.virtual_servers import make_virtual

from .context import FleetContext
from .ports import FleetPorts
from .storage import Storage

if TYPE_CHECKING:
    from pallas.catalog import Catalog
    from pallas.scripted.script_rules import Script
    from pallas.surfaces.bridge.bridge_tools import BridgeParts
    from pallas.surfaces.control.control_api import ServedControlApi
    from pallas.tasks import Tasks


class OfflineModel:
    """The scripted model that a project asks for, if it does; its code is imported only then.

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
        """Answer by this script from now on."""
        if self.server is not None:
            from pallas.scripted.scripted_server import replace_script

            replace_script(self.server, script)


class FleetSurfaces:
    """Everything that looks at the fleet as a whole. Belongs to the fleet's event loop.

    With one agent alone its pages are all there is. ``catalog`` is None in a fleet without a database.
    """

    def __init__(
        self,
        context: FleetContext,
        ports: FleetPorts,
        storage: Storage,
        *,
        snapshot: Callable[[], FleetSnapshot],
        providers: Callable[[], Sequence[ProviderReport]],
        catalog: "Callable[[], Catalog | None]",
    ) -> None:
        self._context = context
        self._ports = ports
        self._storage = storage
        self._snapshot = snapshot
        self._providers = providers
        self._catalog = catalog
        self._began = monotonic()
        self._housekeeping: asyncio.Task[None] | None = None
        self._rest: Any = None
        self.control_api: ServedControlApi | None = None
        self.offline_model = OfflineModel(context.project)
        self.metrics = Metrics(snapshot, self._instance)
        self.directory = _directory(context)
        self.sessions = _sessions(context, self.directory)
        self._admission = Admission(lambda: context.project.sessions.concurrent)
        self._bridge = BridgePlace(
            self._bridge_parts,
            project=lambda: context.project,
            inbound=context.inbound,
            wire=context.kernel.wire,
        )
        self._virtual = make_virtual(
            context.kernel, lambda: context.project, snapshot, context.inbound, context.hub, catalog
        )
        context.agents.listen(self._changed)
        self._unlisten = (context.hub.listen(self.metrics.observe), context.hub.listen(self._hear))

    @property
    def tasks(self) -> "Tasks | None":
        """Long work with a durable handle; None without a database."""
        return self._storage.tasks

    def agent_pages(self) -> Mapping[str, Page]:
        """The pages on the agent's own port, by path: the status of an agent that is served alone."""
        return self._status() if self._context.is_alone else {}

    def open_control(self, port: FleetPort, log_file: Path) -> "ServedControlApi | None":
        """Offer a control API over ``port`` where the project may have one; once, before ``start``."""
        if self._context.is_alone:
            return None
        from pallas.surfaces.control.control_api import open_control

        self.control_api = open_control(
            port,
            project=self._context.project.root,
            bind=self._context.options.bind,
            port=self._context.project.registry_port,
            log_file=log_file,
        )
        return self.control_api

    async def start(self) -> None:
        """Serve. The database is open and the agents are known, none of them started yet."""
        self._housekeeping = asyncio.create_task(self.sessions.tend(), name="sessions")
        await self.offline_model.start(self._ports)
        if not self._ports.has_fleet_port:
            return
        await self._make_rest()
        app = self._pages()
        if not self._context.is_alone:
            app = self._bridge.before(self._virtual.before(app))
        await self._ports.open_fleet(app)

    async def end_sessions(self) -> None:
        """End all sessions while the agents still answer; within two seconds."""
        if self._housekeeping is not None:
            self._housekeeping.cancel()
        await self.sessions.end()

    @property
    def closers(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """What ends the pages once the runs are over, each within two seconds; all may go on at once."""
        rest = [self._rest.close] if self._rest is not None else []
        return (self._close_bridge, self._virtual.close, *rest)

    def close(self) -> None:
        """Hear no more of the fleet, even if its end left the pages no time. Safe to call twice."""
        for unlisten in self._unlisten:
            unlisten()

    async def _close_bridge(self) -> None:
        self.close()
        self.directory.close()
        await self._bridge.close()

    def _pages(self) -> ASGIApp:
        if self._context.is_alone:
            return Starlette(routes=[Route(path, page) for path, page in self._status().items()])
        return registry_app(
            lambda: self._context.project,
            self._snapshot,
            metrics=self.metrics,
            providers=self._providers,
            control=self.control_api.app if self.control_api is not None else None,
            rest=self._rest,
        )

    def _status(self) -> Mapping[str, Page]:
        return status_pages(self._snapshot, metrics=self.metrics, providers=self._providers)

    def _instance(self) -> str:
        """``host:port`` under which others know the registry; empty without one."""
        return "" if self._context.is_alone else urlsplit(base_url(self._context.project)).netloc

    async def _make_rest(self) -> None:
        """Make the REST API of a fleet with a database; it is imported in a thread."""
        ledger, threads, catalog = self._storage.ledger, self._storage.threads, self._catalog()
        if ledger is None or threads is None or catalog is None:
            return
        rest, principal = await asyncio.to_thread(_imported)
        parts = rest.RestParts(
            kernel=self._context.kernel,
            threads=threads,
            catalog=catalog,
            grants=self._context.grants,
            authenticate=principal.Authenticator(self._context.inbound, self._control_tokens),
            project=lambda: self._context.project,
            snapshot=self._snapshot,
            ledger=ledger,
            tasks=self._storage.tasks,
        )
        self._rest = rest.rest_app(parts)

    def _control_tokens(self) -> Any:
        return self.control_api.tokens if self.control_api is not None else None

    def _bridge_parts(self) -> "BridgeParts":
        from pallas.surfaces.bridge.bridge_tools import BridgeParts

        return BridgeParts(
            directory=self.directory,
            sessions=self.sessions,
            admission=self._admission,
            snapshot=self._snapshot,
            inbound=self._context.inbound,
            started=self._started,
            tasks=lambda: self.tasks,
            handles=self._context.project.tasks.tools,
            began=self._began,
        )

    def _started(self) -> bool:
        """Whether the start is over, or an agent is ready before that."""
        return self._context.lifecycle.state is not FleetState.STARTING or any(
            agent.state is AgentState.READY for agent in self._context.agents.all
        )

    def _hear(self, event: Event) -> None:
        if isinstance(event, Reloaded) and event.outcome == "live":
            self.sessions.look()  # an agent of another kind may have the name now

    def _changed(self) -> None:
        self.directory.invalidate()
        self.sessions.look()


def _directory(context: FleetContext) -> AgentDirectory:
    return AgentDirectory(
        lambda: context.agents.all,
        hub=context.hub,
        may_run=lambda principal, agent: context.grants.may_run(principal, agent),
        default=lambda: context.project.default_agent,
    )


def _sessions(context: FleetContext, directory: AgentDirectory) -> Sessions:
    return Sessions(
        context.kernel,
        directory,
        hub=context.hub,
        limits=lambda: context.project.sessions,
        permit=context.inbound.permit,
    )


def _imported() -> tuple[Any, Any]:
    return (
        importlib.import_module("pallas.surfaces.rest.rest_app"),
        importlib.import_module("pallas.surfaces.rest.rest_principal"),
    )
