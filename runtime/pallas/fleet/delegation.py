"""Runs that one agent asks of another: a router of its candidates, a model of its peers."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pallas.config import AgentConfig, Project
from pallas.config.delegation import leads_to
from pallas.executors import Executor, ExecutorTurn
from pallas.model import (
    AgentState,
    Event,
    Fault,
    FaultType,
    Principal,
    RunRequest,
    RunResult,
    TraceContext,
    why_not,
)
from pallas.model.run_values import PEER
from pallas.routing.choice import Candidate
from pallas.runs.in_flight import InFlight
from pallas.runs.nested_runs import NestedCall
from pallas.safe_text import one_line

from .agent import FleetAgent
from .agent_factory import MakeExecutor, is_typed, make_executor
from .context import AgentTable, FleetContext
from .cycles import waiting_above
from .handler_messages import HandlerMessages

if TYPE_CHECKING:
    from pallas.messaging.messaging_port import PeerFacts


# Routers behind routers whose examples count.
_DEPTH: Final = 8
_REASON: Final = 200
# States that an agent does not leave by itself.
_AWAY: Final = frozenset({AgentState.ERROR, AgentState.CRASH_LOOP, AgentState.STOPPING, AgentState.STOPPED})


class Delegation:
    """The fleet as its routers and models reach it. Belongs to the fleet's event loop.

    Implements ``RouterPeers`` of the router's executor and ``PeerPort``.
    """

    def __init__(self, context: FleetContext, messages: HandlerMessages) -> None:
        self._context = context
        self._messages = messages

    def making(self, make: MakeExecutor) -> MakeExecutor:
        """Wrap ``make`` so that routers, typed handlers and models reach this fleet."""

        async def make_with_peers(project: Project, config: AgentConfig) -> Executor:
            if config.kind == "router":
                return await make_executor(project, config, route=self)
            if is_typed(config):
                return await make_executor(project, config, ground=self._messages)
            executor = await make(project, config)
            if (reach_peers := getattr(executor, "reach_peers", None)) is not None:
                reach_peers(self)
            return executor

        return make_with_peers

    def candidates(self, agents: Sequence[str], principal: Principal) -> tuple[Candidate, ...]:
        """Return those of ``agents`` that ``principal`` may run, in this order, as they are now."""
        found = {agent.name: agent for agent in self._context.agents.all}
        may_run = self._context.grants.may_run
        return tuple(
            _candidate(found[name], found) for name in agents if name in found and may_run(principal, name)
        )

    def serves(self, agent: str) -> bool:
        """Whether this fleet serves such an agent."""
        return any(config.name == agent for config in self._context.served())

    def vision(self, agent: str) -> bool:
        """Whether an agent takes pictures."""
        known = self._context.agents.get(agent)
        return known is not None and known.executor is not None and known.executor.info.vision

    def principal(self, run_id: str) -> Principal:
        """Who asked for a run in flight."""
        return self._context.principal_of(run_id)

    async def run(self, request: RunRequest, listener: Callable[[Event], None] | None = None) -> RunResult:
        """Have an agent answer. Raises Fault."""
        return await self._context.kernel.run(request, listener)

    def continues(self, agent: str) -> bool:
        """Whether a run of an agent can go on in the middle, or is joined when it is asked again."""
        known = self._context.agents.get(agent)
        if known is None:
            return False
        if known.executor is None:  # it is about to start
            return known.config.kind in ("llm", "router") and known.config.instance_scope != "request"
        info = known.executor.info
        return (info.continues or info.joins) and info.keeps_history

    def repeats(self, agent: str) -> bool:
        """Whether an agent's own rules let it be asked again."""
        known = self._context.agents.get(agent)
        return known is not None and known.unfinished.policy(f"agent:{agent}") == "repeat"

    async def run_durably(
        self,
        turn: ExecutorTurn,
        call_id: str,
        request: RunRequest,
        listener: Callable[[Event], None] | None = None,
    ) -> RunResult:
        """As ``run``, for a call of a durable turn: the same call of a later attempt joins the run."""
        nested = self._context.kernel.nested
        request = replace(request, within=turn.run_id)
        if nested is None or turn.journal is None:
            return await self.run(request, listener)
        call = NestedCall(turn.run_id, turn.journal.part, call_id)
        return await nested.run(request, call, turn.attempt, listener)

    def end(self, agent: str, session: str, principal: Principal) -> None:
        """End that conversation with an agent."""
        self._context.kernel.end_session(agent, session, principal)

    # As ``PeerPort``

    def peer_facts(self, agent: str) -> "tuple[PeerFacts, ...]":
        """The peers of an agent that are up now or come up by themselves."""
        names = [name for name in self._peers_of(agent) if not self._is_away(name)]
        return self._messages.peers.facts(names) if names else ()

    async def ask_peer(
        self,
        turn: ExecutorTurn,
        peer: str,
        text: str,
        *,
        call_id: str = "",
        trace: TraceContext | None = None,
        listener: Callable[[Event], None] | None = None,
    ) -> RunResult:
        """Return what a peer answers.

        Raises Fault, the same for a peer that is not allowed and for one that does not exist (HC-14, HC-15).
        """
        who = self.principal(turn.run_id)
        if peer not in self._peers_of(turn.agent) or not self._context.grants.may_run(who, peer):
            raise Fault(FaultType.UPSTREAM, "there is no such peer", data={"system": "routing"})
        request = RunRequest(
            agent=peer,
            text=text,
            principal=who,
            stream_text=turn.stream_text,
            caller=f"agent {turn.agent}",
            trace=trace,
            surface=PEER,
            sender=turn.agent,
            depth=turn.depth + 1,
            above=waiting_above(self._context, turn.run_id, peer),
            within=turn.run_id,
        )
        return await (
            self.run_durably(turn, call_id, request, listener) if call_id else self.run(request, listener)
        )

    def _is_away(self, agent: str) -> bool:
        known = self._context.agents.get(agent)
        return known is not None and known.state in _AWAY

    def _peers_of(self, agent: str) -> tuple[str, ...]:
        known = self._context.agents.get(agent)
        return known.config.peers if known is not None else ()


