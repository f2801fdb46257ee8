"""A project's agents, registry and programs, from start to stop, in one event loop."""

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette

from pallas.access.grants import Grants
from pallas.config import AgentConfig, Project, fill_unset
from pallas.config.kinds import WorkerConfig
from pallas.executors.project_imports import forget
from pallas.model import (
    AgentDetail,
    AgentState,
    Envelope,
    Event,
    Exchange,
    Fault,
    FaultType,
    FleetChanged,
    FleetSnapshot,
    FleetState,
    FleetVerb,
    Notice,
    RunEvent,
    ToolOutcome,
    Verb,
)
from pallas.runs.kernel import Kernel
from pallas.surfaces.auth.inbound_auth import Inbound
from pallas.surfaces.host_guard import allowed_hosts_of
from pallas.surfaces.virtual_servers import make_virtual
from pallas.telemetry.event_hub import Hub
from pallas.telemetry.wire_record import WireRecord
from pallas.toolbox.seen_tools import SeenTools

from .agent import FleetAgent
from .agent_control import AgentControl
from .agent_factory import is_typed, make_executor
from .api import Api, make_api
from .delegation import Delegation, Delegations
from .dynamic_agents import DynamicAgents, make_catalog
from .fleet_surfaces import FleetSurfaces, OfflineModel, Pages
from .gc_policy import tend
from .handler_messages import HandlerMessages
from .health_monitor import CHECK_INTERVALS, CheckIntervals, ProviderChecks, watch_health, watch_log
from .inspector import Inspector
from .loop_watch import LoopWatch
from .membership import Membership, as_it_is
from .options import WorkingFolder, alone, keeps_wire
from .own_llms import OwnLlms
from .parts import parts_of
from .ports import ANYWHERE, LOOPBACK, WELL_KNOWN, FleetPorts
from .programs import Program, children_use_our_python
from .registration import Registration
from .reloading import reloader_of
from .shutdown import LEAST, STOP_WITHIN, Drained, drain, end, quietly
from .start_order import StartOrder
from .startup import is_loopback, openness
from .storage import Storage
from .supervisor.dependency_health import DependencyHealth
from .versions import MakeExecutor

if TYPE_CHECKING:
    from pallas.catalog import Catalog
    from pallas.ledger import Ledger
    from pallas.llm.llm_service import LlmService
    from pallas.messaging.delivery import Pump
    from pallas.sessions.thread_access import Threads
    from pallas.surfaces.control.opening import OpenControl

    from .message_peers import MessagePeers

log = logging.getLogger(__name__)


