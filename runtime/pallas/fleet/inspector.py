"""What can be looked up about one agent, and calls of tools by hand, as its agent would make them."""

import asyncio
import importlib
import json
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any, Final

from pallas.config.code import code_file, module_of
from pallas.model import (
    AgentDetail,
    AgentSnapshot,
    Fault,
    FaultType,
    FleetSnapshot,
    PayloadDetail,
    ResourceReading,
    ServerDetail,
    ToolDetail,
    ToolOutcome,
)
from pallas.safe_text import one_line
from pallas.surfaces.registry import catalogue
from pallas.toolbox.plain_json import json_text
from pallas.toolbox.seen_tools import SeenTools
from pallas.toolbox.server_endpoint import ServerEndpoint, downstream_endpoint, own_endpoint

from .agent import FleetAgent
from .context import FleetContext
from .tool_decisions import with_rules
from .tool_locks import ToolLocks

# Tasks at one time: a client that calls in a loop is asked to wait.
MAX_PENDING: Final = 100
# Seconds that cancelled ones have to close what they opened, when the fleet stops.
_CLOSE_TIMEOUT: Final = 2.5

log = logging.getLogger(__name__)

# Seconds for one server's list, for all of an agent's, and for a tool.
LIST_TIMEOUT: Final = 20.0
DESCRIBE_TIMEOUT: Final = 27.0
CALL_TIMEOUT: Final = 300.0
# For a connection, a subscription and a reading, or for an update and a reading.
FOLLOW_TIMEOUT: Final = 50.0
# Servers that are asked at one time: each may be a program to start.
_AT_A_TIME: Final = 6
_MAX_ENTRY: Final = 64 * 1024
_MODULES: Final = (
    "pallas.executors.fastagent.tools_seam",
    "pallas.toolbox.resource_reading",
    "pallas.toolbox.tool_call",
    "pallas.tools_lock.live_surface",
)


