"""A project's agents, registry and programs, from start to stop, in one event loop."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from pallas.access.grants import Grants
from pallas.config import Project, fill_unset
from pallas.config.kinds import WorkerConfig
from pallas.executors.faults.fault_injection import FaultInjection
from pallas.executors.project_imports import forget
from pallas.model import (
    AgentDetail,
    Exchange,
    Fault,
    FaultType,
    FleetChanged,
    FleetSnapshot,
    FleetState,
    FleetVerb,
    Notice,
    ToolOutcome,
    Verb,
    VerdictReached,
)
from pallas.model.fault_rules import FaultPlan
from pallas.questions.questions import Questions
from pallas.runs.kernel import Kernel
from pallas.surfaces.auth.inbound_auth import Inbound
from pallas.surfaces.host_guard import allowed_hosts_of
from pallas.surfaces.metrics import Metrics
from pallas.surfaces.session_seal import NOTE
from pallas.telemetry.event_hub import EventHub
from pallas.toolbox.seen_tools import SeenTools

from .agent import FleetAgent
from .agent_control import AgentControl
from .agent_factory import MakeExecutor, locked, make_executor, prepare_executor
from .delegation import Delegation
from .dynamic_agents import DynamicAgents
from .event_sinks import EventSinks
from .fleet_surfaces import FleetSurfaces
from .gc_policy import tend
from .handler_messages import HandlerMessages
from .health_monitor import CHECK_INTERVALS, CheckIntervals, HealthMonitor, watch_log
from .inspector import Inspector
from .membership import Membership
from .new_context import new_context
from .options import FleetOptions, lock_mode_of, served_project
from .own_llms import OwnLlms
from .ports import ANYWHERE, LOOPBACK, WELL_KNOWN, FleetPorts
from .programs import Programs
from .registration import Registration
from .reload.applier import ReloadContext
from .reload.recent_runs import RecentRuns
from .reload.reloader import Reloader
from .reload.verdict_judge import VerdictJudge
from .shutdown import LEAST, STOP_WITHIN, Drained, ShutdownParts, drain, end
from .start_order import StartOrder
from .startup import (
    WorkingFolder,
    children_use_our_python,
    injected_faults,
    startup_notices,
)
from .storage import Storage
from .worker_process import WorkerProcess

if TYPE_CHECKING:
    from pallas.catalog import Catalog
    from pallas.ledger import Ledger
    from pallas.llm.llm_service import LlmService
    from pallas.messaging.delivery import MessageDelivery
    from pallas.sessions.thread_access import Threads
    from pallas.surfaces.control.control_api import ServedControlApi

    from .message_peers import MessagePeers

log = logging.getLogger(__name__)

_OURS: Final = make_executor


class Fleet:
    """Everything of one project that is alive.

    ``dev`` binds loopback, else all interfaces, unless the project says ``bind:``. With ``only`` a
    single agent is served: no registry, no dependencies (PR-4), and ``/healthz``, ``/readyz`` and
    ``/metrics`` on the agent's own port. ``record`` says whether messages on the wire are recorded for
    ``exchanges``; without it as ``PALLAS_WIRE_RECORD`` says, else with ``dev`` only. ``seen`` is a file for
    the tool lists that servers had; without it they stay in memory. With ``watch`` changed files are applied
    by themselves. ``database`` is the URL of the database for conversations; without one they live in memory
    and there is no REST API. ``worker`` is this process where several serve the project. ``end_process`` has
    the process drain the fleet and end; there is none in a workbench. ``faults`` are injected into its calls
    of models and tools. ``judge`` says which recorded runs would go differently after a save.

    Making a fleet reads the offline model's script. Raises ConfigError with its mistakes.
    """

    def __init__(
        self,
        project: Project,
        *,
        hub: EventHub | None = None,
        dev: bool = False,
        only: str | None = None,
        pace: CheckIntervals = CHECK_INTERVALS,
        record: bool | None = None,
        seen: Path | None = None,
        make_executor: MakeExecutor = make_executor,
        watch: bool = False,
        database: str | None = None,
        worker: WorkerProcess | None = None,
        end_process: Callable[[], None] | None = None,
        faults: FaultPlan | None = None,
        judge: VerdictJudge | None = None,
    ) -> None:
        project = served_project(project, only)
        bind = project.bind or (LOOPBACK if dev else ANYWHERE)
        injection = FaultInjection(faults) if faults is not None else None
        options = FleetOptions(bind, only, watch, worker, end_process, injection, judge, lock_mode_of(dev))
        context = self.context = new_context(project, options, hub, dev, record, database)
        self.ports = FleetPorts(
            project, host=bind, hosts=allowed_hosts_of(project, bind), only=only, worker=worker
        )
        self.storage = Storage.of(context, database)
        self.messages = HandlerMessages(context)
        self._sinks = EventSinks(context.hub)
        self._programs = Programs(project.servers, context.hub, here=options.runs_programs)
        self._monitor = HealthMonitor(context, pace, self._programs.were_started)
        prepare = prepare_executor if make_executor is _OURS else None
        self._order = StartOrder(context, self._programs.were_started, prepare)
        self.surfaces = self._make_surfaces()
        make = locked(make_executor, options.lock_mode)
        self._members = self._make_membership(make, OwnLlms(pace.until_check))
        self._control = AgentControl(context, lambda files: self.dynamic_agents.among(files))
        self.dynamic_agents = DynamicAgents(context, self._members, self._control, self._order.start)
        self.inspector = Inspector(
            context, published=lambda: None if only else self.snapshot(), seen=SeenTools(seen)
        )
        self._reloader = self._make_reloader()
        self._folder = WorkingFolder()

    @property
    def hub(self) -> EventHub:
        """The events of this fleet."""
        return self.context.hub

    @property
    def kernel(self) -> Kernel:
        """Runs messages on the agents."""
        return self.context.kernel

    @property
    def project(self) -> Project:
        """The project that the fleet goes by now."""
        return self.context.project

    @property
    def questions(self) -> Questions:
        """The questions to people."""
        return self.kernel.questions

    @property
    def state(self) -> FleetState:
        """Where the fleet is between its start and its end."""
        return self.context.lifecycle.state

    @property
    def inbound(self) -> Inbound:
        """Who may call which agent."""
        return self.context.inbound

    @property
    def grants(self) -> Grants:
        """The permissions of the project's files, as they were last read without a mistake."""
        return self.context.grants

    @property
    def agents(self) -> tuple[FleetAgent, ...]:
        """The agents served, in the order of the project."""
        return self.context.agents.all

    @property
    def catalog(self) -> "Catalog | None":
        """The resources that were made over the API; None without a database."""
        return self.dynamic_agents.catalog

    @property
    def ledger(self) -> "Ledger | None":
        """The database, while the fleet is alive and has one."""
        return self.storage.ledger

    @property
    def threads(self) -> "Threads | None":
        """The durable threads as principals may see them; None without a database."""
        return self.storage.threads

    @property
    def peers(self) -> "MessagePeers":
        """The typed handlers that take messages here."""
        return self.messages.peers

    @property
    def messaging(self) -> "MessageDelivery":
        """Delivers messages between handlers."""
        return self.messages.messaging

    @property
    def llms(self) -> "LlmService":
        """Answers the questions of handlers to models."""
        return self.messages.llms

    @property
    def metrics(self) -> Metrics:
        """The values of ``/metrics``."""
        return self.surfaces.metrics

    @property
    def control_api(self) -> "ServedControlApi | None":
        """The control API, if the fleet has one."""
        return self.surfaces.control_api

    @property
    def registry_url(self) -> str:
        """The registry's document, as this machine reaches it; empty when none is served."""
        return "" if self.context.is_alone else self.ports.origin + WELL_KNOWN

    @property
    def last_verdict(self) -> VerdictReached | None:
        """The last verdict on a save; None before the first."""
        return self._reloader.last_verdict

    def ask_models(self) -> VerdictReached:
        """Begin to ask models for the last verdict, and return it. Raises Fault (CONFIG) if none may be."""
        return self._reloader.ask_models()

    def snapshot(self) -> FleetSnapshot:
        """The fleet as a value. Safe from any thread."""
        ledger = self.ledger
        return FleetSnapshot(
            name=self.project.name,
            state=self.state,
            since=self.context.lifecycle.since,
            registry_url=self.registry_url,
            agents=tuple(agent.snapshot() for agent in self.agents),
            servers=tuple(program.snapshot() for program in self._programs),
            watch=self._reloader.snapshot(),
            replica=ledger.replica if ledger is not None else "",
            replicas=1 + len(ledger.other_releases) if ledger is not None else 0,
            faults=injected_faults(self.context),
            project=str(self.project.root),
        )

    def register(
        self, handler: Any, *, capabilities: Sequence[str] = (), capacity: int = 64, replace: bool = False
    ) -> Registration:
        """Add an agent in plain Python (``pallas.handlers``), before the start of the fleet or after.

        It is there when this returns; ``await`` the result to go on when it answers. It is served at the
        fleet's port alone, takes ``capacity`` runs at a time, and takes precedence over a worker or a remote
        agent of its id. Raises Fault (CONFIG): it cannot work, or its id is taken; with ``replace`` it
        takes the other one's place. Call it in the fleet's loop.
        """
        return self.dynamic_agents.registrations.handler(
            handler, capabilities=capabilities, capacity=capacity, replace_=replace
        )

    def register_worker(
        self,
        id: str,  # noqa: A002 - a word of the API
        worker: WorkerConfig,
        *,
        capabilities: Sequence[str] = (),
        replace: bool = False,
    ) -> Registration:
        """Add a program that answers on its stdin and stdout; as ``register``."""
        return self.dynamic_agents.registrations.worker(
            id, worker, capabilities=capabilities, replace_=replace
        )

    def unregister(self, id: str) -> Registration:  # noqa: A002
        """Remove the agent that was registered under that id; an agent it took precedence over answers again.

        Of several, remove the one that answers. Raises Fault (CONFIG) where there is none.
        """
        return self.dynamic_agents.registrations.remove(id)

    def exchanges(self, run_id: str) -> tuple[Exchange, ...]:
        """Return the recorded messages of a run on the wire, oldest first; empty when none are left.

        Raises Fault (CONFIG) where none are recorded.
        """
        if self.kernel.wire is None:
            raise Fault(
                FaultType.CONFIG,
                "this fleet does not keep what goes over the wire: start it with PALLAS_WIRE_RECORD=1",
            )
        return self.kernel.wire.exchanges(run_id)

    def control(self, agent: str, verb: Verb) -> None:
        """Begin a verb on one agent and return; events report the outcome. Call it in the fleet's loop."""
        self._control.ask(agent, verb)

    def control_fleet(self, verb: FleetVerb) -> None:
        """Begin a verb on the whole fleet and return; events report. Call it in the fleet's loop."""
        if refusal := self.context.lifecycle.refusal:
            self.hub.publish(Notice(level="warning", text=f"{verb} was not done: {refusal}"))
        else:
            self._reloader.control(verb)

    async def describe(self, agent: str) -> AgentDetail:
        """Return all about an agent, its tools and its downstreams', within 30 s. Raises Fault."""
        return await self.inspector.describe(agent)

    async def call_tool(
        self, agent: str, server: str, tool: str, arguments: Mapping[str, Any], bearer: str | None = None
    ) -> ToolOutcome:
        """Call a tool of the agent (``server`` is empty) or of a downstream, within 300 s. Raises Fault."""
        return await self.inspector.call_tool(agent, server, tool, arguments, bearer)

    def reserve(self) -> None:
        """Take every port. Raises Fault (CONFIG) with a line for each that cannot be had."""
        self.ports.reserve(self.context.served())

    async def start(self) -> None:
        """Start everything; return when each agent is ready or in error.

        Order (PR-5): the project's programs, the registry, preflight, agents others depend on, the
        rest. One agent's failure is its own (PR-7). Raises Fault (CONFIG) when ports are taken.
        """
        if not self.ports.reserved:
            self.reserve()
        if (faults := self.context.options.faults) is not None:
            faults.install()
        self._folder.enter(self.project.root)
        children_use_our_python()
        fill_unset(self.project.root, self.project.unset)
        if (worker := self.context.options.worker) is not None:
            worker.hear(NOTE, worker.seal.hear)
        tasks = self.context.tasks
        if self.context.options.watch:  # before anything is read: no change from now on is missed
            tasks.start(self._reloader.watch())
        tasks.start(self._programs.start())  # these start on other cores while the fleet imports
        await self.storage.open(self.project)
        if self.ledger is not None:
            seal, notes = self.inbound.session_seal, self.ledger.notes
            if seal is not None and notes is not None:
                seal.adopt_key(self.ledger.salt)
                seal.join(notes)
            await self.dynamic_agents.open_catalog(self.ledger)
        for notice in startup_notices(self.context, self.ports.warnings()):
            log.log(logging.WARNING if notice.level == "warning" else logging.INFO, "%s", notice.text)
            self.hub.publish(notice)
        for config in self.context.served():
            self._members.add(self.project, config)
        self.dynamic_agents.live()
        self.context.lifecycle.report(f"{len(self.agents)} agents")
        tasks.start(watch_log(self.hub))
        tasks.start(self._sinks.start(self.project))
        await self.surfaces.start()
        checked = self._monitor.begin()  # the registry lists the agents by now
        tasks.start(self.messages.boot())
        await asyncio.wait({checked}, timeout=6.0)
        await asyncio.gather(*(self._order.start(agent) for agent in self.agents))
        self.ports.release_claims()
        if self.state is FleetState.STARTING:
            self.context.lifecycle.move_to(FleetState.RUNNING)
            tasks.start(self.kernel.tidy())
            tasks.start(tend(self.hub, self.kernel.in_flight))
            self._monitor.start()
            tasks.start(self._reloader.run())
            tasks.start(self.storage.take_over(self.surfaces.sessions.begin))
            if self.ledger is not None:
                tasks.start(self.dynamic_agents.follow(self.ledger))

    def request_drain(self) -> None:
        """Have the process drain this fleet and end. Raises Fault (CONFIG) for the fleet of a workbench."""
        if self.context.options.end_process is None:
            raise Fault(FaultType.CONFIG, "this fleet runs in a workbench and ends with it: quit that one")
        if not self.context.lifecycle.is_ending:
            self.context.options.end_process()

    async def drain(self, seconds: float | None = None) -> Drained:
        """Take no new runs, give those in flight ``seconds`` (``drain_timeout``), then cut them short.

        Registry and readiness say so first; the ports still answer. ``stop`` comes after it.
        """
        lifecycle = self.context.lifecycle
        if lifecycle.is_ending:
            return Drained()
        lifecycle.move_to(FleetState.DRAINING)
        if (worker := self.context.options.worker) is not None:
            worker.shares.leave()
        limit = self.project.drain_timeout if seconds is None else seconds
        hands_over = self.project.drain == "hand_over"
        drained = await drain(self.kernel, limit, self._report_drain, hand_over=hands_over)
        log.info("drained: %s", drained)
        self._report_drain(str(drained))
        return drained

    async def stop(self) -> None:
        """End everything, within five seconds: runs, ports, instances, programs, registry."""
        if self.state in (FleetState.STOPPING, FleetState.STOPPED):
            return
        self.context.lifecycle.move_to(FleetState.STOPPING)
        began = monotonic()
        self.ports.end()
        self.ports.release_claims()
        await end(self.kernel, self._shutdown_parts())
        self._reloader.close()
        self._monitor.close()
        self.surfaces.close()
        forget(self.project.root)
        self.dynamic_agents.close_catalog()
        left = max(LEAST, STOP_WITHIN - (monotonic() - began))
        await self.storage.close(left, hand_over=self.project.drain == "hand_over")
        self.inbound.close()
        self.ports.release()
        self._folder.leave(self.project.root)
        if (faults := self.context.options.faults) is not None:
            faults.uninstall()
        self.context.lifecycle.move_to(FleetState.STOPPED)
        await self._sinks.close(max(LEAST, STOP_WITHIN - (monotonic() - began)))

    def _make_surfaces(self) -> FleetSurfaces:
        return FleetSurfaces(
            self.context,
            self.ports,
            self.storage,
            snapshot=self.snapshot,
            providers=lambda: self._monitor.providers.reports,
            catalog=lambda: self.catalog,
        )

    def _make_membership(self, make: MakeExecutor, llms: OwnLlms) -> Membership:
        return Membership(
            self.context,
            self.ports,
            make_executor=Delegation(self.context, self.messages).making(make),
            provider_problem=self._monitor.providers.problem,
            pages=self.surfaces.agent_pages,
            tasks=lambda: self.storage.tasks,
            llms=llms,
        )

    def _make_reloader(self) -> Reloader:
        parts = ReloadContext(
            fleet=self.context,
            members=self._members,
            control=self._control,
            programs=self._programs,
            start=self._order.start,
            now=self.dynamic_agents.now,
            check_providers=self._monitor.providers.adopt,
            recent=RecentRuns(self.context, lambda: self.ledger),
        )
        return Reloader(parts, take=self._take_files, script=self.surfaces.offline_model.replace)

    def _shutdown_parts(self) -> ShutdownParts:
        agents = self.context.agents.by_name
        return ShutdownParts(
            tasks=tuple(self.context.tasks),
            helpers=(
                self.surfaces.end_sessions,
                self.messages.close,
                self.dynamic_agents.close,
                self._control.close,
                self.inspector.close,
                self._members.close,
                self._reloader.end_verdicts,
                *(agent.supervisor.close for agent in self.agents),
            ),
            layers=[
                [agents[name] for name in layer if name in agents] for layer in self.project.start_layers()
            ],
            programs=tuple(self._programs),
            listeners=self.ports.listeners,
            control_api=self.control_api,
            pages=self.surfaces.closers,
        )

    def _report_drain(self, detail: str) -> None:
        self.hub.publish(FleetChanged(state=FleetState.DRAINING, detail=detail))

    def _take_files(self, project: Project) -> Project:
        """Go by a project that was just read without a mistake; return it with all that no file declares."""
        options = self.context.options
        whole = self.dynamic_agents.read(served_project(project, options.only))
        self.inbound.adopt(whole)
        self.messages.adopt(whole)
        self.ports.allow(allowed_hosts_of(project, options.bind))
        self.ports.behind(project.public_url)
        return whole
