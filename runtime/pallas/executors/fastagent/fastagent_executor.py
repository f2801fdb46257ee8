"""The executor of agents that fast-agent defines."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from fast_agent import FastAgent
from fast_agent.core.harness import AgentHarness

from pallas.access.bearer_lease import BearerLease, LeaseSlot, connecting, lending
from pallas.config import AgentConfig, Capabilities, Project
from pallas.config.agent_code import file_warnings
from pallas.config.files import shown
from pallas.config.models import DownstreamConfig
from pallas.config.project_imports import sought
from pallas.deadlines import cancel_and_wait
from pallas.executors.model_client.provider_connections import provider_connections
from pallas.executors.peer_port import PeerPort
from pallas.executors.replay.replay import current_replay
from pallas.model import ANONYMOUS, Fault, FaultType, Notice, ServerChange, ServerConnection
from pallas.model.fingerprint import fingerprint
from pallas.model.redaction import redact_text
from pallas.model.server_offer import StoredOffer
from pallas.safe_text import one_line, sanitize
from pallas.tools_lock.project_servers import gate_for
from pallas.tools_lock.tool_gate import ToolGate

from ..base import Emit, Executor, ExecutorInfo, ExecutorTurn, TurnResult
from . import (
    auth_seam,
    connect_plan,
    forward_trace,
    model_registry,
    seam,
)
from .agent_loader import check_models, check_servers, choose_agent, defined_at, load, start_fault
from .fastagent_faults import fault_of, refused_fault, starts_without_instance
from .import_thread import run_in_import_thread
from .instance_answers import InstanceAnswers
from .instance_pool import InstancePool
from .instance_servers import Servers, hanging_of, served
from .instance_turn import FastAgentInstance, prepare_instance
from .listed_servers import ListedServers
from .message_conversion import native_copy
from .peer_tools import PeerCalls
from .peers_fleet import FleetPeers
from .peers_seam import PeerTools, check
from .preload import files_of, preload
from .providers import AgentProviders
from .providers_failover import HeardEvents
from .providers_llm import answer_with
from .read_files import Reads, noting
from .replay_seam import dated_instructions
from .run_progress import RunProgress
from .server_notices import ServerNotices
from .server_states import ServerStates
from .tools_seam import tools_of

log = logging.getLogger(__name__)

_TRIM_EVERY: Final = 60.0
# Characters of an agent's instruction that are published.
MAX_INSTRUCTION: Final = 100_000


class FastAgentExecutor(Executor):
    """Runs turns on a pool of warm instances; a conversation's history is loaded for each run."""

    def __init__(self, project: Project, config: AgentConfig) -> None:
        self._project = project
        self._config = config
        self._info = ExecutorInfo()
        self._fast: FastAgent | None = None
        self._harness: AgentHarness | None = None
        self._name = ""
        self._forwards = False
        self._fresh = False
        self._reads = Reads(project)
        self._providers = AgentProviders(project, config)
        self._answers = InstanceAnswers(project, config, self._providers)
        # The owner of each conversation's instance, if callers' bearers are forwarded.
        self._shown: dict[str, str] = {}
        self._pool = self._new_pool()
        self._owner: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._instances: dict[str, FastAgentInstance] = {}
        self._unconfigured: dict[str, str] = {}
        self._first: tuple[Any, ...] | None = None
        self._listing: set[asyncio.Task[None]] = set()
        self._tell_failed: Callable[[str], None] | None = None
        self._notices = ServerNotices(config.name)
        self._listed = ListedServers(config.name, self._forwarding)
        self._states = ServerStates(
            lambda: [each.servers for each in self._instances.values()], self._listed, self._forwarding
        )
        self._peers: PeerCalls | None = None
        self._renamed: set[str] = set()
        self._gate: ToolGate | None = None

    @property
    def info(self) -> ExecutorInfo:
        """Model, vision and downstream names, known once ``load`` has run."""
        return self._info

    def problems(self) -> tuple[str, ...]:
        """The downstreams that an instance lacks now, except those that need a caller's bearer."""
        found = (name for each in self._instances.values() for name in each.servers.missing())
        return tuple({name: None for name in found if not self._forwarding(name)})

    def lock_changes(self) -> tuple[ServerChange, ...]:
        """What its servers list otherwise than the lock says."""
        return self._gate.changes() if self._gate is not None else ()

    def connections(self) -> tuple[ServerConnection, ...]:
        """The connections of its instances to its servers."""
        return self._states.all(self._unconfigured)

    def offers(self) -> Mapping[str, StoredOffer]:
        """What its servers offer, without those that get the caller's bearer."""
        return self._listed.offers

    async def check_connection(self, server: str, seconds: float) -> None:
        """Ask a server, over a connection that is open, whether it answers."""
        await self._states.check(server, seconds)

    def doubt(self, servers: frozenset[str]) -> None:
        """Note that a health probe did not reach these downstreams, but did reach the others."""
        for each in self._instances.values():
            each.servers.doubt(servers)

    @property
    def waiting(self) -> int:
        """The number of runs that wait for a free instance."""
        return self._pool.waiting

    def reach_peers(self, port: PeerPort) -> None:
        """Set the port for calls to its peers; call this before ``load``."""
        self.call_peers(FleetPeers(port, self._config.name))

    def call_peers(self, calls: PeerCalls) -> None:
        """Like ``reach_peers``, for an executor outside the fleet's own process."""
        self._peers = calls if self._config.peers else None

    async def load(self, *, fresh: bool = False) -> None:
        """Import the agent's code. Raises Fault (CONFIG) with file, line and reason."""
        self._fresh = fresh
        if fresh:  # other agents keep answering: the libraries that the code imports are imported in a thread
            await asyncio.to_thread(preload, self._project, self._config)
        self._reads.add(*await asyncio.to_thread(files_of, self._project, self._config))
        try:
            fast = await run_in_import_thread(
                self._load_noting_files, f"import {self._config.name}", self._project.root
            )
        except Fault as fault:
            if isinstance(fault.__cause__, ImportError):
                self._reads.add(*sought(self._project.root, fault.__cause__))
            raise
        finally:
            self._info = ExecutorInfo(files=self._files())
        choice = choose_agent(self._project, self._config, fast)
        if choice.words:
            log.warning(
                "%s: %s", self._config.name, "; ".join(choice.words), extra={"agent": self._config.name}
            )
        name, settings = choice.name, seam.config_of(fast, choice.name)
        await asyncio.to_thread(check_servers, self._project, self._config, fast)
        check_models(self._project, self._config, fast, name)
        warnings = await asyncio.to_thread(file_warnings, self._project, self._config)
        self._providers.load()
        named_model = getattr(settings, "model", None) or ""
        model = (
            self._providers.default.model
            if self._providers
            else model_registry.name_of(named_model, self._project)
        )
        self._declare(model)
        servers = seam.all_servers(fast)
        others = seam.models_of(fast, without=name if self._providers else "")
        named = (*others, *self._providers.specs)
        asked = (*others, *self._providers.specs[:1])
        capabilities = self._config.model_capabilities
        names = self._providers.names or (model,)
        opted_in = [each for each in servers if self._forwarding(each)]
        known = {each: found for each in servers if (found := self._downstream(each)) is not None}
        self._unconfigured = {name: each.not_configured for name, each in known.items() if each.unset}
        variables = {name: each.key_variable for name, each in known.items()}
        auth_seam.forward_to(fast, opted_in, variables)
        self._forwards = bool(opted_in)
        self._gate = gate_for(self._project, self._config) if current_replay() is None else None
        self._pool = self._new_pool()
        self._fast, self._name = fast, name
        self._info = ExecutorInfo(
            model=model,
            vision=any(model_registry.has_vision(each, capabilities) for each in names),
            # The smallest window: a thread that fits it fits all of them.
            window=min(model_registry.window(each, capabilities) for each in names),
            servers=servers,
            keeps_history=self._config.instance_scope != "request"
            and bool(getattr(settings, "use_history", True)),
            instruction=sanitize(redact_text(self._instruction(settings)), MAX_INSTRUCTION),
            serves=one_line(name),
            warnings=tuple(one_line(redact_text(str(each)), 400) for each in warnings),
            defined=defined_at(self._project, self._config, seam.source_of(fast, name)),
            files=self._files(),
            children=seam.children_of(fast, name, partial(model_registry.referred, project=self._project)),
            providers=model_registry.providers_of(named, self._project),
            models=model_registry.specs_of(asked, self._project),
            names_models=all(named),
            providers_known=self._providers.facts(),
            capabilities=self._config.capabilities,
            continues=True,
            dated=dated_instructions(fast),
        )
        if (replay := current_replay()) is not None:
            replay.know(self._config.name, self._info.dated)

    def load_agent(self) -> FastAgent:
        """Import and return the agent's definition. Raises Fault (CONFIG)."""
        return load(self._project, self._config, fresh=self._fresh)

    def _load_noting_files(self) -> FastAgent:
        with noting(self._reads):
            try:
                return self.load_agent()
            finally:
                if threads := self._reads.threads:
                    log.warning(
                        "%s: importing it starts threads (%s), which outlive each version of it; start them "
                        "where a tool needs them first",
                        self._config.name,
                        one_line(", ".join(threads), 200),
                        extra={"agent": self._config.name},
                    )

    async def start(self) -> None:
        """Enter the harness and warm one instance.

        Raises Fault if no instance can be made: CONFIG with file, line and reason if the agent's own code
        fails. An unavailable downstream is no error: the agent starts without it, ``problems`` names it, and
        it is connected when it is back. Neither is a missing key that the checks of the providers report.
        """
        if self._fast is None:
            await self.load()
        self._declare(self._info.model)  # a later version may have other settings
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            with noting(self._reads):
                self._owner = asyncio.create_task(
                    self._own_harness(started), name=f"harness {self._config.name}"
                )
            await started
            try:
                await self._pool.warm(ANONYMOUS.id if self._forwards else None)
            except Fault as fault:
                place = self._info.defined
                told = await asyncio.to_thread(start_fault, self._project, self._config, place, fault)
                if told is not None:
                    raise told from fault.__cause__
                if not starts_without_instance(fault):
                    raise
                log.warning("%s: started without an instance: %s", self._config.name, fault.message)
        finally:
            self._reads.finish()
            self._info = replace(self._info, files=self._files())
        if (everyone := self._first) is not None:
            self._first = None
            await self._list_tools(everyone)

    async def run(self, turn: ExecutorTurn, emit: Emit) -> TurnResult:
        """Answer one turn on a leased instance. Raises Fault."""
        forward_trace.name_run(turn.run_id)
        events = HeardEvents(emit)
        progress = RunProgress(
            turn.run_id, turn.agent, events.emit, own=self._name, with_text=turn.stream_text
        )
        lease = BearerLease(turn.run_id, turn.agent, turn.bearer, emit)
        try:
            async with self._pool.lease(self._owner_of(turn), lease if self._forwards else None) as instance:
                with lending(lease, instance.slot):
                    async with served(instance.servers, turn, events.emit, self._config.required):
                        return await self._answers.answer(instance, turn, self._info.model, progress, events)
        except Fault:
            raise
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.exception("%s: run %s failed", turn.agent, turn.run_id, extra={"agent": turn.agent})
            raise fault_of(error) from error
        finally:
            lease.revoke()
            progress.abandon()

    def when_failed(self, tell: Callable[[str], None]) -> None:
        """Call ``tell`` with the reason if the harness ends by itself."""
        self._tell_failed = tell

    def when_noticed(self, tell: Callable[[Notice], None]) -> None:
        """Call ``tell`` when a server is lost, and when all instances have it again."""
        self._notices.tell = tell

    def release(self, lease: str) -> None:
        """End a conversation's own instance, and its downstreams with it."""
        if self._config.instance_scope == "conversation":
            self._pool.release(self._shown.pop(lease, lease))

    async def park(self, timeout_s: float) -> None:
        """End the instances and leave the harness; imported code stays for another ``start``."""
        await self.close(timeout_s)
        self._stop = asyncio.Event()
        self._owner = None
        self._pool = self._new_pool()

    async def close(self, timeout_s: float) -> None:
        """End the instances, then leave the harness; each has half of ``timeout_s``.

        An instance that becomes ready after its harness was left stays alive until the loop ends: use a
        short ``timeout_s`` only if the loop is about to end.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s / 2):
                await self._pool.close()
        for task in self._listing:
            task.cancel()
        self._stop.set()
        if self._owner is not None:
            _, late = await asyncio.wait({self._owner}, timeout=timeout_s / 2)
            if late:
                await cancel_and_wait(self._owner, seconds=1.0)

    def _declare(self, model: str) -> None:
        if model:
            model_registry.register(model, self._config.model_capabilities or Capabilities())

    def _instruction(self, settings: Any) -> str:
        if self._config.definition is not None:  # as it was written, without the escapes of ``literal``
            return self._config.definition.instruction
        return str(getattr(settings, "instruction", ""))

    def _files(self) -> tuple[str, ...]:
        return tuple(sorted(shown(self._project.root, path) for path in self._reads.files))

    def _new_pool(self) -> InstancePool[FastAgentInstance]:
        pinned = self._forwards or self._config.instance_scope == "conversation"
        return InstancePool(self._make, self._drop, limit=self._config.max_instances, pinned=pinned)

    def _downstream(self, server: str) -> DownstreamConfig | None:
        definition = self._config.definition
        own = definition.own_servers if definition is not None else ()
        return next((each for each in own if each.name == server), self._project.downstreams.get(server))

    def _forwarding(self, server: str) -> bool:
        downstream = self._project.downstreams.get(server)
        return downstream is not None and downstream.forward_inbound_auth

    async def _list_tools(self, everyone: tuple[Any, ...]) -> None:
        """Note the tools of the servers, as the agents of an instance found them."""
        found = await asyncio.to_thread(tools_of, everyone, self._info.servers, self.problems())
        self._info = replace(self._info, tools=found)

    def _owner_of(self, turn: ExecutorTurn) -> str | None:
        """Return the owner of the instance that a turn needs.

        A connection that carries a caller's bearer serves that bearer only: the lists and session it got
        when it was opened are for that credential, and not for the caller's next one.
        """
        lease = turn.lease if self._config.instance_scope == "conversation" else None
        if not self._forwards or (lease is None and self._config.instance_scope == "conversation"):
            return lease
        shown = f"bearer:{fingerprint(turn.bearer)}" if turn.bearer else ANONYMOUS.id
        if lease is None:
            return shown
        before, owner = self._shown.get(lease), f"{lease} {shown}"
        if before not in (None, owner):
            self._pool.release(str(before))
        self._shown[lease] = owner
        return owner

    async def _own_harness(self, started: asyncio.Future[None]) -> None:
        # A harness is entered and left in the same task: this one.
        assert self._fast is not None
        try:
            async with provider_connections().held(), self._fast.harness() as harness:
                seam.silence_consoles()
                if self._providers:
                    answer_with(harness, self._name, self._providers)
                self._harness = harness
                if not started.done():  # the caller of start may have gone
                    started.set_result(None)
                try:
                    await self._trim_periodically()
                except Exception as error:
                    # Before its runs are cancelled: they must report this reason, not its consequences.
                    self._fell(error)
                    raise
        except Exception as error:
            log.exception("%s: the harness failed", self._config.name, extra={"agent": self._config.name})
            if not started.done():
                fault = fault_of(error)
                fault.__cause__ = error
                started.set_exception(fault)
            else:
                self._fell(error)
        finally:
            self._harness = None
            if not started.done():
                started.cancel()

    async def _trim_periodically(self) -> None:
        while not self._stop.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_TRIM_EVERY):
                    await self._stop.wait()
            if self._config.instance_scope != "conversation":  # cancelled runs end by themselves
                await self._pool.trim()

    def _fell(self, error: Exception) -> None:
        """Report, once, that no turn can be answered any more."""
        if self._tell_failed is not None and not self._stop.is_set():
            self._stop.set()
            self._tell_failed("its harness ended; the log has the details")

    async def _make(self, number: int, lease: BearerLease | None) -> FastAgentInstance:
        if self._harness is None or self._fast is None:
            raise Fault(FaultType.TRANSPORT, f"{self._config.name} is not running")
        key = f"pool-{number}"
        slot = LeaseSlot(lease)
        hanging = hanging_of(each.servers for each in self._instances.values())
        until = asyncio.get_running_loop().time()
        until += min(connect_plan.CONNECT_SECONDS, self._config.start_timeout / 2)
        try:
            with (
                connecting(slot),
                noting(self._reads),
                connect_plan.planned(
                    connect_plan.ConnectPlan(
                        until, hanging | self._unconfigured.keys(), self._gate, self._listed
                    )
                ),
            ):
                session = await self._harness.session(key)
        except Exception as error:
            log.warning(
                "%s: an instance could not be made: %s",
                self._config.name,
                one_line(str(error)),
                exc_info=error,
                extra={"agent": self._config.name},
            )
            raise refused_fault(slot.refused) or fault_of(error) from error
        finally:
            slot.lease = None
        app = session.agent_app
        agent: Any = app.get_agent(self._name)
        if self._peers is not None:
            check(agent, self._config.name, str(self._config.module or self._config.card or ""))
        everyone = tuple(each for name in self._fast.agents if (each := app.get_agent(name)) is not None)
        if number == 1:
            self._first = everyone
        servers = Servers(
            self._config.name,
            everyone,
            slot,
            unconfigured=self._unconfigured,
            forwarded=frozenset(each for each in self._info.servers if self._forwarding(each)),
            skipped=hanging,
            lost=self._notices.lost,
            failed=self._notices.failed,
            returned=partial(self._returned, everyone),
            gate=self._gate,
        )
        instance = FastAgentInstance(
            key, agent, everyone, [native_copy(m) for m in agent.message_history], slot, servers
        )
        self._instances[key] = instance
        if self._peers is not None:
            instance.peers = PeerTools(agent, self._config.peers, self._peers, self._renamed)
        prepare_instance(instance, self._providers, self._config.model_capabilities)
        return instance

    async def _drop(self, instance: FastAgentInstance) -> None:
        self._instances.pop(instance.key, None)
        await instance.servers.close()
        for remove in instance.remove:
            remove()
        if instance.models is not None:
            await instance.models.close()
        if self._harness is not None and not self._stop.is_set():  # otherwise it ends its sessions itself
            await self._harness.sessions.delete(instance.key)

    def _returned(self, everyone: tuple[Any, ...], server: str, how: str) -> None:
        """Update the tools after a server of these agents was connected again, or all list other ones."""
        if server not in self.problems():
            self._notices.returned(server, how)
        task = asyncio.create_task(self._list_tools(everyone), name=f"list tools of {self._config.name}")
        self._listing.add(task)
        task.add_done_callback(self._listing.discard)
