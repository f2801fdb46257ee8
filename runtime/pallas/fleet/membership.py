"""The agents of a fleet, made, added and removed while it goes on."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pallas.config import AgentConfig, Project
from pallas.model import Fault
from pallas.runs.kernel import Kernel
from pallas.surfaces.auth.inbound_auth import Inbound
from pallas.surfaces.status_pages import Page
from pallas.telemetry.event_hub import Hub

from .agent import FleetAgent
from .own_llms import OwnLlms
from .ports import FleetPorts
from .versions import MakeExecutor

if TYPE_CHECKING:
    from pallas.tasks import Tasks

log = logging.getLogger(__name__)


class Membership:
    """Who is in the fleet. Belongs to its event loop; ``all`` may be read from any thread."""

    def __init__(
        self,
        ports: FleetPorts,
        *,
        hub: Hub,
        kernel: Kernel,
        make_executor: MakeExecutor,
        provider_problem: Callable[[], str],
        pages: Callable[[], Mapping[str, Page]],
        inbound: Inbound,
        tasks: "Callable[[], Tasks | None]" = lambda: None,
        llms: OwnLlms | None = None,
    ) -> None:
        self._ports = ports
        self._hub = hub
        self._kernel = kernel
        self._make_executor = make_executor
        self._provider_problem = provider_problem
        self._pages = pages
        self._inbound = inbound
        self._tasks = tasks
        self._llms = llms or OwnLlms()
        self._leaving: dict[asyncio.Task[None], FleetAgent] = {}
        self._changed: tuple[Callable[[], None], ...] = ()
        self.by_name: dict[str, FleetAgent] = {}
        self.all: tuple[FleetAgent, ...] = ()

    def listen(self, changed: Callable[[], None]) -> None:
        """``changed`` is called at once when an agent came or went, or when their order is another."""
        self._changed = (*self._changed, changed)

    def add(self, project: Project, config: AgentConfig) -> FleetAgent:
        """A new agent with its port taken, still closed. Raises Fault (CONFIG) where that cannot be had."""
        agent = FleetAgent(
            project,
            config,
            self._ports.address(config),
            hub=self._hub,
            kernel=self._kernel,
            make_executor=self._make_executor,
            provider_problem=self._provider_problem,
            pages=self._pages(),
            inbound=self._inbound,
            tasks=self._tasks,
            llms=self._llms,
        )
        self._kernel.attach(agent)
        self.by_name[config.name] = agent
        self.all = (*self.all, agent)
        self._tell()
        return agent

    def arrange(self, order: Collection[str]) -> None:
        """List them in this order."""
        rank = {name: number for number, name in enumerate(order)}
        self.all = tuple(sorted(self.by_name.values(), key=lambda agent: rank.get(agent.name, len(rank))))
        self._tell()

    def remove(self, name: str, why: str, seconds: float) -> None:
        """Take an agent out of the fleet: nobody finds it any more, and it takes no more runs.

        Those in flight have ``seconds``; then its port closes, unless another agent has it by then, and its
        conversations end. Returns at once.
        """
        agent = self.by_name.pop(name)
        agent.address.let_go()
        self.all = tuple(each for each in self.all if each is not agent)
        self._tell()  # what answers is still there
        task = asyncio.create_task(self._leave(agent, why, seconds), name=f"{name} leaves")
        self._leaving[task] = agent
        task.add_done_callback(lambda done: self._leaving.pop(done, None))

    async def gone(self, configs: Iterable[AgentConfig]) -> None:
        """Until no agent that leaves has a name of theirs, and no port of theirs is just being closed."""
        wanted = list(configs)
        names = {each.name for each in wanted}
        if waiting := [task for task, agent in self._leaving.items() if agent.name in names]:
            await asyncio.wait(waiting)
        await self._ports.shut({each.port for each in wanted if each.port})

    async def move(
        self, configs: Mapping[str, AgentConfig], keep: Collection[int], seconds: float
    ) -> dict[str, Fault]:
        """Agents at other ports, as these say, all of them at once; why some of them stay where they are.

        Ports that nobody has then are closed, but for those of ``keep``, which wait for who is added to the
        fleet. Requests under way there have ``seconds``.
        """
        addresses = {self.by_name[name].address: config for name, config in configs.items()}
        problems = await self._ports.move(addresses, keep, seconds)
        return {address.config.name: fault for address, fault in problems.items()}

    def moved(self, seconds: float) -> None:
        """Nobody else is added: ports that were kept for that are closed; ``seconds`` as for ``move``."""
        self._ports.close_free(grace=seconds)

    async def close(self) -> None:
        """End those that are leaving, now."""
        tasks = list(self._leaving)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=3.0)

    def _tell(self) -> None:
        for changed in self._changed:
            changed()

    async def _leave(self, agent: FleetAgent, why: str, seconds: float) -> None:
        try:
            await agent.stop(why, seconds)
        finally:
            try:
                await agent.close_port()
                await agent.close()
            finally:
                self._kernel.detach(agent)
                log.info("%s: removed", agent.name, extra={"agent": agent.name})


def as_it_is(project: Project, configs: Mapping[str, AgentConfig]) -> Project:
    """``project`` with the agents' configurations as they really are."""
    mixed = replace(project, agents=configs)
    try:
        mixed.start_layers()
    except ValueError:  # some have the order of before: only that of the new files is free of circles
        needs = {name: project.agents[name].needs for name in configs if name in project.agents}
        mixed = replace(
            mixed,
            agents={name: replace(each, needs=needs.get(name, ())) for name, each in configs.items()},
        )
    return mixed


def as_started(project: Project, fleet: Project) -> Project:
    """``project`` with what only another start of the fleet takes over."""
    return replace(
        project, bind=fleet.bind, registry_port=fleet.registry_port, port=fleet.port, tls=fleet.tls
    )