class Fleet:
    """Everything of one project that is alive.

    ``dev`` binds loopback, else all interfaces, unless the project says ``bind:`` (C23). With
    ``only`` a single agent is served: no registry, no dependencies (PR-4), and ``/healthz``, ``/readyz`` and
    ``/metrics`` on the agent's own port. ``record`` says whether what runs say over the wire is kept for
    ``exchanges``; without it as ``PALLAS_WIRE_RECORD`` says, else with ``dev`` only. ``seen`` is a file for
    the tool lists that servers had; without it they are kept in memory. With ``watch`` changed files are
    applied by themselves. ``database`` is the URL of what keeps conversations, None for none: then they live
    in memory and there is no REST API. Making one reads the offline model's script: raises ConfigError with
    its mistakes.
    """

    def __init__(
        self,
        project: Project,
        *,
        hub: Hub | None = None,
        dev: bool = False,
        only: str | None = None,
        pace: CheckIntervals = CHECK_INTERVALS,
        record: bool | None = None,
        seen: Path | None = None,
        make_executor: MakeExecutor = make_executor,
        watch: bool = False,
        database: str | None = None,
    ) -> None:
        project = self.project = alone(project, only)
        self.hub = hub or Hub()
        self.kernel = Kernel(self.hub, wire=WireRecord() if keeps_wire(record, dev) else None)
        self.state = FleetState.STARTING
        self._since = time()
        self._only = only
        self._bind = project.bind or (LOOPBACK if dev else ANYWHERE)
        self.ports = FleetPorts(
            project, host=self._bind, hosts=allowed_hosts_of(project, self._bind), only=only
        )
        self.reach = Delegation(self)
        self.messaging = HandlerMessages(self)
        delegations = Delegations(self.kernel.in_flight, lambda name: self._members.by_name.get(name))
        self.inbound = Inbound(dev=dev, loopback=is_loopback(self._bind), asked_for=delegations.asked_for)
        self.inbound.adopt(project)
        self.catalog: Catalog | None = None
        self.api: Api | None = None
        self.lasting = Storage(
            database,
            kernel=self.kernel,
            hub=self.hub,
            grants=lambda: self.grants,
            tasks=lambda: self.project.tasks,
            stopping=lambda: self.state not in (FleetState.STARTING, FleetState.RUNNING),
        )
        self._pace = pace
        self._providers = ProviderChecks(project, self.hub, self._refresh_health, pace)
        self._pages = Pages(
            lambda: self.project, self.snapshot, lambda: self._providers.reports, alone=bool(only)
        )
        self.metrics = self._pages.metrics
        servers = {} if only else project.servers
        self._programs = {name: Program(each, self.hub) for name, each in servers.items()}
        self._members = Membership(
            self.ports,
            hub=self.hub,
            kernel=self.kernel,
            make_executor=self.reach.making(make_executor),
            provider_problem=self._providers.problem,
            pages=self._pages.of_agents,
            inbound=self.inbound,
            tasks=lambda: self.lasting.tasks,
            llms=OwnLlms(pace.until_check),
        )
        self._agents = self._members.by_name
        self._control = AgentControl(
            lambda: self.agents,
            self.hub,
            refusal=self._refusal,
            adopted=self._adopted,
            among=lambda files: self.made.among(files),
        )
        self._inspector = Inspector(
            lambda: self.agents,
            project=lambda: self.project,
            published=lambda: None if self._only else self.snapshot(),
            seen=SeenTools(seen),
        )
        self.virtual = make_virtual(
            self.kernel,
            lambda: self.project,
            self.snapshot,
            self.inbound,
            self.hub,
            lambda: self.catalog,
        )
        self.front = FleetSurfaces(self)
        # Whoever wants the fleet to be controlled over HTTP sets this before the start.
        self.control_api: OpenControl | None = None
        self._offline = OfflineModel(project)
        self._folder = WorkingFolder()
        self._programs_ready = asyncio.Event()
        self._dependants = DependencyHealth(lambda: self.agents, self.hub)
        self._order = StartOrder(lambda: self._agents, self.hub, self._programs_ready)
        self.made = DynamicAgents(
            project,
            project=lambda: self.project,
            adopt=partial(setattr, self, "project"),
            members=self._members,
            control=self._control,
            start=self._order.start,
            refusal=self._refusal,
            hub=self.hub,
            alone=bool(only),
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._watches = watch
        self._reloader = reloader_of(
            self,
            control=self._control,
            order=self._order,
            programs=self._programs,
            check_providers=lambda project: self._own(self._providers.check_now(project)),
            read=self._read_anew,
            script=self._offline.replace,
            only=only,
        )
        lag = project.loop_lag
        self._loop_watch = LoopWatch(self.hub, project.root, lag, self._may_be_apart) if lag else None
        self._unlisten = (self.hub.listen(self.metrics.observe), self.hub.listen(self._hear))

    @property
    def grants(self) -> Grants:
        """Who may do what, by the project's files as they were last read without a mistake."""
        return self.inbound.grants

    @property
    def ledger(self) -> "Ledger | None":
        """What keeps conversations, while the fleet is alive and has one."""
        return self.lasting.ledger

    @property
    def threads(self) -> "Threads | None":
        """The durable threads as principals may see them; None where nothing is kept."""
        return self.lasting.threads

    @property
    def peers(self) -> "MessagePeers":
        """Who takes messages of handlers here."""
        return self.messaging.peers

    @property
    def pump(self) -> "Pump":
        """What delivers messages between handlers."""
        return self.messaging.pump

    @property
    def llms(self) -> "LlmService":
        """What answers what handlers ask of models."""
        return self.messaging.llms

    @property
    def registry_url(self) -> str:
        """The registry's document, as this machine reaches it; empty when none is served."""
        if self._only:
            return ""
        return self.ports.origin + WELL_KNOWN

    @property
    def model_server(self) -> Starlette | None:
        """The offline model that is served, if there is one."""
        return self._offline.server

    @property
    def bind(self) -> str:
        """The address that every port is bound to."""
        return self._bind

    @property
    def agents(self) -> tuple[FleetAgent, ...]:
        """The agents served, in the order of the project."""
        return self._members.all

    def snapshot(self) -> FleetSnapshot:
        """The fleet as a value. Safe from any thread."""
        return FleetSnapshot(
            name=self.project.name,
            state=self.state,
            since=self._since,
            registry_url=self.registry_url,
            agents=tuple(agent.snapshot() for agent in self.agents),
            servers=tuple(program.snapshot() for program in list(self._programs.values())),
            watch=self._reloader.snapshot(),
        )

    def register(
        self, handler: Any, *, capabilities: Sequence[str] = (), capacity: int = 64, replace: bool = False
    ) -> Registration:
        """An agent in plain Python (``pallas.handlers``) is one of the fleet's, before its start or after.

        It is there when this returns; ``await`` what it returns to go on when it answers. It is served at the
        fleet's port alone, takes ``capacity`` runs at a time, and stands before a worker or a remote agent of
        its id (C14). Raises Fault (CONFIG): it cannot work, or its id is taken; with ``replace`` it takes the
        other one's place. In the fleet's loop.
        """
        return self.made.registered.handler(
            handler, capabilities=capabilities, capacity=capacity, replace_=replace
        )

    def register_worker(
        self,
        id: str,  # noqa: A002 - the word of SPEC 7.4
        worker: WorkerConfig,
        *,
        capabilities: Sequence[str] = (),
        replace: bool = False,
    ) -> Registration:
        """A program that answers on its stdin and stdout is one of the fleet's; as ``register``."""
        return self.made.registered.worker(id, worker, capabilities=capabilities, replace_=replace)

    def unregister(self, id: str) -> Registration:  # noqa: A002
        """Take out what was registered under that id; who it stood before answers again.

        Of several the one that answers. Raises Fault (CONFIG) where there is none.
        """
        return self.made.registered.remove(id)

    def exchanges(self, run_id: str) -> tuple[Exchange, ...]:
        """What a run said over the wire, oldest first; empty when nothing of it is kept any more.

        Raises Fault (CONFIG) where nothing is kept at all.
        """
        if self.kernel.wire is None:
            raise Fault(
                FaultType.CONFIG,
                "this fleet does not keep what goes over the wire: start it with PALLAS_WIRE_RECORD=1",
            )
        return self.kernel.wire.exchanges(run_id)

    def envelopes(self, run_id: str, after: int = 0, limit: int | None = None) -> tuple[Envelope, ...]:
        """Messages between the handlers of a run, those with a number above ``after``, the lowest first."""
        return self.messaging.envelopes(run_id, after, limit)

    def control(self, agent: str, verb: Verb) -> None:
        """Do something with one agent; returns at once, events tell the outcome. In the fleet's loop."""
        self._control.ask(agent, verb)

    def control_fleet(self, verb: FleetVerb) -> None:
        """Do something with the whole fleet; returns at once, events tell. In the fleet's loop."""
        if refusal := self._refusal():
            self.hub.publish(Notice(level="warning", text=f"{verb} was not done: {refusal}"))
        else:
            self._reloader.control(verb)

    async def describe(self, agent: str) -> AgentDetail:
        """Everything about an agent, its tools and its downstreams', within 30 s. Raises Fault."""
        return await self._inspector.describe(agent)

    async def call_tool(
        self, agent: str, server: str, tool: str, arguments: Mapping[str, Any], bearer: str | None = None
    ) -> ToolOutcome:
        """Call a tool of the agent (``server`` is empty) or of a downstream, within 300 s. Raises Fault."""
        return await self._inspector.call_tool(agent, server, tool, arguments, bearer)

    def reserve(self) -> None:
        """Take every port. Raises Fault (CONFIG) with a line for each that cannot be had."""
        self.ports.reserve(self._chosen())

    async def start(self) -> None:
        """Start everything; returns when each agent is ready or in error.

        Order (PR-5, C5): the registry, preflight, the project's programs, agents others depend on, the
        rest. One agent's failure is its own (PR-7). Raises Fault (CONFIG) when ports are taken.
        """
        if not self.ports.reserved:
            self.reserve()
        self._folder.enter(self.project.root)
        children_use_our_python()
        fill_unset(self.project.root, self.project.unset)
        await self.lasting.open(self.project)
        if self.ledger is not None:
            self.catalog = await make_catalog(self, self.ledger)
        if self._watches:  # before anything is read: what changes from now on is not missed
            self._own(self._reloader.watch())
        for warning in (*(each.sentence for each in self.project.warnings), *self.ports.warnings()):
            log.warning("%s", warning)
            self.hub.publish(Notice(level="warning", text=warning))
        self._warn_when_open()
        for config in self._chosen():
            self._members.add(self.project, config)
        self.made.live()
        self.hub.publish(FleetChanged(state=self.state, detail=f"{len(self._agents)} agents"))
        self._own(watch_log(self.hub))
        await self.front.start()
        await self._offline.start(self.ports)
        if self.ports.has_fleet_port:
            control = self.control_api.app if self.control_api is not None else None
            self.api = await make_api(self)
            app = self._pages.app(control, self.api.app if self.api is not None else None)
            await self.ports.open_fleet(app if self._only else self.front.before(self.virtual.before(app)))
        checked = self._own(self._providers.check())  # the registry answers by now, and lists the agents
        self._own(self._start_programs())
        self._own(self.messaging.boot())
        await asyncio.wait({checked}, timeout=6.0)
        await asyncio.gather(*(self._order.start(agent, alone=bool(self._only)) for agent in self.agents))
        self.ports.release_claims()
        if self.state is FleetState.STARTING:
            self._move(FleetState.RUNNING)
            self._own(self.kernel.tidy())
            self._own(tend(self.hub, self.kernel.in_flight))
            self._own(watch_health(lambda: self.agents, self._pace))
            if self._loop_watch is not None:
                self._loop_watch.start()
            self._own(self._providers.watch())
            self._own(self._reloader.run())

    async def drain(self, seconds: float | None = None) -> Drained:
        """Take no new runs, give those in flight ``seconds`` (``drain_timeout``), then cut them short.

        Registry and readiness say so first, the ports answer on: ``stop`` comes after it.
        """
        if self.state not in (FleetState.STARTING, FleetState.RUNNING):
            return Drained()
        self._move(FleetState.DRAINING)
        tell = partial(self._tell_state, FleetState.DRAINING)
        drained = await drain(self.kernel, self.project.drain_timeout if seconds is None else seconds, tell)
        log.info("drained: %s", drained)
        tell(str(drained))
        return drained

    async def stop(self) -> None:
        """End everything, within five seconds: runs, ports, instances, programs, registry."""
        if self.state in (FleetState.STOPPING, FleetState.STOPPED):
            return
        self._move(FleetState.STOPPING)
        began = monotonic()
        self.ports.release_claims()
        await end(self.kernel, parts_of(self, self._tasks, self._programs.values()))
        for unlisten in (*self._unlisten, self._reloader.close, self._dependants.close):
            unlisten()
        forget(self.project.root)
        if self.catalog is not None:
            self.catalog.close()
        await self.lasting.close(max(LEAST, STOP_WITHIN - (monotonic() - began)))
        self.inbound.close()
        self.ports.release()
        self._folder.leave(self.project.root)
        self._move(FleetState.STOPPED)

    def _chosen(self) -> tuple[AgentConfig, ...]:
        if self._only is None:
            return tuple(self.project.agents.values())
        return (self.project.agents[self._only],)

    async def _start_programs(self) -> None:
        try:
            await quietly(program.start() for program in self._programs.values())
        finally:
            self._programs_ready.set()

    def _refusal(self) -> str:
        """Why nothing can be done with an agent now."""
        gone = self.state in (FleetState.DRAINING, FleetState.STOPPING, FleetState.STOPPED)
        return f"the fleet is {self.state.value}" if gone else ""

    def _adopted(self, config: AgentConfig) -> None:
        """An agent has another configuration: the registry shows it, and the end goes by it."""
        self.project = as_it_is(self.project, {**self.project.agents, config.name: config})

    def _read_anew(self, project: Project) -> Project:
        """The project as this fleet takes it, which was just read without a mistake."""
        whole = self.made.read(alone(project, self._only))
        self.inbound.adopt(whole)
        self.messaging.adopt(whole)
        self.ports.allow(allowed_hosts_of(project, self._bind))
        self.ports.behind(project.public_url)
        return whole

    def _refresh_health(self) -> None:
        for agent in self.agents:
            if agent.state is AgentState.READY:  # the others have better reasons
                agent.watched.refresh()

    def _may_be_apart(self, agent: str) -> bool:
        # Read from another thread; the tuple of agents is replaced and never changed.
        found = next((each for each in self.agents if each.name == agent), None)
        return found is None or found.config.kind == "llm" or is_typed(found.config)

    def _hear(self, event: Event) -> None:
        if isinstance(event, RunEvent) and (agent := self._agents.get(event.agent)) is not None:
            agent.watched.hear(event)

    def _warn_when_open(self) -> None:
        for notice in openness(self.inbound, self._bind, [each.name for each in self._chosen()]):
            log.log(logging.WARNING if notice.level == "warning" else logging.INFO, "%s", notice.text)
            self.hub.publish(notice)

    def _move(self, state: FleetState) -> None:
        self.state, self._since = state, time()
        log.info("fleet %s: %s", self.project.name, state.value)
        self.hub.publish(FleetChanged(state=state))

    def _tell_state(self, state: FleetState, detail: str) -> None:
        self.hub.publish(FleetChanged(state=state, detail=detail))

    def _own(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
