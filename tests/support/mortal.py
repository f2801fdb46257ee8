"""Executors that fail when a test says so, and fleets of agents made of them."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from pallas.config import AgentConfig, Project, load_project
from pallas.executors import Executor, ExecutorInfo
from pallas.fleet.fleet import Fleet
from pallas.fleet.health_monitor import CHECK_INTERVALS, CheckIntervals
from pallas.model import AgentChanged, AgentSnapshot, AgentState, Notice

from .executors import FakeExecutor
from .waiting import until


@dataclass
class Fates:
    """What becomes of the starts of one agent, one after the other; those that are not told succeed.

    An exception is raised, an event is waited for. ``servers`` are the downstreams it calls.
    """

    starts: list[BaseException | asyncio.Event | None] = field(default_factory=list)
    loads: list[BaseException | None] = field(default_factory=list)
    servers: tuple[str, ...] = ()
    begun: int = 0
    at_a_time: int = 0
    most_at_a_time: int = 0
    closed: int = 0
    made: "list[Mortal]" = field(default_factory=list)


@dataclass
class Mortal(FakeExecutor):
    """Fails as its agent's fates say, and dies when a test wants it to."""

    fates: Fates = field(default_factory=Fates)

    def __post_init__(self) -> None:
        self.info = ExecutorInfo(model="fake", servers=self.fates.servers)

    async def load(self, *, fresh: bool = False) -> None:
        if self.fates.loads and (error := self.fates.loads.pop(0)) is not None:
            raise error

    async def start(self) -> None:
        fates = self.fates
        fates.begun += 1
        fates.at_a_time += 1
        fates.most_at_a_time = max(fates.most_at_a_time, fates.at_a_time)
        try:
            await asyncio.sleep(0)
            fate = fates.starts.pop(0) if fates.starts else None
            if isinstance(fate, asyncio.Event):
                await fate.wait()
            elif fate is not None:
                raise fate
        finally:
            fates.at_a_time -= 1

    def die(self, reason: str = "its process was killed") -> None:
        """Answer no more, and say so."""
        assert self.tell is not None
        self.tell(reason)

    async def close(self, timeout_s: float) -> None:
        self.fates.closed += 1


@asynccontextmanager
async def mortals(
    root: Path,
    fates: dict[str, Fates],
    *,
    pace: CheckIntervals = CHECK_INTERVALS,
    executor: Callable[..., Any] = Mortal,
    watch: bool = False,
) -> AsyncIterator[Fleet]:
    """A fleet of the project at ``root`` whose agents have these fates, stopped at the end."""

    async def make(project: Project, config: AgentConfig) -> Executor:
        mine = fates.setdefault(config.name, Fates())
        made = executor(fates=mine)
        mine.made.append(made)
        return made

    before, argv = Path.cwd(), sys.argv
    sys.argv = ["pallas"]
    fleet = Fleet(load_project(root, {**os.environ}), dev=True, pace=pace, make_executor=make, watch=watch)
    try:
        await fleet.start()
        yield fleet
    finally:
        await fleet.stop()
        os.chdir(before)
        sys.argv = argv


def shown(fleet: Fleet, name: str = "one") -> AgentSnapshot:
    """The agent as the fleet shows it."""
    agent = fleet.snapshot().agent(name)
    assert agent is not None
    return agent


async def reaches(fleet: Fleet, state: AgentState, name: str = "one", timeout: float = 60) -> AgentSnapshot:
    """Wait until the agent is in that state."""
    await until(lambda: shown(fleet, name).state is state, timeout=timeout)
    return shown(fleet, name)


def moves(fleet: Fleet, name: str = "one", after: int = 0) -> list[AgentState]:
    """The states that the agent went through, each once in a row."""
    found: list[AgentState] = []
    for event in fleet.hub.since(after).events:
        is_its = isinstance(event, AgentChanged) and event.agent == name
        if is_its and (not found or found[-1] is not event.state):
            found.append(event.state)
    return found


def told(fleet: Fleet, level: str | None = None) -> list[str]:
    """The texts of the notices."""
    events = fleet.hub.since(0).events
    return [each.text for each in events if isinstance(each, Notice) and level in (None, each.level)]


async def page(fleet: Fleet, path: str) -> httpx2.Response:
    """A page of the registry's port."""
    async with httpx2.AsyncClient(base_url=fleet.ports.origin, trust_env=False, timeout=60) as http:
        return await http.get(path)


async def metrics(fleet: Fleet) -> dict[tuple[str, ...], float]:
    """Every sample of the exposition by its name and the values of its labels."""
    text = (await page(fleet, "/metrics")).text
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
