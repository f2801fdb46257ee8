"""``agents.yaml``: the project, its agents, and where they listen."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pallas.model.grant_rules import RbacConfig

from .agents import Draft, read_agent
from .auth import AuthConfig
from .database import database_url_problem
from .graph import check_default_agent, check_depends_on, check_groups, check_peers, check_slugs
from .kinds import LlmRouting, PumpLimits, SessionLimits, TasksConfig
from .models import ScriptedConfig, ServerConfig
from .network import allowed_host_problem, bind_problem, host_problem, public_url_problem
from .notes import Notes
from .organism import Organism
from .organism_beside import llm_of, messages_of, warn_of_own, with_listeners
from .ports import Ports
from .programs import read_scripted, read_servers
from .rbac import read_rbac
from .read_auth import check_agent_auth, read_auth
from .read_sessions import read_sessions, read_tasks
from .section import Section
from .tree import Leaf, Table
from .where import Where

PROJECT_KEYS: Final = (
    "name",
    "version",
    "host",
    "namespace",
    "registry_port",
    "port",
    "public_url",
    "drain_timeout",
    "loop_lag",
    "auth",
    "rbac",
    "bind",
    "allowed_hosts",
    "server_cards",
    "database_url",
    "default_agent",
    "sessions",
    "tasks",
    "messages",
    "llm",
    "scripted",
    "servers",
    "agents",
)
DEFAULT_REGISTRY_PORT: Final = 24_200
DEFAULT_DRAIN_TIMEOUT: Final = 30.0
DEFAULT_LOOP_LAG: Final = 1.0
DEFAULT_NAMESPACE: Final = "local.pallas"
_MAX_NAME: Final = 100
_MAX_VERSION: Final = 255
# namespace/slug together have at most 200 characters in the registry.
_MAX_PUBLISHED: Final = 200

_NAMESPACE: Final = re.compile(r"[a-zA-Z0-9.-]+")
_RANGE: Final = re.compile(r"^[\^~<>=!]|[*|,\s]|(^|\.)[xX](\.|$)|^latest$")


@dataclass(frozen=True, slots=True)
class Topology:
    """What ``agents.yaml`` says, with stand-ins where it said something wrong."""

    name: str
    version: str
    host: str
    namespace: str
    registry_port: int
    port: int | None
    public_url: str
    drain_timeout: float
    loop_lag: float
    auth: AuthConfig | None
    rbac: RbacConfig | None
    bind: str | None
    allowed_hosts: tuple[str, ...]
    server_cards: bool
    database_url: str
    sessions: SessionLimits
    tasks: TasksConfig
    messages: PumpLimits
    llm: LlmRouting
    default_agent: str
    scripted: ScriptedConfig | None
    servers: Mapping[str, ServerConfig]
    agents: Mapping[str, Draft]


def read_topology(
    table: Table,
    file: str,
    root: Path,
    notes: Notes,
    variables: Mapping[str, str],
    organism: Organism | None = None,
) -> Topology:
    """All of ``agents.yaml``; every mistake is noted. ``variables`` hold the keys that it names.

    The listeners of ``organism`` are agents beside its own; where there is no ``agents.yaml``, ``table`` is
    what the organism says of the project.
    """
    top = Section(table, "", Where(file), notes)
    top.only(PROJECT_KEYS)
    ports = Ports(notes)
    port = top.integer("port", 1, 65_535)
    registry_port = _registry_port(top, port, ports)
    scripted = top.section("scripted")
    agents = _agents(top, root, ports, port_needed="port" not in top, alone=organism is None)
    if organism is not None:
        agents = with_listeners(agents, organism, file, notes)
        if file != organism.file:
            warn_of_own(organism, top)
    drain_timeout = top.number("drain_timeout", 0, 3_600)
    loop_lag = top.number("loop_lag", 0, 60)
    namespace = top.text("namespace", check=_namespace_problem) or DEFAULT_NAMESPACE
    _check_published(agents, namespace, notes)
    check_slugs(agents, notes)
    check_depends_on(agents, notes)
    check_peers(agents, notes)
    check_groups(agents, notes)
    default_agent = top.text("default_agent")
    check_default_agent(default_agent, agents, top)
    auth = read_auth(top, root, variables)
    check_agent_auth(auth, {name: draft.auth for name, draft in agents.items()}, notes)
    return Topology(
        name=(top.text("name", most=_MAX_NAME) if top.need("name", "my-project") else None) or "",
        version=top.text("version", check=_version_problem, most=_MAX_VERSION) or "1.0.0",
        host=top.text("host", check=host_problem) or "localhost",
        namespace=namespace,
        registry_port=registry_port,
        port=port,
        public_url=_public_url(top, port),
        drain_timeout=DEFAULT_DRAIN_TIMEOUT if drain_timeout is None else drain_timeout,
        loop_lag=DEFAULT_LOOP_LAG if loop_lag is None else loop_lag,
        auth=auth,
        rbac=read_rbac(top, auth, agents),
        bind=top.text("bind", check=bind_problem),
        allowed_hosts=_allowed_hosts(top),
        server_cards=top.flag("server_cards") or False,
        database_url=_database_url(top),
        sessions=read_sessions(top),
        tasks=read_tasks(top),
        messages=messages_of(top, organism),
        llm=llm_of(top, organism, variables),
        default_agent=default_agent or "",
        scripted=read_scripted(scripted, root, ports) if scripted else None,
        servers=read_servers(top, root, ports),
        agents=agents,
    )


def _database_url(top: Section) -> str:
    """Where threads are kept. It may hold a password: what is wrong is said without repeating any of it."""
    quiet = Section(top.table, top.path, top.where, top.notes, echo=False)
    return quiet.text("database_url", check=database_url_problem) or ""


def _registry_port(top: Section, port: int | None, ports: Ports) -> int:
    """The registry's port: with ``port`` there is one for everything."""
    if port is not None:
        ports.claim(port, "everything (port)", top.place("port"), "port")
        given = top.integer("registry_port", 1, 65_535)
        if given not in (None, port):
            top.error("registry_port", f"the registry is at port {port}, as everything is", "leave it out")
        return port
    registry_port = top.integer("registry_port", 1, 65_535)
    if registry_port is None:
        registry_port = DEFAULT_REGISTRY_PORT
    ports.claim(registry_port, "the registry", top.place("registry_port"), "registry_port")
    return registry_port


