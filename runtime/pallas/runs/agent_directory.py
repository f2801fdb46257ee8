"""Which agents there are, for whom, and which one is meant (SPEC DR-3..DR-7, C10, C14, C21)."""

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
from pallas.model.refusals import REASON
from pallas.model.safe_text import one_line, sanitize
from pallas.telemetry.event_hub import EventHub

IN_PROCESS: Final[frozenset[AgentKind]] = frozenset({"llm", "handler", "router"})
"""Kinds that answer in this process: they stand before workers, and workers before remote ones (C14)."""
MAX_NAMED: Final = 100
"""Ids that a Fault names at most."""
_REASON: Final = 300


def rank(kind: AgentKind) -> int:
    """Which of two agents of one id is meant: the lower one."""
    return 0 if kind in IN_PROCESS else 1 if kind == "worker" else 2


class ListedAgent(LiveAgent, Protocol):
    """What the directory asks of an agent: the fleet's own object offers it."""

    def snapshot(self) -> AgentSnapshot: ...


Source = Callable[[], Sequence[ListedAgent]]
"""Agents that there are now, in their order; asked again only after something changed."""


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """An agent by its id; ``info`` is all that does not change from one moment to the next."""

    info: AgentInfo
    agent: ListedAgent

    @property
    def kind(self) -> AgentKind:
        """What answers for it."""
        return self.info.kind

    @property
    def capacity(self) -> int:
        """What its executor says of how much it takes at a time, 0 where it says nothing."""
        executor = self.agent.executor
        return 0 if executor is None else executor.info.capacity

    def now(self, match: str = "") -> AgentInfo:
        """The agent as it is at this moment."""
        found = self.agent.snapshot()
        return replace(self.info, status=found.availability, reason=_reason(found), match=match)


class AgentDirectory:
    """The agents of one fleet by id. What it tells may be asked for from any thread.

    ``sources`` are asked once, and again after an agent came, went or changed (``invalidate``, and what the
    ``hub`` tells). ``may_run`` says whether a principal may run an agent: others do not exist for it (C10).
    ``default`` is the project's ``default_agent``.
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
        """Hear of nothing any more."""
        self._unlisten()

    def invalidate(self) -> None:
        """Agents came, went or changed: the sources are asked again when somebody looks next."""
        self._version = object()

    def infos(self, principal: Principal, capability: str | None = None) -> tuple[AgentInfo, ...]:
        """The agents that ``principal`` may run, in their order; with ``capability`` those that list it.

        Each is told as it is now. One that nobody has finds nothing, and is no error (DR-3).
        """
        wanted = capability.strip() if capability is not None else ""
        match = f"lists the capability {one_line(wanted, 80)}" if wanted else ""
        return tuple(
            entry.now(match)
            for entry in self._of(principal)
            if capability is None or wanted in entry.info.capabilities
        )

    def resolve(self, agent: str | None, principal: Principal) -> str:
        """The id of the agent that is meant; nobody's state matters, so nobody is rerouted (C13).

        Without one: ``default_agent``, else the first that answers in this process, else the first worker,
        else the first remote one (DR-6). Raises Fault: CONFIG where there is none at all, UPSTREAM for one
        that is not there or that is none of this principal's, with those that are (DR-7).
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
        """The agent of that id, whoever asks; None where there is none."""
        return self._all().get(agent)

    def entries(self) -> tuple[DirectoryEntry, ...]:
        """All agents, whoever asks, in their order."""
        return tuple(self._all().values())

    def _of(self, principal: Principal) -> list[DirectoryEntry]:
        return [entry for id, entry in self._all().items() if self._may_run(principal, id)]  # noqa: A001

    def _all(self) -> Mapping[str, DirectoryEntry]:
        version, entries = self._known
        if version is not self._version:
            version = self._version  # what changes while this looks shows in the next look
            entries = _entries([each for source in self._sources for each in source()])
            self._known = version, entries
        return entries

    def _hear(self, event: Event) -> None:
        if isinstance(event, AgentChanged | Reloaded):
            self.invalidate()


def _entries(found: Sequence[ListedAgent]) -> dict[str, DirectoryEntry]:
    """One for each id, in the order of the first that has it: the one that stands before the others (C14)."""
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
    """Why it is not ready, or what is wrong with one that is, in one line."""
    if shown.state is not AgentState.READY:
        return one_line(shown.health.message, _REASON) or why_not(shown.state)
    if shown.health.status is not HealthStatus.OK:
        return one_line(shown.health.message, _REASON)
    return "it is at capacity; try again when something is over" if shown.full else ""


def not_there(agent: str, known: Sequence[str]) -> Fault:
    """There is no such agent for who asks; those that there are are in its data (DR-7)."""
    near = get_close_matches(agent, known, 1, 0.5)
    data = {
        REASON: "not_found",
        "agents": list(known[:MAX_NAMED]),
        **({"suggestion": near[0]} if near else {}),
    }
    return Fault(FaultType.UPSTREAM, f"Agent not found: {one_line(agent, 80)}", data=data)
