"""Adds agents to a fleet and removes them while it runs."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from pallas.config import AgentConfig, Project
from pallas.deadlines import cancel_and_wait
from pallas.model import Fault
from pallas.surfaces.status_pages import Page

from .agent import FleetAgent
from .agent_factory import MakeExecutor
from .context import FleetContext
from .own_llms import OwnLlms
from .ports import FleetPorts

if TYPE_CHECKING:
    from pallas.tasks import Tasks

log = logging.getLogger(__name__)


class Membership:
    """Makes, moves and removes the agents of ``context.agents``. Belongs to the fleet's event loop.

    ``pages``, by path, are served on each agent's own port.
    """

    def __init__(
        self,
        context: FleetContext,
        ports: FleetPorts,
        *,
        make_executor: MakeExecutor,
        provider_problem: Callable[[Collection[str] | None], str],
        pages: Callable[[], Mapping[str, Page]],
        tasks: "Callable[[], Tasks | None]",
        llms: OwnLlms,
    ) -> None:
        self._context = context
        self._ports = ports
        self._make_executor = make_executor
        self._provider_problem = provider_problem
        self._pages = pages
        self._tasks = tasks
        self._llms = llms
        self._leaving: dict[asyncio.Task[None], FleetAgent] = {}

    def add(self, project: Project, config: AgentConfig) -> FleetAgent:
        """Add an agent with its port taken, still closed. Raises Fault (CONFIG): the port is not free."""
        agent = FleetAgent(
            project,
            config,
            self._ports.address(config),
            hub=self._context.hub,
            kernel=self._context.kernel,
            make_executor=self._make_executor,
            provider_problem=self._provider_problem,
            pages=self._pages(),
            inbound=self._context.inbound,
            tasks=self._tasks,
            llms=self._llms,
        )
        self._context.kernel.attach(agent)
        self._context.agents.add(agent)
        return agent

    def remove(self, name: str, why: str, seconds: float) -> None:
        """Remove an agent: callers do not find it any more, and it takes no more runs.

        Those in flight have ``seconds``; then its port closes, unless another agent has it by then, and its
        conversations end. Returns at once.
        """
        agent = self._context.agents.by_name[name]
        agent.address.let_go()
        self._context.agents.remove(name)
        task = asyncio.create_task(self._leave(agent, why, seconds), name=f"{name} leaves")
        self._leaving[task] = agent
        task.add_done_callback(lambda done: self._leaving.pop(done, None))

    async def gone(self, configs: Iterable[AgentConfig]) -> None:
        """Wait until no agent that leaves has one of these names, and none of these ports is being closed."""
        wanted = list(configs)
        names = {each.name for each in wanted}
        if waiting := [task for task, agent in self._leaving.items() if agent.name in names]:
            await asyncio.wait(waiting)
        await self._ports.shut({each.port for each in wanted if each.port})

    async def move(
        self, configs: Mapping[str, AgentConfig], ports_to_keep: Collection[int], seconds: float
    ) -> dict[str, Fault]:
        """Move agents to the ports of these configurations, all at once; return why some stay where they are.

        Ports without an agent after that are closed, but for ``ports_to_keep``, which wait for new agents.
        Requests under way there have ``seconds``.
        """
        agents = self._context.agents.by_name
        addresses = {agents[name].address: config for name, config in configs.items()}
        problems = await self._ports.move(addresses, ports_to_keep, seconds)
        return {address.config.name: fault for address, fault in problems.items()}

    def moved(self, seconds: float) -> None:
        """Close the ports that were kept for agents to come: all are here. ``seconds`` as for ``move``."""
        self._ports.close_free(grace_s=seconds)

    async def close(self) -> None:
        """End the agents that are leaving, now."""
        tasks = list(self._leaving)
        await cancel_and_wait(*tasks, seconds=3.0)

    async def _leave(self, agent: FleetAgent, why: str, seconds: float) -> None:
        try:
            await agent.stop(why, seconds)
        finally:
            try:
                await agent.close_port()
                await agent.close()
            finally:
                self._context.kernel.detach(agent)
                log.info("%s: removed", agent.name, extra={"agent": agent.name})
