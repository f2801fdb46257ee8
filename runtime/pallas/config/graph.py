"""``depends_on``, routers and names, looked at across all agents."""

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final

from .agent_kinds import Members
from .agents import Draft
from .kinds import TODO
from .notes import Notes, allowed, did_you_mean
from .section import Section

_MAX_CYCLES: Final = 20


def check_slugs(agents: Mapping[str, Draft], notes: Notes) -> None:
    """``a_b`` and ``a-b`` would be one name in the registry (PR-14)."""
    taken: dict[str, Draft] = {}
    for agent in agents.values():
        first = taken.setdefault(agent.config.slug, agent)
        if first is not agent:
            place = first.config.where
            here = place.file == agent.config.where.file
            other = f"{first.config.name} ({f'line {place.line}' if here else place})"
            notes.error(
                agent.config.where,
                agent.path,
                f"is published as {agent.config.slug}, as is {other}",
                "allowed: names that differ in more than _ and -",
            )


def check_depends_on(agents: Mapping[str, Draft], notes: Notes) -> None:
    """Every name is an agent, and no agent waits for itself, through however many others (PR-6).

    Nor does a router choose itself: it waits for all that it names.
    """
    graph: dict[str, set[str]] = {}
    for name, agent in agents.items():
        for need, key, where in _named(agent):
            if need not in agents:
                others = [other for other in agents if other != name]
                notes.error(
                    where,
                    f"{agent.path}.{key}",
                    f"there is no agent {need}",
                    allowed(others),
                    did_you_mean(need, others),
                )
        graph[name] = {need for need, _, _ in _named(agent) if need in agents}
    for _ in range(_MAX_CYCLES):
        cycle = _cycle(graph)
        if cycle is None:
            return
        ring = _from_first(cycle, list(agents))
        start, after = ring[0], ring[1 % len(ring)]
        key, where = next((key, where) for need, key, where in _named(agents[start]) if need == after)
        asked = "wait for this one" if key == "depends_on" else "choose this one or wait for it"
        notes.error(
            where,
            f"{agents[start].path}.{key}",
            f"is circular: {' -> '.join([*ring, start])}",
            f"allowed: agents that do not {asked}",
        )
        graph[start].discard(after)


def check_peers(agents: Mapping[str, Draft], notes: Notes) -> None:
    """Every peer is an agent of the files; rings among them are fine."""
    known = (*agents, TODO)
    for name, agent in agents.items():
        for peer, where in agent.peers:
            if peer == name:
                if agent.config.kind != "llm":  # a model asks itself only as a tool of its own
                    notes.warn(
                        where,
                        f"{agent.path}.peers",
                        "names the agent itself, which may always send to itself",
                        "leave it out",
                    )
            elif peer not in known:
                others = [other for other in known if other != name]
                notes.error(
                    where,
                    f"{agent.path}.peers",
                    f"there is no agent {peer}",
                    allowed(others),
                    did_you_mean(peer, others),
                )


def check_groups(agents: Mapping[str, Draft], notes: Notes) -> None:
    """Handlers that share a name take the same message, and one of them is called so.

    So a name that messages go to is always that of an agent, and no other can have it unnoticed.
    """
    first: dict[str, Draft] = {}
    for agent in agents.values():
        if agent.group is None:
            continue
        head = agents.get(agent.group)
        if head is None:
            sharing = [name for name, each in agents.items() if each.group == name]
            notes.error(
                agent.config.where,
                f"{agent.path}.group",
                f"there is no agent {agent.group}",
                "needed: the name of one with `broadcast: true`",
                did_you_mean(agent.group, sharing),
            )
        elif head.group != agent.group:
            notes.error(
                agent.config.where,
                f"{agent.path}.group",
                f"{agent.group} is an agent ({head.config.where}) that shares its name with no other agent",
                "write `broadcast: true` there, or choose another name",
            )
        other = first.setdefault(agent.group, agent)
        if other.payload and agent.payload and other.payload != agent.payload:
            notes.error(
                agent.config.where,
                f"{agent.path}.payload",
                f"shares the name {agent.group} with {other.config.name} ({other.config.where}), which takes"
                f" {other.payload}",
                "allowed: the same payload for all that share a name",
            )


def check_default_agent(name: str | None, agents: Mapping[str, Draft], top: Section) -> None:
    """``default_agent`` is one of them."""
    if name is not None and name not in agents:
        top.error("default_agent", f"there is no agent {name}", allowed(agents), did_you_mean(name, agents))


def _named(agent: Draft) -> Members:
    """Whom an agent waits for, each with the key that says so and its place."""
    return (*((need, "depends_on", where) for need, where in agent.needs), *agent.members)


def _cycle(graph: Mapping[str, set[str]]) -> list[str] | None:
    """One ring of agents, each depending on the next, None when there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        # graphlib names what is needed first, and the first one twice.
        ring: list[str] = error.args[1][:0:-1]
        return ring
    return None


def _from_first(ring: Sequence[str], order: Sequence[str]) -> list[str]:
    start = min(range(len(ring)), key=lambda at: order.index(ring[at]))
    return [*ring[start:], *ring[:start]]
