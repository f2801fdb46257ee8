"""The agents of one instance while it is attached: a connection, a poll and a gauge value each."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from pallas.model import HealthStatus

from .agent_poller import AgentPoller, PolledConnection, PollPace
from .instance_model import RegistryAgent

Connect = Callable[[str], PolledConnection]
"""Makes the connection to an agent's URL; connects nothing yet."""


class HealthGauge(Protocol):
    """Where the health of attached agents is counted (PI-16)."""

    def set(self, instance: str, agent: str, status: HealthStatus) -> None:
        """Note what a poll found."""
        ...

    def forget(self, instance: str) -> None:
        """Take out every agent of an instance."""
        ...


class InstanceAttachment:
    """The agents of one attached registry. Empty at first; ``follow`` takes a listing, ``end`` empties it.

    ``changed`` is called after each change of an agent's data.
    """

    def __init__(self, label: str, pace: PollPace, connect: Connect, changed: Callable[[], None]) -> None:
        self._label, self._pace, self._connect, self._changed = label, pace, connect, changed
        self._watches: dict[str, AgentPoller] = {}
        self._gauge: HealthGauge | None = None

    @property
    def watches(self) -> tuple[AgentPoller, ...]:
        """The agents that are polled."""
        return tuple(self._watches.values())

    def watch(self, agent: str) -> AgentPoller | None:
        """The agent of that id, if it is polled."""
        return self._watches.get(agent)

    def poke(self) -> None:
        """Poll every agent now."""
        for watch in self._watches.values():
            watch.poke()

    async def follow(self, agents: Iterable[RegistryAgent], gauge: HealthGauge) -> None:
        """Connect to each of these agents, and to no other."""
        self._gauge = gauge
        listed = {agent.id: agent for agent in agents}
        gone = [watch for id_, watch in self._watches.items() if not _same(listed.get(id_), watch)]
        for watch in gone:
            del self._watches[watch.agent.id]
        for id_, agent in listed.items():
            if id_ in self._watches:
                self._watches[id_].agent = agent
            else:
                watch = AgentPoller(agent, self._connect(agent.url), self._pace, self._on_poll)
                self._watches[id_] = watch
                watch.start()
        self._changed()
        if gone:
            await _stop(gone)
            gauge.forget(self._label)
            for watch in self._watches.values():
                self._count(watch)

    async def end(self) -> None:
        """Let go of all agents: polls, connections and gauge values."""
        watches = self.watches
        self._watches = {}
        self._changed()
        await _stop(watches)
        if self._gauge is not None:
            self._gauge.forget(self._label)

    def _on_poll(self, watch: AgentPoller) -> None:
        # A poll that ended while its agent was let go must not bring it back.
        if self._watches.get(watch.agent.id) is watch:
            self._count(watch)
            self._changed()

    def _count(self, watch: AgentPoller) -> None:
        if self._gauge is not None and watch.health is not None:
            self._gauge.set(self._label, watch.agent.id, watch.health.status)


def _same(agent: RegistryAgent | None, watch: AgentPoller) -> bool:
    return agent is not None and agent.url == watch.agent.url


async def _stop(watches: Iterable[AgentPoller]) -> None:
    await asyncio.gather(*(watch.stop() for watch in watches), return_exceptions=True)
