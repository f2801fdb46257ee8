"""How a router of a fleet reaches the agents that it chooses among."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from pallas.config import AgentConfig, Project
from pallas.executors import Executor
from pallas.model import ANONYMOUS, Event, Principal, RunRequest, RunResult, why_not
from pallas.routing import Candidate
from pallas.text import one_line

from .making import make_executor

if TYPE_CHECKING:
    from .agent import FleetAgent
    from .fleet import Fleet

MakeExecutor = Callable[[Project, AgentConfig], Awaitable[Executor]]
# Routers behind routers whose examples count.
_DEPTH: Final = 8
_REASON: Final = 200


class Reach:
    """As ``pallas.executors.router.executor.Reach`` over the agents of one fleet, in its event loop."""

    def __init__(self, fleet: "Fleet") -> None:
        self._fleet = fleet

    def making(self, make: MakeExecutor) -> MakeExecutor:
        """``make``, with routers that reach this fleet."""

        async def made(project: Project, config: AgentConfig) -> Executor:
            if config.kind == "router":
                return await make_executor(project, config, route=self)
            return await make(project, config)

        return made

    def candidates(self, agents: Sequence[str], principal: Principal) -> tuple[Candidate, ...]:
        """Those of ``agents`` that ``principal`` may run, in this order, as they are now."""
        found = {agent.name: agent for agent in self._fleet.agents}
        may_run = self._fleet.grants.may_run
        return tuple(
            _candidate(found[name], found) for name in agents if name in found and may_run(principal, name)
        )

    def serves(self, agent: str) -> bool:
        """Whether this fleet has such an agent: one that serves a single agent has no other."""
        only = self._fleet._only
        return agent in self._fleet.project.agents and only in (None, agent)

    def vision(self, agent: str) -> bool:
        """Whether an agent takes pictures."""
        known = next((each for each in self._fleet.agents if each.name == agent), None)
        return known is not None and known.executor is not None and known.executor.info.vision

    def principal(self, run_id: str) -> Principal:
        """Who asked for a run in flight."""
        run = self._fleet.kernel.in_flight.get(run_id)
        return run.principal if run is not None else ANONYMOUS

    async def run(self, request: RunRequest, listener: Callable[[Event], None] | None = None) -> RunResult:
        """Have an agent answer. Raises Fault."""
        return await self._fleet.kernel.run(request, listener)

    def end(self, agent: str, session: str, principal: Principal) -> None:
        """That conversation with an agent is over."""
        self._fleet.kernel.end_session(agent, session, principal)


def _candidate(agent: "FleetAgent", among: dict[str, "FleetAgent"]) -> Candidate:
    now = agent.snapshot()
    reason = agent.reason or now.health.message or why_not(now.state)
    return Candidate(
        id=agent.name,
        capabilities=now.capabilities,
        examples=_examples(agent, among, _DEPTH),
        title=agent.config.title,
        description=agent.config.description,
        status=now.availability,
        reason=one_line(reason if now.availability == "unavailable" else "", _REASON),
    )


def _examples(agent: "FleetAgent", among: dict[str, "FleetAgent"], depth: int) -> tuple[str, ...]:
    """Its own; a router is good at what those are that it chooses among."""
    router = agent.config.router
    if router is None or agent.config.examples or depth == 0:
        return agent.config.examples
    members = (among[name] for name in router.agents if name in among)
    return tuple(dict.fromkeys(text for each in members for text in _examples(each, among, depth - 1)))
