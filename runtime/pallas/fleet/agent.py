"""One agent of the fleet: its port, its executor, its state and its health."""

import asyncio
import importlib
import logging
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic, time
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pallas.config import AgentConfig, Project
from pallas.config.cards import read_cards
from pallas.config.files import module_file
from pallas.executors import Executor
from pallas.health.public_reasons import health_for_callers
from pallas.model import (
    FAILED_STATES,
    AgentChanged,
    AgentSnapshot,
    AgentState,
    Change,
    FaultType,
    Health,
    Notice,
    Params,
    ProbeResult,
    Reloaded,
    RunVersion,
)
from pallas.model.redaction import redact_text
from pallas.model.tool_rules import ToolRules
from pallas.model.unfinished_calls import UnfinishedRules
from pallas.runs.kernel import Kernel
from pallas.safe_text import one_line
from pallas.surfaces.auth.auth_gate import AuthGate, GateScope
from pallas.surfaces.auth.inbound_auth import Inbound
from pallas.surfaces.auth.resource_metadata import resource_at
from pallas.surfaces.server_cards import CARD_PATH, server_card
from pallas.surfaces.status_pages import Page
from pallas.telemetry import code_owners
from pallas.telemetry.event_hub import EventHub
from pallas.telemetry.log import reapply_logging

from .agent_context import AgentContext, window_of
from .agent_factory import MakeExecutor
from .agent_health import AgentHealth
from .agent_port import AgentAddress
from .agent_snapshot import snapshot_of, takes
from .own_llms import OwnLlms
from .reload.agent_version import AgentVersion
from .reload.failure_report import details_of
from .supervisor.agent_lifecycle import AgentLifecycle
from .supervisor.failure_outcome import lasting, outcome_of
from .swap import VersionSwap

if TYPE_CHECKING:
    from fastmcp import FastMCP
    from starlette.types import ASGIApp

    from pallas.tasks import Tasks

log = logging.getLogger(__name__)

STOPPED_BY_HAND: Final = "stopped by hand"
# Seconds that runs in flight have before they are cancelled, when an agent is stopped.
DRAIN_SECONDS: Final = 3.0


