"""What a save may change in runs beside the new versions of agents."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pallas.config import AgentConfig, Project
from pallas.config.change_effects import changed_fields
from pallas.config.delegation import leads_to
from pallas.config.files import shown

from .affected_agents import AgentFacts, ChangeSet, ReloadPlan, same_place

_NOT_ASKED: Final = frozenset({"icons", "auth", "restart", "title", "start_timeout"})
"""Keys of an agent that are applied at once and that no request to a model, no call and no limit has."""
_IN_REQUESTS: Final = frozenset({"params", "peers", "description"})
"""Keys of an agent that are applied at once and that requests to its model have."""
_NO_MODEL: Final = ("handler", "remote", "worker")
"""Kinds of agents that do not hear of their own description; the models of others see it."""
_OF_ALL: Final = ("prices", "tools", "limits", "approvals", "trusted_servers")
"""Keys of the project that are applied at once and that may change any run."""
_NOT_KNOWN: Final = "and what its tools answer now is not known"


@dataclass(frozen=True, slots=True)
class SaveEffects:
    """``files`` are the saved ones as they are shown.

    ``applied`` are agents that behave otherwise without another version, ``servers`` MCP servers that only
    they themselves could tell about, each with what changed. ``settings`` are agents whose entries have
    parameters, peers or descriptions that are not applied yet, each with the agents whose requests say them.
    """

    files: tuple[str, ...] = ()
    applied: frozenset[str] = frozenset()
    servers: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, frozenset[str]] = field(default_factory=dict)


def effects_of_save(
    changed: ChangeSet,
    old: Project,
    new: Project,
    agents: Sequence[AgentFacts],
    plan: ReloadPlan,
    files: tuple[str, ...],
) -> SaveEffects:
    """What a save of ``files`` changes beside the versions in ``plan``."""
    settings = dict(_settings(old, new, agents))
    applied = frozenset(_applied(old, new)) if changed.reread else frozenset[str]()
    applied = applied.union(*settings.values())
    return SaveEffects(files, applied, dict(_servers(changed, new, agents, plan)), settings)


def _settings(
    old: Project, new: Project, agents: Sequence[AgentFacts]
) -> Iterator[tuple[str, frozenset[str]]]:
    for name, config in new.agents.items():
        before, users = old.agents.get(name, config), set[str]()
        if _IN_REQUESTS.intersection(changed_fields(before, config, "at once")) - _silent(config):
            users.add(name)
        if _said_of(before) != _said_of(config):  # the models of its callers see it
            users.update(other.name for other in new.agents.values() if name in other.peers)
            users.update(known.name for known in agents if _calls(known, name, new))
        if users:
            yield name, frozenset(users)


def _applied(old: Project, new: Project) -> Iterator[str]:
    everyone = any(key in _OF_ALL for key in changed_fields(old, new, "at once"))
    for name, config in new.agents.items():
        before = old.agents.get(name)
        changed = changed_fields(before, config, "at once") if before is not None else ()
        if everyone or set(changed) - _silent(config):
            yield name


def _silent(config: AgentConfig) -> frozenset[str]:
    """Keys of an agent that change nothing in its own runs."""
    return _NOT_ASKED | {"description"} if config.kind in _NO_MODEL else _NOT_ASKED


def _said_of(config: AgentConfig) -> str:
    """What the tool that asks an agent says of it."""
    return config.description or config.title


def _calls(known: AgentFacts, agent: str, project: Project) -> bool:
    """Whether one of the servers of an agent is that other agent."""
    found = (project.downstreams.get(server) for server in known.servers or ())
    return any(each is not None and each.url and leads_to(each.url, agent, project) for each in found)


def _servers(
    changed: ChangeSet, new: Project, agents: Sequence[AgentFacts], plan: ReloadPlan
) -> Iterator[tuple[str, str]]:
    """MCP servers whose files or entries changed, with the reason in words.

    An agent of the project is none: it is replayed itself.
    """
    for known in agents:
        for name, files in known.scripts.items():
            if saved := sorted(changed.files & files):
                yield name, f"{shown(new.root, saved[0])} was saved, {_NOT_KNOWN}"
        if changed.reread:
            for name in known.servers or ():
                if _entry(known.project, name) != _entry(new, name) and not _is_agent(new, name):
                    yield name, f"its entry was saved, {_NOT_KNOWN}"
    for name, downstream in new.downstreams.items():
        programs = (new.servers[each] for each in plan.restart if each in new.servers)
        if downstream.url and any(same_place(downstream.url, each.url) for each in programs):
            yield name, f"its program starts again, {_NOT_KNOWN}"


def _entry(project: Project, name: str) -> Any:
    mcp = project.settings.get("mcp")
    servers = mcp.get("servers") if isinstance(mcp, Mapping) else None
    return servers.get(name) if isinstance(servers, Mapping) else None


def _is_agent(project: Project, name: str) -> bool:
    found = project.downstreams.get(name)
    url = found.url if found is not None else ""
    return bool(url) and any(leads_to(url, agent, project) for agent in project.agents)
