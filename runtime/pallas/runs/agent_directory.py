"""The agents of a fleet for one principal, and which agent a call means (DR-3..DR-7)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final, Protocol

from pallas.executors import Executor
from pallas.executors.live_agent import LiveAgent
from pallas.model import (
    AgentChanged,
    AgentInfo,
    AgentKind,
    AgentSnapshot,
    AgentState,
    Event,
    Fault,
    FaultType,
    HealthStatus,
    Principal,
    ProviderFacts,
    Reloaded,
    why_not,
)
from pallas.model.discovery import IN_PROCESS
from pallas.model.refusals import REASON
from pallas.safe_text import one_line, sanitize
from pallas.telemetry.event_hub import EventHub

MAX_NAMED: Final = 100
"""Most ids that a Fault lists."""
_REASON: Final = 300


def rank(kind: AgentKind) -> int:
    """The precedence of a kind: of two agents with one id, the one with the lower rank is used.

    Agents of this process take precedence over workers, and workers over remote agents.
    """
    return 0 if kind in IN_PROCESS else 1 if kind == "worker" else 2


class ListedAgent(LiveAgent, Protocol):
    """What the directory reads of an agent. The fleet's own object has it."""

    def snapshot(self) -> AgentSnapshot: ...


Source = Callable[[], Sequence[ListedAgent]]
"""Returns the current agents in order. Called again only after a change."""


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """One agent by its id. ``info`` holds what does not change from one moment to the next."""

    info: AgentInfo
    agent: ListedAgent

    @property
    def kind(self) -> AgentKind:
        """The kind of the agent."""
        return self.info.kind

    @property
    def capacity(self) -> int:
        """The capacity that its executor reports, 0 if it reports none."""
        executor = self.agent.executor
        return 0 if executor is None else executor.info.capacity

    def now(self, match: str = "") -> AgentInfo:
        """The agent's info with its current status and reason."""
        found = self.agent.snapshot()
        return replace(self.info, status=found.availability, reason=_reason(found), match=match)


class AgentDirectory:
    """The agents of one fleet by id. Its methods may be called from any thread.

    ``sources`` are called once, and again after an agent was added, removed or changed (``invalidate``, or an
    event of the ``hub``). ``may_run`` says whether a principal may run an agent; other agents do not exist
    for that principal. ``default`` returns the project's ``default_agent``.
    """

    def __init__(
        self,
        *sources: Source,
        hub: EventHub,
        may_run: Callable[[Principal, str], bool] = lambda principal, agent: True,
        default: Callable[[], str] = str,
    ) -> None:
        self._sources = sources
        self._may_run = may_run
        self._default = default
        self._version = object()
        self._known: tuple[object, Mapping[str, DirectoryEntry]] = (None, {})
        self._unlisten = hub.listen(self._hear)

    def close(self) -> None:
        """Stop listening to the hub."""
        self._unlisten()

    def invalidate(self) -> None:
        """Agents were added, removed or changed: call the sources again at the next look-up."""
        self._version = object()

    def infos(self, principal: Principal, capability: str | None = None) -> tuple[AgentInfo, ...]:
        """The agents that ``principal`` may run, in order; with ``capability`` only those that list it.

        Each carries its current status. A capability that no agent lists finds nothing and is no error
        (DR-3).
        """
        wanted = capability.strip() if capability is not None else ""
        match = f"lists the capability {one_line(wanted, 80)}" if wanted else ""
        return tuple(
            entry.now(match)
            for entry in self._of(principal)
            if capability is None or wanted in entry.info.capabilities
        )

    def resolve(self, agent: str | None, principal: Principal) -> str:
        """The id of the agent that a call means. Its state does not matter: no call is rerouted.

        Without an id: ``default_agent``, else the first agent in this process, else the first worker, else
        the first remote agent (DR-6). Raises Fault: CONFIG if there are no agents, UPSTREAM if the agent does
        not exist or the principal may not run it; the Fault lists the agents that the principal may run
        (DR-7).
        """
        known = self._of(principal)
        if not known:
            raise Fault(FaultType.CONFIG, "No agents registered")
        if agent is None:
            agent = self._default()
            if not agent or not self._may_run(principal, agent):
                return min(known, key=lambda entry: rank(entry.kind)).info.id
        if any(entry.info.id == agent for entry in known):
            return agent
        raise not_there(agent, [entry.info.id for entry in known])

    def entry(self, agent: str) -> DirectoryEntry | None:
        """The agent of that id for any principal, None if there is none."""
        return self._all().get(agent)

    def entries(self) -> tuple[DirectoryEntry, ...]:
        """All agents in order, for any principal."""
        return tuple(self._all().values())

    def _of(self, principal: Principal) -> list[DirectoryEntry]:
        return [entry for id, entry in self._all().items() if self._may_run(principal, id)]  # noqa: A001

    def _all(self) -> Mapping[str, DirectoryEntry]:
        version, entries = self._known
        if version is not self._version:
            version = self._version  # a change during this look-up is seen by the next one
            entries = _entries([each for source in self._sources for each in source()])
            self._known = version, entries
        return entries

    def _hear(self, event: Event) -> None:
        if isinstance(event, AgentChanged | Reloaded):
            self.invalidate()


def _entries(found: Sequence[ListedAgent]) -> dict[str, DirectoryEntry]:
    """One entry for each id, in the order of its first agent; of several agents the one of lowest
    rank.
    """
    of: dict[str, list[tuple[AgentSnapshot, ListedAgent]]] = {}
    for agent in found:
        of.setdefault(agent.name, []).append((agent.snapshot(), agent))
    entries = {}
    for name, those in of.items():
        (shown, agent), *others = sorted(those, key=lambda each: rank(each[0].kind))
        shadows = dict.fromkeys((*shown.shadows, *(other.kind for other, _ in others)))
        entries[name] = DirectoryEntry(_info(shown, agent.executor, tuple(shadows)), agent)
    return entries


def _info(shown: AgentSnapshot, executor: Executor | None, shadows: tuple[AgentKind, ...]) -> AgentInfo:
    known = executor.info.providers_known if executor is not None else None
    return AgentInfo(
        id=shown.name,
        capabilities=tuple(one_line(each, 200) for each in shown.capabilities),
        kind=shown.kind,
        title=one_line(shown.title),
        description=sanitize(shown.description, 4_000),
        providers=None if known is None else tuple(_provider(each) for each in known),
        shadows=shadows,
    )


def _provider(facts: ProviderFacts) -> ProviderFacts:
    return replace(
        facts,
        models=tuple(one_line(each) for each in facts.models),
        display_name=one_line(facts.display_name),
        description=sanitize(facts.description, 4_000),
    )


def _reason(shown: AgentSnapshot) -> str:
    """Why the agent is not ready, or what is wrong with a ready one, in one line."""
    if shown.state is not AgentState.READY:
        return one_line(shown.health.message, _REASON) or why_not(shown.state)
    if shown.health.status is not HealthStatus.OK:
        return one_line(shown.health.message, _REASON)
    return "it is at capacity; try again when one of its runs has ended" if shown.full else ""


def not_there(agent: str, known: Sequence[str]) -> Fault:
    """The Fault for an agent that does not exist for the caller. Its data lists those that do (DR-7)."""
    near = get_close_matches(agent, known, 1, 0.5)
    data = {
        REASON: "not_found",
        "agents": list(known[:MAX_NAMED]),
        **({"suggestion": near[0]} if near else {}),
    }
    return Fault(FaultType.UPSTREAM, f"Agent not found: {one_line(agent, 80)}", data=data)
