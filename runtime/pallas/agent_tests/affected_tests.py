"""Which tests lead to which agents: those that a new version of an agent may break."""

from collections.abc import Collection, Iterable

from pallas.client.own_fleet import needed_by_all
from pallas.config import Project

from .agent_test import AgentTest


def affected_tests(
    tests: Iterable[AgentTest], project: Project, agents: Collection[str]
) -> dict[str, frozenset[str]]:
    """The tests whose agent is one of ``agents`` or leads to one, by name, each with those agents. Blocks."""
    found: dict[str, frozenset[str]] = {}
    reached: dict[str, frozenset[str]] = {}
    for test in tests:
        if test.agent not in reached:
            reached[test.agent] = frozenset(needed_by_all(project, [test.agent]).agents).intersection(agents)
        if reached[test.agent]:
            found[test.name] = reached[test.agent]
    return found
