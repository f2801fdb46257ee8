"""What the parts of one fleet share. Each part takes this, never the fleet."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from time import time

from pallas.access.grants import Grants
from pallas.config import AgentConfig, Project
from pallas.model import ANONYMOUS, FleetChanged, FleetState, Principal
from pallas.prices.price_book import PriceBook
from pallas.runs.kernel import Kernel
from pallas.surfaces.auth.inbound_auth import Inbound
from pallas.telemetry.event_hub import EventHub

from .agent import FleetAgent
from .options import FleetOptions

log = logging.getLogger(__name__)


class AgentTable:
    """The agents of a fleet. Belongs to its event loop; ``all`` may be read from any thread."""

    def __init__(self) -> None:
        self.by_name: dict[str, FleetAgent] = {}
        self.all: tuple[FleetAgent, ...] = ()
        self._listeners: list[Callable[[], None]] = []

    def listen(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` at once whenever an agent comes or goes, or their order changes."""
        self._listeners.append(changed)

    def get(self, name: str) -> FleetAgent | None:
        """The agent of that name, None without one."""
        return self.by_name.get(name)

    def add(self, agent: FleetAgent) -> None:
        """Append an agent."""
        self.by_name[agent.name] = agent
        self.all = (*self.all, agent)
        self._tell()

    def remove(self, name: str) -> FleetAgent:
        """Remove an agent and return it."""
        agent = self.by_name.pop(name)
        self.all = tuple(each for each in self.all if each is not agent)
        self._tell()
        return agent

    def arrange(self, order: Collection[str]) -> None:
        """List the agents in this order of names; others follow."""
        rank = {name: number for number, name in enumerate(order)}
        self.all = tuple(sorted(self.by_name.values(), key=lambda agent: rank.get(agent.name, len(rank))))
        self._tell()

    def _tell(self) -> None:
        for changed in self._listeners:
            changed()


class CurrentProject:
    """The project that the fleet goes by: its files, and the agents as they really are."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.prices = PriceBook(project.prices, project.offline_port)

    def adopt(self, project: Project) -> None:
        """Go by this project from now on."""
        self.project = project
        self.prices.adopt(project.prices, project.offline_port)

    def adopt_agent(self, config: AgentConfig) -> None:
        """An agent has this configuration from now on."""
        self.project = with_agents(self.project, {**self.project.agents, config.name: config})

    def forget_agent(self, name: str) -> None:
        """The agent is not part of the fleet any more."""
        agents = {key: each for key, each in self.project.agents.items() if key != name}
        self.project = with_agents(self.project, agents)


class Lifecycle:
    """Where the fleet is between its start and its end. Each change is logged and published."""

    def __init__(self, current: CurrentProject, hub: EventHub) -> None:
        self.state = FleetState.STARTING
        self.since = time()
        self._current = current
        self._hub = hub

    @property
    def is_ending(self) -> bool:
        """Whether the fleet drains, stops or has stopped."""
        return self.state not in (FleetState.STARTING, FleetState.RUNNING)

    @property
    def refusal(self) -> str:
        """Why nothing can be done with an agent now; empty while it can."""
        gone = self.state in (FleetState.DRAINING, FleetState.STOPPING, FleetState.STOPPED)
        return f"the fleet is {self.state.value}" if gone else ""

    def move_to(self, state: FleetState) -> None:
        """Enter a state."""
        self.state, self.since = state, time()
        log.info("fleet %s: %s", self._current.project.name, state.value)
        self._hub.publish(FleetChanged(state=state))

    def report(self, detail: str) -> None:
        """Publish one line about the state that the fleet is in."""
        self._hub.publish(FleetChanged(state=self.state, detail=detail))


class BackgroundTasks:
    """The tasks that a fleet runs until it stops, which cancels them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[asyncio.Task[None]]:
        return iter(tuple(self._tasks))

    def start(self, work: Awaitable[None]) -> asyncio.Task[None]:
        """Run ``work`` until it is over or the fleet stops."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


@dataclass(frozen=True, slots=True)
class FleetContext:
    """One fleet, as far as its parts share it. Belongs to the fleet's event loop."""

    options: FleetOptions
    hub: EventHub
    kernel: Kernel
    inbound: Inbound
    """Who may call which agent."""
    current: CurrentProject
    lifecycle: Lifecycle
    agents: AgentTable = field(default_factory=AgentTable)
    tasks: BackgroundTasks = field(default_factory=BackgroundTasks)

    @property
    def project(self) -> Project:
        """The project that the fleet goes by now."""
        return self.current.project

    @property
    def grants(self) -> Grants:
        """The permissions of the project's files, as they were last read without a mistake."""
        return self.inbound.grants

    @property
    def is_alone(self) -> bool:
        """Whether a single agent is served."""
        return self.options.only is not None

    def served(self) -> tuple[AgentConfig, ...]:
        """The agents of the project that this fleet serves."""
        agents, only = self.project.agents, self.options.only
        return tuple(agents.values()) if only is None else (agents[only],)

    def principal_of(self, run_id: str) -> Principal:
        """Who asked for a run in flight."""
        run = self.kernel.in_flight.get(run_id)
        return run.principal if run is not None else ANONYMOUS


def with_agents(project: Project, configs: Mapping[str, AgentConfig]) -> Project:
    """``project`` with these configurations of its agents."""
    mixed = replace(project, agents=configs)
    try:
        mixed.start_layers()
    except ValueError:  # some have dependencies of before: only those of the new files are free of cycles
        needs = {name: project.agents[name].needs for name in configs if name in project.agents}
        mixed = replace(
            mixed,
            agents={name: replace(each, needs=needs.get(name, ())) for name, each in configs.items()},
        )
    return mixed
