"""The MCP servers whose tools are agents: ``/virtual/agent-<name>/mcp`` and ``/projects/<project>/mcp``."""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from starlette.types import ASGIApp, Receive, Scope, Send

from pallas.config.models import Project
from pallas.config.network import PROJECTS, VIRTUAL
from pallas.deadlines import cancel_and_wait
from pallas.downstreams.tool_names import ToolNames
from pallas.model import AgentChanged, Event, FleetSnapshot, Notice, Reloaded
from pallas.runs.kernel import Kernel
from pallas.safe_text import one_line
from pallas.telemetry.event_hub import EventHub

from .auth.auth_gate import AuthGate, GateScope
from .auth.inbound_auth import FLEET, Inbound
from .ingress import AgentMount, Ingress
from .on_demand_server import OnDemand
from .published_agent import CHAT, Offered, base_url

if TYPE_CHECKING:
    from pallas.catalog import Catalog

    from .project_mcp import VirtualServer

log = logging.getLogger(__name__)

PREFIX: Final = "agent-"
"""The prefix of the name of an agent's virtual server; agents' own names must not have it."""
_NO_AGENT: Final = "there is no such virtual server; each agent NAME of the fleet has /virtual/agent-NAME/mcp"
_NO_PROJECT: Final = "there is no project of that name here"

Members = Callable[[str], tuple[Collection[str], Collection[str]] | None]
"""The agents of the project of that name and the MCP servers that are its own, by their names; None where
there is no such project. Called often, and must not wait."""


def make_virtual(
    kernel: Kernel,
    project: Callable[[], Project],
    snapshot: Callable[[], FleetSnapshot],
    inbound: Inbound,
    hub: EventHub,
    catalog: Callable[[], "Catalog | None"],
) -> "Virtual":
    """Return the virtual servers of a fleet; put ``before`` its other pages, and ``close`` them with the
    fleet.

    The ``catalog`` says which agents belong to a project; without one all agents belong to the folder's.
    """

    def members(name: str) -> tuple[Collection[str], Collection[str]] | None:
        if (found := catalog()) is not None:
            return found.members(name)
        files = project()
        return (list(files.agents), list(files.downstreams)) if name == files.name else None

    return Virtual(kernel, project, snapshot, inbound, hub, members)


