"""One agent of the fleet: its port, what answers behind it, and how it is."""

import asyncio
import importlib
import logging
import sys
from collections.abc import Callable, Mapping
from time import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pallas.config import AgentConfig, Project
from pallas.events import Hub
from pallas.executors import Executor
from pallas.kernel import Kernel
from pallas.log import reapply_logging, redact_text
from pallas.model import (
    AgentChanged,
    AgentSnapshot,
    AgentState,
    Fault,
    Health,
)
from pallas.surfaces.cards import server_card
from pallas.surfaces.status import Page
from pallas.text import one_line

from .agent_health import AgentHealth
from .doors import Door
from .succession import MakeExecutor, Succession

if TYPE_CHECKING:
    from fastmcp import FastMCP

log = logging.getLogger(__name__)

STOPPED_BY_HAND: Final = "stopped by hand"
# Seconds that runs in flight have before they are cancelled, when an agent is stopped.
DRAIN_SECONDS: Final = 3.0
# What runs in flight have beyond their own limit, when another executor takes over.
_LEEWAY: Final = 5.0


class FleetAgent:
    """An agent's port and surface, which stay, and its executor, which may go and be exchanged.

    The port answers ``get_health`` from the moment ``open`` returns, whatever becomes of the agent.
    ``project`` and ``config`` are those that the executor was made of. ``pages``, by path, are served on the
    same port, behind the same guard.
    """

    def __init__(
        self,
        project: Project,
        config: AgentConfig,
        door: Door,
        *,
        hub: Hub,
        kernel: Kernel,
        make_executor: MakeExecutor,
        provider_problem: Callable[[], str],
        pages: Mapping[str, Page] = MappingProxyType({}),
    ) -> None:
        self.project = project
        self.config = config
        self._door = door
        self._hub = hub
        self._kernel = kernel
        self._pages = pages
        self._succession = Succession(config.name, kernel, make_executor)
        self.watched = AgentHealth(config.name, hub, lambda: (self.state, self.reason), provider_problem)
        self._server: FastMCP | None = None
        self._began = time()
        self._started_in: float | None = None
        self._taken_over = 0
        self.state = AgentState.WAITING
        self.since = time()
        self.reason = ""
        self.story = ""
        self.settled = asyncio.Event()

    @property
    def name(self) -> str:
        """The agent's name in agents.yaml."""
        return self.config.name

    @property
    def executor(self) -> Executor | None:
        """What answers now."""
        return self._succession.current

    @property
    def servers(self) -> tuple[str, ...]:
        """Names of the downstreams it declares, as they were known last."""
        executor = self.executor
        if executor is not None:
            return executor.info.servers
        return tuple(each.name for each in self.watched.downstreams)

    @property
    def predecessors(self) -> int:
        """Executors that were exchanged and still finish their runs."""
        return self._succession.predecessors

    @property
    def is_open(self) -> bool:
        """Whether its port answers."""
        return self._door.is_open

    @property
    def run_timeout(self) -> float:
        """Seconds a run may take."""
        return self.config.run_timeout

    @property
    def url(self) -> str:
        """Where callers on this machine reach it."""
        return self._door.url

    async def open(self) -> None:
        """Serve the agent's MCP surface on its port. Raises Fault."""
        surface = await asyncio.to_thread(importlib.import_module, "pallas.surfaces.agent_mcp")
        reapply_logging()  # FastMCP sets up its own when it is imported
        server = surface.agent_app(
            self._kernel,
            self.name,
            description=self.config.description,
            health=self.health,
            history=self.config.instance_scope != "request",
        )
        for path, page in self._pages.items():
            server.custom_route(path, methods=["GET"])(page)
        app = surface.endpoint(
            server,
            None,  # the guard stands at the door
            card=lambda: server_card(self.project, self.snapshot()),
            wire=self._kernel.wire,
        )
        await self._door.open(app)
        self._server = server

    async def move(self, config: AgentConfig) -> None:
        """Answer on the port of ``config`` from now on. Raises Fault (CONFIG): then nothing has changed."""
        await self._door.move(config)

    async def start(self, *, fresh: bool = False) -> bool:
        """Import, connect, be ready; on failure the state is ``error`` and says why. Never raises.

        ``fresh`` reads code anew that was loaded before.
        """
        self.reason = self.story = ""
        try:
            self._move(AgentState.IMPORTING)
            executor = await self._succession.made(
                self.project, self.config, fresh=fresh, loaded=self._connecting
            )
        except Fault as fault:
            self.fail(fault.message, fault.__cause__)
        except Exception as error:
            self.fail(f"{type(error).__name__}: {one_line(str(error))}", error)
        else:
            self._succession.exchange(executor, self.run_timeout + _LEEWAY)
            if self._started_in is None:
                self._started_in = time() - self._began
            self._taken_over += 1
            self._move(AgentState.READY, f"ready in {time() - self._began:.1f} s" if not fresh else "ready")
        finally:
            self.settled.set()
        await self.check_health()
        return self.state is AgentState.READY

    async def stop(self, reason: str = "") -> None:
        """Take no more runs, give those in flight a few seconds, then cancel them; the port stays.

        ``reason`` is told to callers and in the health; without one they are asked to come again.
        """
        self.reason, self.story = reason, ""
        self._move(AgentState.STOPPING, reason)
        await self._kernel.drain(self.name, DRAIN_SECONDS, reason or "the agent is being restarted")
        await self._succession.end()
        self._move(AgentState.STOPPED, reason)
        self.watched.refresh()

    async def exchange(self, project: Project, config: AgentConfig) -> None:
        """Another executor, made of these, answers from the moment that it is ready.

        Runs in flight finish on the one before. Raises what making it raises: nothing has changed then.
        """
        began = time()
        self._move(self.state, "reloading")
        try:
            executor = await self._succession.made(project, config, fresh=True)
        except BaseException:
            self._move(self.state, "not reloaded")
            raise
        self._succession.exchange(executor, self.run_timeout + _LEEWAY)
        await self.adopt(project, config)
        self._taken_over += 1
        self._move(AgentState.READY, f"reloaded in {time() - began:.1f} s")
        await self._watch_over(executor)
        await self.check_health()

    async def adopt(self, project: Project, config: AgentConfig) -> None:
        """Be what this configuration says; its port is not looked at."""
        self.project, self.config = project, config
        if self._server is not None:
            surface = sys.modules["pallas.surfaces.agent_mcp"]  # ``open`` imported it
            await surface.redescribe(self._server, self.name, config.description)

    async def _connecting(self, executor: Executor) -> None:
        await self._watch_over(executor)
        self._move(AgentState.CONNECTING)

    async def _watch_over(self, executor: Executor) -> None:
        known = self.project.downstreams
        await self.watched.watch_over([known[name] for name in executor.info.servers if name in known])

    def fail(self, reason: str, cause: BaseException | None = None) -> None:
        """Go to ``error`` with a reason of one line; the cause's traceback goes to the log."""
        self.reason = one_line(redact_text(reason), 300)
        self.story = _story(reason, cause)
        log.error("%s: %s", self.name, self.reason, exc_info=cause, extra={"agent": self.name})
        self._move(AgentState.ERROR, self.reason)
        self.settled.set()

    async def health(self) -> Health:
        """How the agent is found now; never asks a model (PI-9)."""
        return await self.watched.ask(self._problems())

    async def check_health(self) -> None:
        """Look at the health now, whoever asks or not; never raises."""
        if self.state is AgentState.STOPPED:
            self.watched.refresh()
            return
        await self.watched.look(self._problems())

    def snapshot(self) -> AgentSnapshot:
        """The agent as a value. Safe from any thread."""
        executor = self.executor
        info = executor.info if executor is not None else None
        stats = self._kernel.stats(self.name)
        return AgentSnapshot(
            name=self.name,
            title=self.config.title,
            description=self.config.description,
            state=self.state,
            since=self.since,
            health=self.watched.shown,
            port=self.config.port,
            url=self.url,
            model=info.model if info else "",
            vision=info.vision if info else False,
            depends_on=self.config.depends_on,
            downstreams=self.watched.downstreams,
            runs_active=stats.active,
            runs_queued=stats.waiting,
            runs_waiting=executor.waiting if executor is not None else 0,
            runs_total=stats.total,
            last_latency=stats.last_latency,
            latency_p50=stats.latency_p50,
            latency_p95=stats.latency_p95,
            tokens_in=stats.tokens_in,
            tokens_out=stats.tokens_out,
            source=str(self.config.where),
            restarts=max(0, self._taken_over - 1),
            started_in=self._started_in,
            error=self.story,
        )

    async def close_port(self) -> None:
        """Stop answering."""
        if self.state is not AgentState.ERROR:
            self._move(AgentState.STOPPING)
        await self._door.close()

    async def close(self) -> None:
        """Let go of the executor. The port must be closed before: a harness waits for its runs."""
        await self._succession.close()
        await self.watched.close()
        self._move(AgentState.STOPPED)

    def _problems(self) -> tuple[str, ...]:
        return self.executor.problems() if self.executor is not None else ()

    def _move(self, state: AgentState, detail: str = "") -> None:
        self.state, self.since = state, time()
        if state is not AgentState.ERROR:  # that one was logged with its cause
            log.info("%s: %s", self.name, detail or state.value, extra={"agent": self.name})
        if state is AgentState.READY:
            self.watched.refresh()  # until the first look it is as good as it looks, not still "starting"
        self._hub.publish(AgentChanged(agent=self.name, state=state, detail=detail))


def _story(reason: str, cause: BaseException | None) -> str:
    """What a person reads who opens the error: the reason, then the traceback of the user's code."""
    import traceback

    from pallas.text import sanitize

    if cause is None:
        return sanitize(redact_text(reason))
    return sanitize(redact_text(reason + "\n\n" + "".join(traceback.format_exception(cause))))


async def fastagent_executor(project: Project, config: AgentConfig) -> Executor:
    """The executor for modules and cards; fast-agent is imported here, off the loop."""
    module = await asyncio.to_thread(importlib.import_module, "pallas.executors.fastagent.executor")
    executor: Executor = module.FastAgentExecutor(project, config)
    return executor
