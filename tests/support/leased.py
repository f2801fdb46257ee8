"""A kernel, a directory and sessions over agents that do as a test says, on a clock that it moves."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pallas.config.kinds import SessionLimits
from pallas.ledger import Ledger
from pallas.model import (
    AgentKind,
    AgentSnapshot,
    AgentState,
    Fault,
    Health,
    HealthStatus,
    Principal,
    SessionChanged,
)
from pallas.runs.agent_directory import AgentDirectory
from pallas.runs.kernel import Kernel
from pallas.sessions import Sessions
from pallas.telemetry.event_hub import EventHub

from .executors import FakeAgent, FakeExecutor

ME = Principal("bearer:me", "me")
YOU = Principal("bearer:you", "you")


@dataclass
class Hooked(FakeExecutor):
    """An executor that wants to know of sessions; ``refuses`` and ``fails`` are what its hooks raise.

    No session opens before ``opens`` is set.
    """

    told: list[tuple[str, ...]] = field(default_factory=list)
    metadata: list[Mapping[str, Any]] = field(default_factory=list)
    refuses: Exception | None = None
    fails: Exception | None = None
    opens: asyncio.Event | None = None

    async def session_opened(self, session: str, metadata: Mapping[str, Any]) -> None:
        self.told.append(("opened", session))
        self.metadata.append(metadata)
        if self.opens is not None:
            await self.opens.wait()
        if self.refuses is not None:
            raise self.refuses

    async def session_closed(self, session: str, reason: str) -> None:
        self.told.append(("closed", session, reason))
        if self.fails is not None:
            raise self.fails

    async def session_cancelled(self, session: str) -> None:
        self.told.append(("cancelled", session))
        if self.fails is not None:
            raise self.fails


@dataclass
class Found(FakeAgent):
    """An agent as the directory asks for it."""

    kind: AgentKind = "llm"
    capabilities: tuple[str, ...] = ()
    shadows: tuple[AgentKind, ...] = ()
    full: bool = False
    status: HealthStatus = HealthStatus.OK
    problem: str = ""
    description: str = ""

    def snapshot(self) -> AgentSnapshot:
        return AgentSnapshot(
            name=self.name,
            title=self.name.title(),
            description=self.description,
            state=self.state,
            since=0.0,
            health=Health(self.status, self.problem),
            port=0,
            url="",
            kind=self.kind,
            capabilities=self.capabilities,
            shadows=self.shadows,
            full=self.full,
        )


class Clock:
    """Seconds of the epoch, as a test says."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class House:
    """Agents, and the sessions with them. ``looked`` counts how often it was asked who there is."""

    def __init__(
        self,
        *agents: Found,
        default: str = "",
        ledger: Ledger | None = None,
        clock: Clock | None = None,
        **limits: Any,
    ) -> None:
        self.hub = EventHub()
        self.kernel = Kernel(self.hub)
        self.clock = clock or Clock()
        self.limits = SessionLimits().model_copy(update=limits)
        self.agents: list[Found] = []
        self.looked = 0
        self.default = default
        self.hidden: set[tuple[str, str]] = set()
        self.directory = AgentDirectory(
            self._agents,
            hub=self.hub,
            may_run=lambda principal, agent: (principal.id, agent) not in self.hidden,
            default=lambda: self.default,
        )
        self.sessions = Sessions(
            self.kernel, self.directory, hub=self.hub, limits=lambda: self.limits, clock=self.clock
        )
        if ledger is not None:
            self.kernel.use_ledger(ledger)
            self.sessions.use_ledger(ledger, ledger.notes)
        for agent in agents:
            self.add(agent)

    def add(self, agent: Found) -> Found:
        """One more agent; in the place of another of its name."""
        self.agents = [*(each for each in self.agents if each.name != agent.name), agent]
        self.kernel.attach(agent)
        self._changed()
        return agent

    def remove(self, agent: Found) -> None:
        """It leaves."""
        self.agents = [each for each in self.agents if each is not agent]
        self._changed()

    def states(self) -> list[str]:
        """What was told of sessions."""
        return [each.status for each in self.hub.since(0).events if isinstance(each, SessionChanged)]

    def _agents(self) -> Sequence[Found]:
        self.looked += 1
        return self.agents

    def _changed(self) -> None:
        self.directory.invalidate()
        self.sessions.look()


def failed(fault: Fault) -> Any:
    """An answer that is this Fault."""

    async def answer(*_: Any) -> Any:
        raise fault

    return answer


def down(agent: Found, state: AgentState = AgentState.CRASH_LOOP, reason: str = "it broke") -> None:
    """It cannot answer now."""
    agent.state, agent.reason = state, reason
