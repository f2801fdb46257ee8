"""Agents that call others of the fleet which ask for a token: whether one is sent."""

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from .auth_section import auth_of
from .models import AgentConfig, DownstreamConfig, Project
from .network import AGENTS, local_port, url_problem
from .notes import Notes
from .topology import Topology


def warn_of_delegation(topology: Topology, downstreams: Mapping[str, DownstreamConfig], notes: Notes) -> None:
    """Warn of each downstream that is a guarded agent of this fleet and is shown no token."""
    for downstream in downstreams.values():
        sends = downstream.forward_inbound_auth or any(
            name.lower() == "authorization" for name in downstream.headers
        )
        name = None if sends or downstream.transport == "stdio" else agent_at(downstream.url, topology)
        if name is None:
            continue
        auth = auth_of(topology.project.auth, topology.agents[name].auth)
        if auth is None or auth.off:
            continue
        notes.warn(
            downstream.where,
            f"mcp.servers.{downstream.name}",
            f"agent {name} asks callers for a token, and none is sent",
            "add forward_inbound_auth: true to send on that of the caller, or "
            'headers: {Authorization: "Bearer ${TOKEN}"} for one of your own',
        )


def agent_at(url: str, topology: Topology) -> str | None:
    """The agent of this fleet that is called at ``url``; None for a server that is none of them."""
    agents = {name: draft.config for name, draft in topology.agents.items()}
    return _agent_at(url, topology.project.host, topology.project.public_url, agents)


def leads_to(url: str, agent: str, project: Project) -> bool:
    """Whether the agent of this fleet is called at ``url``; ``agent`` may be one that no file declares.

    Stricter than ``agent_at``: what is at another port has no such path, whatever it is called.
    """
    path, port = _path_at(url, project.host, project.public_url), _port_of(url)
    if path is None or port is None:
        return False
    if path.startswith(f"/{AGENTS}/"):
        slugs = (each.slug for each in project.agents.values() if each.name == agent)
        at_fleet = port in (project.registry_port, _port_of(project.public_url))
        return at_fleet and unquote(path.split("/")[2]) in (agent, *slugs)
    return any(each.name == agent and each.port == port for each in project.agents.values())


def _agent_at(url: str, host: str, public_url: str, agents: Mapping[str, AgentConfig]) -> str | None:
    path, port = _path_at(url, host, public_url), _port_of(url)
    if path is None or not port:
        return None
    named = unquote(path.split("/")[2]) if path.startswith(f"/{AGENTS}/") else ""
    for name, config in agents.items():
        if named in (name, config.slug) or (not named and config.port == port):
            return name
    return None


def _path_at(url: str, host: str, public_url: str) -> str | None:
    """The path at this fleet that ``url`` has; None for one that is elsewhere."""
    if url_problem(url):
        return None
    parts, public = urlsplit(url), urlsplit(public_url)
    if local_port(url) is None and parts.hostname not in (host.lower(), public.hostname):
        return None
    return parts.path.removeprefix(public.path.rstrip("/"))


def _port_of(url: str) -> int | None:
    try:
        parts = urlsplit(url)
        return parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None
