"""``agents.yaml``: the project, its agents, and where they listen."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from .agents import Draft, draft_of
from .agents_file import EXTENSION, AgentsFile
from .auth_section import auth_config, check_agent_auth
from .database import MEMORY
from .files import module_file, module_like, module_problem, shown
from .graph import check_default_agent, check_depends_on, check_groups, check_peers, check_slugs
from .kinds import SessionLimits, TasksConfig, VerdictConfig
from .limits_section import limits_of
from .models import LockRules, Project
from .network import allowed_host_problem
from .notes import Notes, suggest
from .organism import Organism
from .organism_merge import llm_of, messages_of, warn_of_own, with_listeners
from .ports import Ports
from .prices import price_rules
from .programs import scripted_config, server_configs
from .rbac import rbac_config
from .section import Section
from .supervision import unfinished_of
from .tool_section import ApprovalsSection, tool_rules_of
from .tree import Leaf, Table
from .validation import validate
from .where import Where

# namespace/slug together have at most 200 characters in the registry.
_MAX_PUBLISHED: Final = 200


@dataclass(frozen=True, slots=True)
class Topology:
    """What ``agents.yaml`` says, with stand-ins where it said something wrong."""

    project: Project
    """Without its agents, and without what the files of fast-agent say."""
    agents: Mapping[str, Draft]


def read_topology(
    table: Table,
    path: Path,
    root: Path,
    notes: Notes,
    variables: Mapping[str, str],
    organism: Organism | None = None,
) -> Topology:
    """All of ``agents.yaml``, at ``path``; every mistake is noted. ``variables`` hold the keys that it names.

    The listeners of ``organism`` are agents in addition to its own; where there is no ``agents.yaml``,
    ``table`` is what the organism says of the project.
    """
    file = shown(root, path)
    own = {key: entry for key, entry in table.entries.items() if not key.startswith(EXTENSION)}
    table = replace(table, entries=own)
    given = validate(AgentsFile, Section(table, "", Where(file), notes))
    top = given.at
    ports = Ports(notes)
    registry_port = _registry_port(given, ports)
    agents = _agents(given, root, ports, alone=organism is None)
    if organism is not None:
        agents = with_listeners(agents, organism, file, notes)
        if file != organism.file:
            warn_of_own(organism, top)
    _check_published(agents, given.namespace, notes)
    check_slugs(agents, notes)
    check_depends_on(agents, notes)
    check_peers(agents, notes)
    check_groups(agents, notes)
    check_default_agent(given.default_agent, agents, top)
    auth = auth_config(given.auth, top, root, variables)
    check_agent_auth(auth, {name: draft.auth for name, draft in agents.items()}, notes)
    project = Project(
        root=root,
        agents_file=path,
        agents={},
        name=given.name or "",
        version=given.version,
        host=given.host,
        namespace=given.namespace,
        registry_port=registry_port,
        port=given.port,
        public_url=_public_url(given),
        drain_timeout=given.drain_timeout,
        drain=given.drain,
        workers=_workers(given),
        loop_lag=given.loop_lag,
        unfinished_calls=unfinished_of(given.unfinished_calls),
        tools=tool_rules_of(given.tools, "the project"),
        approvals=(given.approvals or ApprovalsSection()).timeout,
        trusted_servers=tuple(name for name, _ in given.listed("trusted_servers")),
        tools_lock=LockRules(given.tools_lock),
        auth=auth,
        rbac=rbac_config(given.rbac, auth, agents),
        bind=given.bind,
        allowed_hosts=_allowed_hosts(given),
        server_cards=given.server_cards,
        database_url=given.database_url or "",
        step_texts_mib=given.step_texts_mib,
        sessions=given.sessions or SessionLimits(),
        tasks=given.tasks or TasksConfig(),
        verdict=given.verdict or VerdictConfig(),
        messages=messages_of(given, organism),
        llm=llm_of(given, organism, variables),
        limits=limits_of(given.limits),
        plugins=_plugins(given, root),
        prices=price_rules(given.prices),
        default_agent=given.default_agent or "",
        scripted=scripted_config(given.scripted, root, ports) if given.scripted else None,
        servers=server_configs(given.servers, root, ports),
    )
    return Topology(project, agents)


def _registry_port(given: AgentsFile, ports: Ports) -> int:
    """The registry's port: with ``port`` there is one for everything."""
    top, port, registry_port = given.at, given.port, given.registry_port
    if port is None:
        ports.claim(registry_port, "the registry", top.place("registry_port"), "registry_port")
        return registry_port
    ports.claim(port, "everything (port)", top.place("port"), "port")
    if given.is_given("registry_port") and registry_port != port:
        top.error("registry_port", f"the registry is at port {port}, as everything is", "leave it out")
    return port


def _workers(given: AgentsFile) -> int:
    """The number of worker processes, which need a database that they share."""
    if given.workers > 1 and given.database_url == MEMORY:
        given.at.error(
            "workers",
            f"{given.workers} processes cannot share a database in memory",
            "give database_url: a file or a server, leave it out, or write `workers: 1`",
        )
    return given.workers


def _public_url(given: AgentsFile) -> str:
    """How callers elsewhere reach the one port; agents on ports of their own have no one address."""
    if given.public_url is not None and "port" not in given.at:
        given.at.error(
            "public_url",
            "needs port:, the one port that everything is reached at",
            "required: for example `port: 24200`; agents on ports of their own have no one address",
        )
    return (given.public_url or "").rstrip("/")


def _agents(given: AgentsFile, root: Path, ports: Ports, *, alone: bool) -> Mapping[str, Draft]:
    top = given.at
    if "agents" not in top and not alone:
        return {}
    if not top.need("agents", "{jarvis: {module: agents.jarvis, port: 24201}}"):
        return {}
    node = top.table.get("agents")
    if (isinstance(node, Table) and not node.entries) or (isinstance(node, Leaf) and node.value is None):
        top.error(
            "agents", "names no agent", "required: at least one, for example `jarvis: {module: …, port: …}`"
        )
    return {
        name: draft_of(entry, name, root, ports, port_needed="port" not in top)
        for name, entry in (given.agents or {}).items()
    }


def _allowed_hosts(given: AgentsFile) -> tuple[str, ...]:
    hosts = given.listed("allowed_hosts")
    for host, where in hosts:
        if refusal := allowed_host_problem(host):
            given.at.refuse("allowed_hosts", f"{host} {refusal}", where)
    return tuple(dict.fromkeys(host for host, _ in hosts))


def _plugins(given: AgentsFile, root: Path) -> tuple[str, ...]:
    names = given.listed("plugins")
    for name, where in names:
        if problem := module_problem(name):
            given.at.refuse("plugins", f"{name} {problem}", where)
        elif module_file(root, name) is None:
            hint = suggest(module_like(root, name)) or "plugins of installed packages need no entry"
            given.at.refuse("plugins", f"{name} is not a module in the project's folder; {hint}", where)
    return tuple(dict.fromkeys(name for name, _ in names))


def _check_published(agents: Mapping[str, Draft], namespace: str, notes: Notes) -> None:
    for name, agent in agents.items():
        length = len(namespace) + 1 + len(name)
        if length > _MAX_PUBLISHED:
            notes.error(
                agent.config.where,
                agent.path,
                f"namespace/name has {length} characters",
                f"allowed: {_MAX_PUBLISHED} together",
            )