def _public_url(top: Section, port: int | None) -> str:
    """How callers elsewhere reach the one port; agents on ports of their own have no one address."""
    given = top.text("public_url", check=public_url_problem)
    if given is not None and port is None and "port" not in top:
        top.error(
            "public_url",
            "needs port:, the one port that everything is reached at",
            "required: for example `port: 24200`; agents on ports of their own have no one address",
        )
    return (given or "").rstrip("/")


def _agents(top: Section, root: Path, ports: Ports, *, port_needed: bool, alone: bool) -> Mapping[str, Draft]:
    if "agents" not in top and not alone:
        return {}
    if not top.need("agents", "{jarvis: {module: agents.jarvis, port: 24201}}"):
        return {}
    agents = {
        name: read_agent(section, name, root, ports, port_needed=port_needed)
        for name, section in top.sections("agents")
    }
    node = top.table.get("agents")
    if (isinstance(node, Table) and not node.entries) or (isinstance(node, Leaf) and node.value is None):
        top.error(
            "agents", "names no agent", "required: at least one, for example `jarvis: {module: …, port: …}`"
        )
    return agents


def _allowed_hosts(top: Section) -> tuple[str, ...]:
    hosts = top.texts("allowed_hosts", "[my-host.example.com]")
    for host, where in hosts:
        if refusal := allowed_host_problem(host):
            top.refuse("allowed_hosts", f"{host} {refusal}", where)
    return tuple(dict.fromkeys(host for host, _ in hosts))


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


def _namespace_problem(text: str) -> str | None:
    if _NAMESPACE.fullmatch(text):
        return None
    return "is not a namespace; allowed: letters, digits, dots and dashes, such as com.example.project"


def _version_problem(text: str) -> str | None:
    if _RANGE.search(text):
        return "is not one version; allowed: an exact version such as 1.0.0, no range"
    return None
