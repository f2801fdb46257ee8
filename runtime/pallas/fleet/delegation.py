"""How agents of a fleet reach others of it: a router those that it chooses among, a model its peers."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from pallas.config import AgentConfig, Project
from pallas.config.delegation import leads_to
from pallas.executors import Executor, Turn
from pallas.model import (
    ANONYMOUS,
    AgentState,
    Event,
    Fault,
    FaultType,
    Image,
    Principal,
    RunRequest,
    RunResult,
    TraceContext,
    why_not,
)
from pallas.model.safe_text import one_line
from pallas.routing.choice import Candidate
from pallas.runs.in_flight import InFlight

from .agent import FleetAgent
from .agent_factory import is_typed, make_executor
from .cycles import above

if TYPE_CHECKING:
    from pallas.messaging.messaging_port import PeerFacts

    from .agent import FleetAgent
    from .fleet import Fleet


class Delegations:
    """What the runs of a fleet ask of its other agents."""

    def __init__(self, runs: InFlight, find: Callable[[str], FleetAgent | None]) -> None:
        self._runs = runs
        self._find = find

    def asked_for(self, agent: str, trace: TraceContext | None) -> bool:
        """Whether a run in flight calls this very agent, now, with that span.

        The span alone is not enough: other downstreams, which are told of theirs as well, could show it here.
        The one that is called must be at the agent's address.
        """
        if trace is None:
            return False
        for run in self._runs:
            server = run.called(trace)
            if server is None:
                continue
            caller = self._find(run.agent)
            return caller is not None and _is_at(caller, server, agent)
        return False


def _is_at(caller: FleetAgent, server: str, agent: str) -> bool:
    definition = caller.config.definition
    own = {each.name: each for each in definition.own_servers} if definition is not None else {}
    downstream = own.get(server) or caller.project.downstreams.get(server)
    return downstream is not None and leads_to(downstream.url, agent, caller.project)


MakeExecutor = Callable[[Project, AgentConfig], Awaitable[Executor]]
# Routers behind routers whose examples count.
_DEPTH: Final = 8
_REASON: Final = 200
# What an agent does not come out of by itself, or never again.
_AWAY: Final = frozenset({AgentState.ERROR, AgentState.CRASH_LOOP, AgentState.STOPPING, AgentState.STOPPED})


class Delegation:
    """The ``Reach`` of routers and ``PeerPort`` of models over the agents of one fleet, in its event loop."""

    def __init__(self, fleet: "Fleet") -> None:
        self._fleet = fleet

    def making(self, make: MakeExecutor) -> MakeExecutor:
        """``make``, with routers, typed handlers and models that reach this fleet."""

        async def made(project: Project, config: AgentConfig) -> Executor:
            if config.kind == "router":
                return await make_executor(project, config, route=self)
            if is_typed(config):
                return await make_executor(project, config, ground=self._fleet.messaging)
            executor = await make(project, config)
            if (reach_peers := getattr(executor, "reach_peers", None)) is not None:
                reach_peers(self)
            return executor

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

    # As ``PeerPort``

    def peer_facts(self, agent: str) -> "tuple[PeerFacts, ...]":
        """The peers of an agent, as they are now; not those that nobody can ask until a person sees to it."""
        names = [name for name in self._peers_of(agent) if not self._is_away(name)]
        return self._fleet.peers.facts(names) if names else ()

    async def ask_peer(
        self,
        turn: Turn,
        peer: str,
        text: str,
        *,
        trace: TraceContext | None = None,
        images: tuple[Image, ...] = (),
        listener: Callable[[Event], None] | None = None,
    ) -> RunResult:
        """What a peer answers. Raises Fault: the same for one that is not allowed and one that is not there
        (HC-14, HC-15)."""
        who = self.principal(turn.run_id)
        if peer not in self._peers_of(turn.agent) or not self._fleet.grants.may_run(who, peer):
            raise Fault(FaultType.UPSTREAM, "there is no such peer", data={"system": "routing"})
        request = RunRequest(
            agent=peer,
            text=text,
            images=images,
            principal=who,
            stream_text=turn.stream_text,
            caller=f"agent {turn.agent}",
            trace=trace,
            surface="peer",
            sender=turn.agent,
            depth=turn.depth + 1,
            above=above(self._fleet, turn.run_id, peer),
            within=turn.run_id,
        )
        return await self.run(request, listener)

    def _is_away(self, agent: str) -> bool:
        known = self._fleet._members.by_name.get(agent)
        return known is not None and known.state in _AWAY

    def _peers_of(self, agent: str) -> tuple[str, ...]:
        known = self._fleet._members.by_name.get(agent)
        return known.config.peers if known is not None else ()


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