class Virtual:
    """The agents of a fleet as MCP servers. Belongs to its event loop.

    Each server is created with its first request and removed with its agent or project. Its tools are
    looked up at each request, so agents that come, go or change their description show at once.
    """

    def __init__(
        self,
        kernel: Kernel,
        project: Callable[[], Project],
        snapshot: Callable[[], FleetSnapshot],
        inbound: Inbound,
        hub: EventHub,
        members: Members,
    ) -> None:
        self._kernel = kernel
        self._project = project
        self._snapshot = snapshot
        self._inbound = inbound
        self._hub = hub
        self._members = members
        self._served: dict[tuple[str, str], OnDemand] = {}
        self._collisions: set[tuple[str, str]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pending = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._unlisten: Callable[[], None] = lambda: None

    def before(self, rest: ASGIApp) -> ASGIApp:
        """Return the application of the fleet's port: the virtual servers, and ``rest`` for all other
        paths."""
        self._loop = asyncio.get_running_loop()
        self._unlisten = self._hub.listen(self._hear)
        projects = _Places(rest, PROJECTS, _NO_PROJECT, self._of_project)
        return _Places(projects, VIRTUAL, _NO_AGENT, self._of_agent)

    def offered(self, project: str) -> Sequence[Offered]:
        """Return the tools of a project: its agents, except those with the name of one of its servers
        (AG-24).

        Excluded agents are reported in the log and on screen, once.
        """
        found = self._members(project)
        if found is None:
            return ()
        agents, servers = found
        left_out = {(project, name) for name in agents if PREFIX + name in servers}
        for _, name in sorted(left_out - self._collisions):
            self._warn(project, name)
        self._collisions = {each for each in self._collisions if each[0] != project} | left_out
        wanted = set(agents) - {name for _, name in left_out}
        offered = [agent for agent in self._snapshot().agents if agent.name in wanted]
        names = ToolNames({PREFIX + agent.name: (CHAT,) for agent in offered})
        return [
            Offered(names.shown(PREFIX + agent.name, CHAT), agent.name, agent.description)
            for agent in offered
        ]

    async def close(self) -> None:
        """End all servers; requests in flight have two seconds."""
        self._unlisten()
        served = list(self._served.values())
        self._served.clear()
        await asyncio.gather(*(each.close() for each in served))
        await cancel_and_wait(*self._tasks, seconds=1.0)

    def _of_agent(self, name: str) -> AgentMount | None:
        agent = name.removeprefix(PREFIX)
        if agent == name or not self._chat(agent):
            return None
        return self._place((VIRTUAL, name), name, agent, lambda: self._chat(agent))

    def _of_project(self, name: str) -> AgentMount | None:
        if self._members(name) is None:
            return None
        return self._place((PROJECTS, name), name, FLEET, lambda: self.offered(name))

    def _chat(self, agent: str) -> Sequence[Offered]:
        """Return the one tool of an agent's own virtual server; none if there is no such agent."""
        found = next((each for each in self._snapshot().agents if each.name == agent), None)
        return [] if found is None else [Offered(CHAT, agent, found.description)]

    def _place(
        self, key: tuple[str, str], name: str, agent: str, offered: Callable[[], Sequence[Offered]]
    ) -> AgentMount:
        served = self._served.get(key)
        if served is None:
            served = self._served[key] = OnDemand(
                "/".join(key),
                lambda: self._make(key, name, agent, offered),
                needs="pallas.surfaces.project_mcp",
            )
        return served.place

    def _make(
        self, key: tuple[str, str], name: str, agent: str, offered: Callable[[], Sequence[Offered]]
    ) -> "tuple[VirtualServer, ASGIApp]":
        from .agent_mcp import endpoint
        from .project_mcp import VirtualServer

        about = next((each.description for each in offered()), "") if agent else f"The agents of {name}."
        server = VirtualServer(
            name,
            about,
            kernel=self._kernel,
            inbound=self._inbound,
            offered=offered,
            version=self._project().version,
        )
        path = f"/{key[0]}/{quote(key[1])}/mcp"
        asking = GateScope(agent, self._inbound, lambda _: base_url(self._project()) + path)
        # The port has the host guard.
        app = endpoint(
            server.app,
            None,
            wire=self._kernel.wire,
            gate=lambda inner: AuthGate(inner, asking),
            seal=self._inbound.session_seal,
        )

        async def current(scope: Scope, receive: Receive, send: Send) -> None:
            server.app.release(self._project().version)
            await app(scope, receive, send)

        return server, current

    def _hear(self, event: Event) -> None:
        """Check the agents once for all events of this moment: one may have come, gone or changed."""
        if isinstance(event, AgentChanged | Reloaded) and self._loop is not None and not self._pending:
            self._pending = True  # set before: another thread may publish this
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        self._pending = False
        self.offered(self._project().name)  # reports what is left out, before the first request
        for key, served in list(self._served.items()):
            agent = key[1].removeprefix(PREFIX)
            if self._chat(agent) if key[0] == VIRTUAL else self._members(key[1]):
                self._own(served.tell())
            elif key[0] == PROJECTS or not self._kernel.in_flight.of(
                agent
            ):  # its requests end before it is removed
                del self._served[key]
                self._own(served.close())

    def _own(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _warn(self, project: str, agent: str) -> None:
        text = (
            f"{one_line(project, 100)}: {agent} is not a tool at /projects/{quote(project)}/mcp, where "
            f"{PREFIX}{agent} is the name of an MCP server already; rename that server"
        )
        log.warning("%s", text, extra={"agent": agent})
        self._hub.publish(Notice(level="warning", text=text, agent=agent))


class _Places(Ingress):
    """The virtual servers below one path, each created when it is first looked up."""

    def __init__(
        self, rest: ASGIApp, top: str, unknown: str, look: Callable[[str], AgentMount | None]
    ) -> None:
        super().__init__(rest, top=top, unknown=unknown)
        self._look = look

    def find(self, name: str) -> AgentMount | None:
        """Return the mount of that name, if there is such a server now."""
        return self._look(name)