class FleetAgent:
    """An agent: its port and surface stay, its executor is started, swapped and ended.

    The port answers ``get_health`` once ``open`` has returned, in every state of the agent. The executor was
    made from ``project`` and ``config``. ``pages`` are served by path on its port, behind the same guard.
    """

    def __init__(
        self,
        project: Project,
        config: AgentConfig,
        address: AgentAddress,
        *,
        hub: EventHub,
        kernel: Kernel,
        make_executor: MakeExecutor,
        provider_problem: Callable[[Collection[str] | None], str],
        inbound: Inbound,
        pages: Mapping[str, Page] = MappingProxyType({}),
        tasks: "Callable[[], Tasks | None]" = lambda: None,
        llms: OwnLlms | None = None,
    ) -> None:
        self.project = project
        self.config = config
        self.address = address
        self.state: AgentState = AgentState.WAITING
        self.since = time()
        self.reason: str = ""
        self.story = ""
        self.failure: FaultType | None = None
        self.settled = asyncio.Event()
        self._hub = hub
        self._kernel = kernel
        self._pages = pages
        self._tasks = tasks
        self._llms = llms or OwnLlms()
        self.inbound = inbound
        inbound.introduce(config.name, config.auth)
        self._lifecycle = AgentLifecycle(self, kernel, make_executor)
        self._versions = self._lifecycle.versions
        self.supervisor = self._lifecycle.supervisor
        self.context = AgentContext(config.name, kernel.context_meter)
        self._swap = VersionSwap(self, self._versions, hub, lambda: self._lifecycle.seconds_left)
        self.watched = AgentHealth(
            config.name,
            hub,
            lambda: (self.state, self.reason),
            lambda: self._own_llm_problem() if self.config.has_own_llm else provider_problem(self.models),
            lambda: self.executor.lock_changes() if self.executor is not None else (),
            lambda: self.executor.connections() if self.executor is not None else (),
            self._check_connection,
        )
        self._server: FastMCP | None = None
        self._began = time()
        self._started_in: float | None = None
        self._restarts = self._reloads = 0

    @property
    def name(self) -> str:
        """The agent's name in agents.yaml."""
        return self.config.name

    @property
    def executor(self) -> Executor | None:
        """The executor that answers now."""
        return self._versions.current

    @property
    def version_now(self) -> AgentVersion | None:
        """What answers now, and what it was made of."""
        return self._versions.version

    @property
    def run_version(self) -> RunVersion | None:
        """What runs that begin now keep of it."""
        return self.version_now.of_run if self.version_now is not None else None

    @property
    def servers(self) -> tuple[str, ...]:
        """Names of the downstreams it declares, as they were known last."""
        if self.executor is not None:
            return self.executor.info.servers
        return tuple(each.name for each in self.watched.downstreams)

    @property
    def models(self) -> tuple[str, ...] | None:
        """The models that it uses, as ``provider.model``; None while that is not known."""
        return self.executor.info.models if self.executor is not None else None

    @property
    def predecessors(self) -> int:
        """Executors that were exchanged and still finish their runs."""
        return self._versions.predecessors

    @property
    def files(self) -> frozenset[Path]:
        """The project's files that it was made of, absolute; with those of an attempt that failed since.

        Also some that are not there, where that was what failed.
        """
        return self._swap.files or frozenset(self._own_files())

    @property
    def is_open(self) -> bool:
        """Whether its port answers."""
        return self.address.is_open

    @property
    def retry_after(self) -> float | None:
        """Seconds until it is started again by itself, None when it does not wait for that."""
        return self.supervisor.retry_after

    @property
    def run_timeout(self) -> float:
        """Seconds a run may take."""
        return self.config.run_timeout

    @property
    def window(self) -> int:
        """Tokens that its model takes in at once, as they are declared; 0 for one without a model of ours."""
        return window_of(self.config)

    @property
    def params(self) -> Params:
        """The defaults of its runs."""
        return self.config.params

    @property
    def unfinished(self) -> UnfinishedRules:
        """What becomes of its calls whose answers were lost with a fleet."""
        patterns = (*self.config.unfinished_calls, *self.project.unfinished_calls)
        return UnfinishedRules(patterns, self.project.trusted_servers)

    @property
    def tool_rules(self) -> ToolRules:
        """Which calls it makes, and which ones a person is asked about."""
        sets = tuple(each for each in (self.project.tools, self.config.tools) if each is not None)
        return ToolRules(sets, self.project.trusted_servers)

    @property
    def forwards_bearer(self) -> bool:
        """Whether one whom it calls gets its callers' tokens."""
        handler, servers = self.config.handler, map(self.project.downstreams.get, self.servers)
        known = (self.config.remote, handler.typed if handler is not None else None, *servers)
        return any(each.forward_inbound_auth for each in known if each is not None)

    @property
    def url(self) -> str:
        """Where callers on this machine reach it."""
        return self.address.url

    async def open(self) -> None:
        """Serve the agent's MCP surface on its port. Raises Fault."""
        surface = await asyncio.to_thread(importlib.import_module, "pallas.surfaces.agent_mcp")
        reapply_logging()  # FastMCP sets up its own when it is imported
        server = surface.agent_app(
            self._kernel,
            self.name,
            description=self.config.description,
            health=self.health,
            history=self.config.has_history,
            authorize=partial(self.inbound.authorize, self.name),
            permit=partial(self.inbound.permit, self.name),
            tasks=self._tasks,
            parked=self.inbound.parked(),
            version=self.project.version,
        )
        for path, page in self._pages.items():
            server.custom_route(path, methods=["GET"])(page)
        app = surface.endpoint(
            server,
            None,  # the guard is at the address
            card=lambda: server_card(self.project, self.snapshot()),
            wire=self._kernel.wire,
            gate=self._gate,
            seal=self.inbound.session_seal,
        )
        await self.address.open(app)
        self._server = server

    def _gate(self, app: "ASGIApp") -> "ASGIApp":
        """``app``, whose callers are asked who they are where the project says so."""

        def resource(port: int | None) -> str:
            return resource_at(self.project, self.config, port)

        return AuthGate(app, GateScope(self.name, self.inbound, resource, (CARD_PATH, *self._pages)))

    async def start(self, *, fresh: bool = False) -> bool:
        """Import, connect and become ready within ``start_timeout``; return whether it is. Never raises.

        After a failure that may pass, its restart policy starts it again; after any other the state is
        ``error``, with the reason. ``fresh`` reads code again that was loaded before. An agent that is ready
        stays as it is.
        """
        return await self._lifecycle.start(fresh=fresh)

    async def stop(self, reason: str = "", seconds: float | None = None) -> None:
        """Take no more runs, give those in flight a few ``seconds``, then cancel them; the port stays.

        Callers and health show ``reason``; without one callers are asked to come again.
        """
        seconds = DRAIN_SECONDS if seconds is None else seconds
        async with self._lifecycle.taken():
            self.reason, self.story = reason, ""
            self.move_to(AgentState.STOPPING, reason)
            if (hurry := getattr(self.executor, "hurry", None)) is not None:
                hurry(seconds)
            await self._kernel.drain(self.name, seconds, reason or "the agent is being restarted")
            await self._lifecycle.end()
            self.move_to(AgentState.STOPPED, reason)
        self.watched.refresh()

    async def swap(
        self,
        project: Project,
        config: AgentConfig,
        *,
        files: tuple[str, ...] = (),
        began: float | None = None,
        force: bool = False,
    ) -> Reloaded:
        """Make another version from these, let it answer once it is ready, and return the outcome.

        Until then the version before answers, and runs in flight finish there; if the new one fails, it goes
        on. ``files`` are those that changed, relative to the project; ``began`` is when the change was seen
        (``time.monotonic``). A version that is the same byte for byte is not made, unless with ``force``.
        Raises only cancellation.
        """
        since = monotonic() if began is None else began
        async with self._lifecycle.held():
            return await self._swap.swap(project, config, files, since, force=force)

    async def unapplied(self) -> tuple[Change, ...]:
        """How the files of the version that answers differ from what they hold now."""
        return await self._swap.unapplied()

    async def rollback(self) -> Reloaded:
        """The version before answers again, code and configuration; doing so twice goes forward again.

        Raises nothing but what cancels it.
        """
        async with self._lifecycle.held():
            return await self._swap.rollback(monotonic())

    async def take_version(self, version: AgentVersion, detail: str) -> None:
        """Be what this version is, which answers from now on."""
        await self.adopt(version.project, replace(version.config, port=self.config.port))
        self.watched.forget_failures()
        await self._watch_servers(version.executor)
        self.ready(detail, is_reload=True)
        # The probes may take seconds, and callers need not wait for those.
        self._lifecycle.own(self.check_health(), "health")

    async def adopt(self, project: Project, config: AgentConfig) -> None:
        """Be what this configuration says; its port is not looked at."""
        self.project, self.config = project, config
        self.supervisor.adopt(config.restart)
        if self.version_now is not None:
            await self.version_now.adopt(project, config)
        await self._redescribe()

    async def connecting(self, executor: Executor) -> None:
        """Watch the servers of an executor that is loaded and connects now."""
        self._claim_code(executor)
        await self._watch_servers(executor)
        self.move_to(AgentState.CONNECTING)

    def ready(self, detail: str = "", *, is_reload: bool = False) -> None:
        """Take runs from now on."""
        if is_reload:
            self._reloads += 1
        elif self._started_in is not None:
            self._restarts += 1
        if self._started_in is None:
            self._started_in = time() - self._began
        self.reason = self.story = ""
        self.failure = None
        self.move_to(AgentState.READY, detail or f"ready in {time() - self._began:.1f} s")
        self.settled.set()
        if self.executor is not None:
            self._claim_code(self.executor)
            if self.executor.info.payload is not None:
                self._lifecycle.own(self._redescribe(), "describe")

    async def _redescribe(self) -> None:
        """Clients see what it is now, and what a typed handler takes."""
        if self._server is None:
            return
        surface = sys.modules["pallas.surfaces.agent_mcp"]  # ``open`` imported it
        await surface.redescribe(
            self._server,
            self._kernel,
            self.name,
            description=self.config.description,
            version=self.project.version,
            takes=takes(self.executor),
            history=self.config.has_history,
        )

    async def _watch_servers(self, executor: Executor) -> None:
        definition = self.config.definition
        own = {each.name: each for each in definition.own_servers} if definition is not None else {}
        known = {**self.project.downstreams, **own}
        used = executor.info.servers
        await self.watched.watch_servers(
            [known[name] for name in used if name in known], self.config.required
        )

    def fail(
        self,
        reason: str,
        cause: BaseException | None = None,
        *,
        transient: bool = False,
        kind: FaultType | None = None,
    ) -> None:
        """Something went wrong, told in one line; the cause's traceback goes to the log.

        ``transient`` says that a later start may succeed: then its restart policy decides what follows.
        ``kind`` is the type of the Fault that it was, None where it was none.
        """
        self.failure = kind
        reason_line, config = one_line(redact_text(reason), 300), self.supervisor.policy.config
        after = (
            outcome_of(self.supervisor.failed(), reason_line, config) if transient else lasting(reason_line)
        )
        self.reason = after.reason
        self.story = details_of(
            reason if after.reason == reason_line else f"{after.reason}\n\n{reason}", cause
        )
        log.error("%s: %s", self.name, after.detail, exc_info=cause, extra={"agent": self.name})
        self.move_to(after.state, after.detail)
        self.watched.refresh()
        self.settled.set()
        if after.state is AgentState.CRASH_LOOP:
            text = one_line(f"{self.name}: {after.detail}", 500)
            self._hub.publish(Notice(level="error", text=text, agent=self.name))

    def publish(self, notice: Notice) -> None:
        """Tell operators what its executor noticed."""
        self._hub.publish(notice)

    async def health(self) -> Health:
        """How the agent is found now, for callers; never asks a model (PI-9)."""
        found = await self.watched.ask(self._problems())
        self._doubt()
        return replace(found, message=health_for_callers(found.message, self.reason))

    async def check_health(self) -> None:
        """Look at the health now; never raises."""
        if self.state in (AgentState.STOPPED, AgentState.BACKOFF, AgentState.CRASH_LOOP):
            self.watched.refresh()
            return
        if (llm := self.config.own_llm) is not None:
            await self._llms.look(self.project, llm)
        await self.watched.look(self._problems())
        self._doubt()

    def check_health_soon(self) -> None:
        """Look at the health without waiting for the next round; returns at once."""
        if self.state is AgentState.READY:
            self._lifecycle.own(self.check_health(), "health")

    def snapshot(self) -> AgentSnapshot:
        """The agent as a value. Safe from any thread."""
        return snapshot_of(
            self,
            self._kernel,
            version=self._swap.number,
            previous=self._swap.previous,
            restarts=self._restarts,
            reloads=self._reloads,
            started_in=self._started_in,
        )

    async def close_port(self) -> None:
        """Stop answering."""
        await self.supervisor.close()
        if self.state not in (AgentState.ERROR, AgentState.CRASH_LOOP):
            self.move_to(AgentState.STOPPING)
        await self.address.close()

    async def close(self) -> None:
        """Let go of the executor. The port must be closed before: a harness waits for its runs."""
        await self._lifecycle.close()
        await self.watched.close()
        code_owners.release(self)
        self.move_to(AgentState.STOPPED)

    def _claim_code(self, executor: Executor) -> None:
        root = self.project.root
        code_owners.claim(self, self.name, (root / each for each in executor.info.files))

    def _own_files(self) -> Iterator[Path]:
        root, module, card = self.project.root, self.config.module, self.config.card
        if card is not None:
            yield from read_cards(root, card).files
        elif module and (found := module_file(root, module)) is not None:
            yield found

    def _doubt(self) -> None:
        """Report to the executor which of its servers a probe did not reach."""
        doubt = getattr(self.executor, "doubt", None)
        if doubt is not None:
            found = (each for each in self.watched.downstreams if each.transport != "stdio")
            doubt(frozenset(each.name for each in found if each.reach is ProbeResult.UNREACHABLE))

    def _own_llm_problem(self) -> str:
        llm = self.config.own_llm
        return self._llms.problem(llm) if llm is not None else ""

    async def _check_connection(self, server: str, seconds: float) -> None:
        if self.executor is not None:
            await self.executor.check_connection(server, seconds)

    def _problems(self) -> tuple[str, ...]:
        return self.executor.problems() if self.executor is not None else ()

    def move_to(self, state: AgentState, detail: str = "") -> None:
        """Be in that state, and tell; ``detail`` is one line."""
        self.state, self.since = state, time()
        if state not in FAILED_STATES:  # those were logged with their cause
            log.info("%s: %s", self.name, detail or state.value, extra={"agent": self.name})
        if state is AgentState.READY:
            self._lifecycle.note_ready()
            self.watched.refresh()  # until the first look it is as good as it looks, not still "starting"
        self._hub.publish(AgentChanged(agent=self.name, state=state, detail=detail))
