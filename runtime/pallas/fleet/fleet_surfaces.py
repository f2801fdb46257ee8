"""What a fleet serves at its own port: registry, pages, REST, control API, bridge and virtual servers."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from pallas.config import Project
from pallas.health.preflight import ProviderReport
from pallas.model import AgentState, Event, FleetPort, FleetSnapshot, FleetState, Reloaded
from pallas.model.run_values import STREAMED_SURFACES
from pallas.runs.agent_directory import AgentDirectory
from pallas.runs.run import ActiveRun
from pallas.sessions import SessionAdmission, Sessions
from pallas.surfaces.bridge.place import BridgePlace
from pallas.surfaces.connection_shares import ConnectionShares
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
    from pallas.surfaces.parked_calls import ParkedCalls
    from pallas.surfaces.rest.rest_app import RestApi
    from pallas.tasks import Tasks


class PostponedRest:
    """The REST API, which ``make`` imports and makes in a thread at the first request.

    What it needs is a tenth of the time and memory of a start, and many fleets are asked over MCP alone.
    """

    def __init__(self, make: "Callable[[], RestApi]") -> None:
        self._make = make
        self._making = asyncio.Lock()
        self._api: RestApi | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await (await self._made())(scope, receive, send)

    async def keep(self, run: ActiveRun) -> None:
        """Store the chunks of a run of this API that another fleet began: readers may be at any replica."""
        (await self._made()).keep(run)

    async def _made(self) -> "RestApi":
        async with self._making:
            if self._api is None:
                self._api = await asyncio.to_thread(self._make)
            return self._api

    async def close(self) -> None:
        """End the runs that were started over it. Safe to call twice."""
        if self._api is not None:
            await self._api.close()


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
        self._rest: PostponedRest | None = None
        self.control_api: ServedControlApi | None = None
        self.offline_model = OfflineModel(context.project)
        self.metrics = Metrics(snapshot, self._instance)
        self.directory = _directory(context)
        self.sessions = _sessions(context, self.directory)
        self._admission = SessionAdmission(lambda: context.project.sessions.concurrent)
        self._bridge = BridgePlace(
            self._bridge_parts,
            project=lambda: context.project,
            inbound=context.inbound,
            wire=context.kernel.wire,
        )
        self._virtual = make_virtual(
            context.kernel, lambda: context.project, snapshot, context.inbound, context.hub, catalog
        )
        context.inbound.parked = cache(self._parked_calls)
        context.agents.listen(self._changed)
        self._unlisten = (context.hub.listen(self.metrics.observe), context.hub.listen(self._hear))

    @property
    def tasks(self) -> "Tasks | None":
        """Long work with a durable handle; None without a database."""
        return self._storage.tasks

    def _parked_calls(self) -> "ParkedCalls":
        """What parks calls whose runs wait for a person; made once the database is open."""
        from pallas.surfaces.parked_calls import ParkedCalls

        ledger = self._storage.ledger
        key = ledger.salt if ledger is not None else secrets.token_bytes()
        return ParkedCalls(lambda: self._storage.parked, key)

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
            worker=self._context.options.worker,
        )
        return self.control_api

    async def start(self) -> None:
        """Serve. The database is open and the agents are known, none of them started yet."""
        worker, ledger = self._context.options.worker, self._storage.ledger
        if ledger is not None and not ledger.is_private:
            self.sessions.use_ledger(ledger, worker or ledger.notes)
        self._housekeeping = asyncio.create_task(self.sessions.tend(), name="sessions")
        if worker is None or worker.is_first:
            await self.offline_model.start(self._ports)
        if not self._ports.has_fleet_port:
            return
        self._rest = self._make_rest()
        app = self._pages()
        if not self._context.is_alone:
            app = self._bridge.before(self._virtual.before(app))
        await self._ports.open_fleet(app)
        if self._shares is not None:
            self._shares.publish_port(self._shares.own_ports[self._context.project.registry_port])

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
        await self.sessions.close_records()

    def _pages(self) -> ASGIApp:
        if self._context.is_alone:
            return Starlette(routes=[Route(path, page) for path, page in self._status().items()])
        return registry_app(
            lambda: self._context.project,
            self._snapshot,
            metrics=self.metrics,
            shares=self._shares,
            providers=self._providers,
            control=self.control_api.app if self.control_api is not None else None,
            rest=self._rest,
        )

    def _status(self) -> Mapping[str, Page]:
        root = self._context.project.root
        return status_pages(
            self._snapshot, root=root, metrics=self.metrics, providers=self._providers, shares=self._shares
        )

    @property
    def _shares(self) -> ConnectionShares | None:
        worker = self._context.options.worker
        return worker.shares if worker is not None else None

    def _instance(self) -> str:
        """``host:port`` under which others know the registry; empty without one."""
        return "" if self._context.is_alone else urlsplit(base_url(self._context.project)).netloc

    def _make_rest(self) -> PostponedRest | None:
        """Return the REST API of a fleet with a database."""
        ledger, threads, catalog = self._storage.ledger, self._storage.threads, self._catalog()
        if ledger is None or threads is None or catalog is None:
            return None

        def make() -> "RestApi":
            from pallas.surfaces.rest.rest_app import RestParts, rest_app
            from pallas.surfaces.rest.rest_principal import Authenticator

            return rest_app(
                RestParts(
                    kernel=self._context.kernel,
                    threads=threads,
                    catalog=catalog,
                    grants=self._context.grants,
                    authenticate=Authenticator(self._context.inbound, self._control_tokens),
                    project=lambda: self._context.project,
                    snapshot=self._snapshot,
                    ledger=ledger,
                    tasks=self._storage.tasks,
                    shares=self._shares,
                )
            )

        rest = PostponedRest(make)

        def resumed(run: ActiveRun) -> None:
            if run.surface in STREAMED_SURFACES:
                self._context.tasks.start(rest.keep(run))

        self._context.kernel.when_resumed = resumed
        return rest

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
            handles=lambda: self._context.project.tasks.tools,
            questions=self._context.kernel.questions,
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
