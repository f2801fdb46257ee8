"""``depends_on`` and names, looked at across all agents."""

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final

from .agents import Draft
from .notes import Notes, allowed, did_you_mean

_MAX_CYCLES: Final = 20


def check_slugs(agents: Mapping[str, Draft], notes: Notes) -> None:
    """``a_b`` and ``a-b`` would be one name in the registry (PR-14)."""
    taken: dict[str, Draft] = {}
    for name, agent in agents.items():
        first = taken.setdefault(agent.config.slug, agent)
        if first is not agent:
            other = f"{first.config.name} (line {first.config.where.line})"
            notes.error(
                agent.config.where,
                f"agents.{name}",
                f"is published as {agent.config.slug}, as is {other}",
                "allowed: names that differ in more than _ and -",
            )


def check_depends_on(agents: Mapping[str, Draft], notes: Notes) -> None:
    """Every name is an agent, and nobody waits for itself, through however many others (PR-6)."""
    graph: dict[str, set[str]] = {}
    for name, agent in agents.items():
        for need, where in agent.needs:
            if need not in agents:
                others = [other for other in agents if other != name]
                key = f"agents.{name}.depends_on"
                notes.error(
                    where, key, f"there is no agent {need}", allowed(others), did_you_mean(need, others)
                )
        graph[name] = {need for need, _ in agent.needs if need in agents}
    for _ in range(_MAX_CYCLES):
        cycle = _cycle(graph)
        if cycle is None:
            return
        ring = _from_first(cycle, list(agents))
        start, after = ring[0], ring[1 % len(ring)]
        where = next(where for need, where in agents[start].needs if need == after)
        notes.error(
            where,
            f"agents.{start}.depends_on",
            f"is circular: {' -> '.join([*ring, start])}",
            "allowed: agents that do not wait for this one",
        )
        graph[start].discard(after)


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
