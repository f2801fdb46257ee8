"""Which servers of a project are compared with its lock, and what a difference does."""

from dataclasses import replace
from urllib.parse import unquote, urlsplit

from pallas.config import AgentConfig, Project
from pallas.config.delegation import leads_to
from pallas.model.tool_lock import LockMode

from .tool_gate import ToolGate


def with_lock_rules(project: Project, otherwise: LockMode) -> Project:
    """Return the project as its agents need it: with the servers that are agents of the same fleet.

    ``otherwise`` is the mode where the project says none and has a lock.
    """
    rules = replace(project.tools_lock, otherwise=otherwise, exempt=own_agents(project))
    return replace(project, tools_lock=rules)


def own_agents(project: Project) -> tuple[str, ...]:
    """Return the names of servers that are agents of this fleet: their tools are in the project itself."""
    found = project.downstreams.values()
    return tuple(each.name for each in found if each.url and _is_own_agent(each.url, project))


def gate_for(project: Project, config: AgentConfig) -> ToolGate:
    """Return what compares the servers of an agent with the lock.

    Servers that a project made over the API brings along are in no file, so they are not compared.
    """
    definition, rules = config.definition, project.tools_lock
    brought = () if definition is None else tuple(each.name for each in definition.own_servers)
    return ToolGate(config.name, project.root, rules.mode, rules.otherwise, (*rules.exempt, *brought))


def _is_own_agent(url: str, project: Project) -> bool:
    parts = urlsplit(url).path.split("/")
    names = {*project.agents, *(unquote(each) for each in parts[2:3])}
    return any(leads_to(url, name, project) for name in names)