class DelegatedCalls:
    """The calls that runs in flight make of other agents of the fleet, over MCP."""

    def __init__(self, runs: InFlight, agents: AgentTable) -> None:
        self._runs = runs
        self._agents = agents

    def is_requested_by_run(self, agent: str, trace: TraceContext | None) -> bool:
        """Whether a run in flight calls this agent now, with that span.

        The span alone is not enough: another downstream gets a span as well, and could show it here. So the
        server that is called must have the agent's address.
        """
        if trace is None:
            return False
        for run in self._runs:
            server = run.called(trace)
            if server is None:
                continue
            caller = self._agents.get(run.agent)
            return caller is not None and _is_at(caller, server, agent)
        return False

    def leads_to(self, caller: str, server: str, agent: str) -> bool:
        """Whether the server that ``caller`` calls by this name is an agent of this fleet."""
        found = self._agents.get(caller)
        return found is not None and _is_at(found, server, agent)


def _is_at(caller: FleetAgent, server: str, agent: str) -> bool:
    definition = caller.config.definition
    own = {each.name: each for each in definition.own_servers} if definition is not None else {}
    downstream = own.get(server) or caller.project.downstreams.get(server)
    return downstream is not None and leads_to(downstream.url, agent, caller.project)


def _candidate(agent: FleetAgent, among: dict[str, FleetAgent]) -> Candidate:
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


def _examples(agent: FleetAgent, among: dict[str, FleetAgent], depth: int) -> tuple[str, ...]:
    """Its own examples; a router without any has those of its candidates."""
    router = agent.config.router
    if router is None or agent.config.examples or depth == 0:
        return agent.config.examples
    members = (among[name] for name in router.agents if name in among)
    return tuple(dict.fromkeys(text for each in members for text in _examples(each, among, depth - 1)))