class PendingCalls:
    """The calls of one fleet's inspector. Belongs to its event loop.

    A caller may be cancelled or time out at once; the task then closes what it opened (a child process, a
    session) in peace: a second cancellation in the middle of that would leave it behind.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    async def run[T](self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """The result of ``work``. Raises TimeoutError after ``seconds``, Fault when it cannot be done now."""
        if self._closed or len(self._tasks) >= MAX_PENDING:
            work.close()
            if self._closed:
                raise Fault(FaultType.TRANSPORT, "the fleet is stopping")
            raise Fault(
                FaultType.TRANSPORT, f"{MAX_PENDING} questions are being answered; ask again in a moment"
            )
        # An empty context: neither the caller nor its request goes along.
        task = asyncio.create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._done)
        try:
            await asyncio.wait({task}, timeout=seconds)
        except asyncio.CancelledError:
            _cancel(task)
            raise
        if not task.done():
            _cancel(task)
            raise TimeoutError
        if task.cancelled():
            raise Fault(FaultType.TRANSPORT, "the fleet is stopping")
        return task.result()

    async def close(self) -> None:
        """Cancel all of them and wait a moment until they have closed what they opened."""
        self._closed = True
        for task in self._tasks:
            _cancel(task)
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=_CLOSE_TIMEOUT)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may be gone


def _cancel(task: asyncio.Task[Any]) -> None:
    if not task.cancelling():
        task.cancel()


class Inspector:
    """Describes the agents of one fleet, calls tools and reads resources by hand. Belongs to its event loop.

    Every connection is one of its own and closed afterwards, so nothing here disturbs a run, and a server
    can be looked at while its agent is stopped or broken. ``snapshot`` is the fleet's, None where it has no
    registry.
    """

    def __init__(
        self,
        context: FleetContext,
        *,
        published: Callable[[], FleetSnapshot | None],
        seen: SeenTools,
    ) -> None:
        self._context = context
        self._published = published
        self._seen = seen
        self._locks = ToolLocks(context.options.lock_mode)
        self._pending = PendingCalls()
        self._subscriptions: Any = None

    async def describe(self, name: str) -> AgentDetail:
        """Everything about an agent, 30 s at most; a server that does not answer has a ``problem``.

        Raises Fault when there is no such agent.
        """
        agent = self._agent(name)
        await _load()
        until = monotonic() + DESCRIBE_TIMEOUT
        free = asyncio.Semaphore(_AT_A_TIME)
        names = ("", *agent.servers)
        surfaces: dict[str, Any] = {}
        looks = (self._server(agent, each, free, until, surfaces) for each in names)
        found = await self._locks.with_findings(await asyncio.gather(*looks), surfaces)
        changes = await self._seen.noted(
            {_key(agent, each.server): each.tools for each in found if each.tools or not each.problem}
        )
        executor = agent.executor
        return AgentDetail(
            name=agent.name,
            source=str(agent.config.where),
            defined=(executor.info.defined if executor is not None else "") or _code(agent),
            instruction=executor.info.instruction if executor is not None else "",
            registry_entry=self._entry(agent.snapshot()),
            servers=tuple(
                replace(
                    with_rules(each, agent.tool_rules) if each.server else each,
                    changes=changes.get(_key(agent, each.server), each.changes),
                )
                for each in found
            ),
            payload=_payload(agent),
            peers=agent.config.peers,
        )

    async def call_tool(
        self, name: str, server: str, tool: str, arguments: Mapping[str, Any], bearer: str | None = None
    ) -> ToolOutcome:
        """What a tool gave back, 300 s at most; cancelling ends the call and what it opened. Raises Fault."""
        agent = self._agent(name)
        endpoint = self._endpoint(agent, server)
        await _load()
        check = partial(self._locks.refuse_held, agent, server, tool) if server else None
        calling = importlib.import_module("pallas.toolbox.tool_call")  # is there by now
        try:
            outcome: ToolOutcome = await self._pending.run(
                calling.call_tool(endpoint, tool, arguments, bearer, check=check), CALL_TIMEOUT
            )
        except TimeoutError:
            raise Fault(
                FaultType.TIMEOUT,
                f"{one_line(tool, 100)} of {server or name} did not answer within {CALL_TIMEOUT:.0f} s; "
                "the call was cancelled",
            ) from None
        log.info(
            "%s: %s of %s was called by hand: %s in %.2f s",
            name,
            one_line(tool, 100),
            server or "its own port",
            "ok" if outcome.ok else "an error",
            outcome.seconds,
            extra={"agent": name, "tool": one_line(tool, 100)},
        )
        return outcome

    async def read_resource(self, name: str, server: str, uri: str) -> ResourceReading:
        """Read a resource of a downstream once, within 20 s. Raises Fault."""
        endpoint = self._downstream(name, server)
        await _load()
        readings = importlib.import_module("pallas.toolbox.resource_reading")
        return await self._read(server, readings.read_resource(endpoint, uri), LIST_TIMEOUT)

    async def follow_resource(
        self, name: str, server: str, uri: str, subscription: str = "", after: int = 0
    ) -> ResourceReading:
        """Subscribe to a resource, or wait for its next update; cancelling ends the subscription."""
        endpoint = self._downstream(name, server)
        await _load()
        if self._subscriptions is None:
            readings = importlib.import_module("pallas.toolbox.resource_reading")
            self._subscriptions = readings.ResourceSubscriptions()
        all_ = self._subscriptions
        work = all_.following(subscription, after) if subscription else all_.begin(endpoint, uri)
        return await self._read(server, work, FOLLOW_TIMEOUT)

    async def accept_tools(self, name: str, server: str, digest: str) -> str:
        """Accept what a downstream lists, 30 s at most; return it in words. Raises Fault."""
        agent = self._agent(name)
        endpoint = self._endpoint(agent, server)
        if not server:
            raise Fault(FaultType.CONFIG, f"{agent.name} itself is not in the lock; name one of its servers")
        await _load()
        try:
            said = await self._pending.run(
                self._locks.accept(agent, server, endpoint, digest), DESCRIBE_TIMEOUT
            )
        except TimeoutError:
            raise Fault(FaultType.TIMEOUT, f"{one_line(server, 80)} did not list its tools in time") from None
        log.info("%s: the tools of %s were accepted", name, one_line(server, 80), extra={"agent": name})
        for each in self._context.agents.all:
            each.watched.refresh()
        return said

    async def close(self) -> None:
        """End the calls under way, and the subscriptions."""
        await self._pending.close()
        if self._subscriptions is not None:
            await self._subscriptions.close()

    async def _read(
        self, server: str, work: Coroutine[Any, Any, ResourceReading], seconds: float
    ) -> ResourceReading:
        try:
            return await self._pending.run(work, seconds)
        except TimeoutError:
            text = f"{one_line(server, 80)} did not give the resource within {seconds:.0f} s"
            raise Fault(FaultType.TIMEOUT, text) from None

    def _downstream(self, name: str, server: str) -> ServerEndpoint:
        agent = self._agent(name)
        if not server:
            raise Fault(FaultType.CONFIG, f"{agent.name} itself has no resources; name one of its servers")
        return self._endpoint(agent, server)

    async def _server(
        self,
        agent: FleetAgent,
        server: str,
        free: asyncio.Semaphore,
        until: float,
        surfaces: dict[str, Any],
    ) -> ServerDetail:
        """A server with its tools; ``surfaces`` gets what a downstream says of itself."""
        listing = importlib.import_module("pallas.executors.fastagent.tools_seam")
        try:
            endpoint = self._endpoint(agent, server)
            async with asyncio.timeout(max(0.0, until - monotonic())):
                await free.acquire()
            try:
                seconds = min(LIST_TIMEOUT, until - monotonic())
                if server:
                    look = self._locks.look(agent, server, endpoint)
                    detail, surfaces[server] = await self._pending.run(look, seconds)
                    return detail
                tools: tuple[ToolDetail, ...]
                own = agent.inbound.own_token(agent.name)
                tools, more = await self._pending.run(listing.list_tools(endpoint, own), seconds)
            finally:
                free.release()
        except Fault as fault:
            return ServerDetail(server, problem=fault.message)
        except TimeoutError:
            return ServerDetail(server, problem="it did not list its tools in time")
        problem = f"it has more tools; only the first {len(tools)} are shown" if more else ""
        return ServerDetail(server, tools, problem=problem)

    def _agent(self, name: str) -> FleetAgent:
        if (agent := self._context.agents.get(name)) is not None:
            return agent
        raise Fault(FaultType.UPSTREAM, f"Agent not found: {one_line(name, 80)}")

    def _endpoint(self, agent: FleetAgent, server: str) -> ServerEndpoint:
        if not server:
            tls = agent.project.tls
            return own_endpoint(agent.name, agent.url, tls.certfile if tls is not None else None)
        if server not in agent.servers:
            known = ", ".join(agent.servers) or "none"
            raise Fault(
                FaultType.CONFIG, f"{agent.name} does not call {one_line(server, 80)}; its servers: {known}"
            )
        endpoint = downstream_endpoint(agent.project, server)
        if endpoint is None:
            raise Fault(
                FaultType.CONFIG,
                f"{one_line(server, 80)} has no url and no command under mcp.servers: the model's provider "
                "calls it, or the agent's code adds it",
            )
        return endpoint

    def _entry(self, agent: AgentSnapshot) -> str:
        """The agent's entry as the registry publishes it; empty while it does not."""
        fleet = self._published()
        if fleet is None:
            return ""
        servers = catalogue(self._context.project, replace(fleet, agents=(agent,)))["servers"]
        return json_text(servers[0], _MAX_ENTRY, indent=2) if servers else ""


def _key(agent: FleetAgent, server: str) -> str:
    """Under which name a list is remembered: a downstream's own, which agents share, or the agent's."""
    return json.dumps(["agent", agent.name] if not server else ["server", server])


def _payload(agent: FleetAgent) -> PayloadDetail | None:
    """What a typed handler takes; None for an agent that takes text, or that was not loaded."""
    taken = agent.executor.info.payload if agent.executor is not None else None
    if taken is None:
        return None
    return PayloadDetail(
        taken.name, json_text(taken.json_schema, _MAX_ENTRY, indent=2, names=False), taken.example
    )


def _code(agent: FleetAgent) -> str:
    """The file an agent should be in, for one whose code could not be imported."""
    root, config = agent.project.root, agent.config
    if config.definition is not None:
        return str(config.where)
    path = code_file(root, config)
    if path is None:
        return one_line(module_of(config) or (str(config.where) if config.kind != "llm" else ""))
    return one_line(str(path.relative_to(root) if path.is_relative_to(root) else path))


async def _load() -> None:
    """Import the protocol's client in a thread: half a second, the first time."""
    for module in _MODULES:
        await asyncio.to_thread(importlib.import_module, module)
