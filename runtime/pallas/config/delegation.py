"""Agents that call others of the fleet which ask for a token: whether one is sent."""

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from .models import AgentConfig, DownstreamConfig, Project
from .network import PROJECTS, VIRTUAL, local_port, url_problem
from .notes import Notes
from .read_auth import auth_of
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
        auth = auth_of(topology.auth, topology.agents[name].auth)
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
    return _agent_at(url, topology.host, topology.public_url, agents)


def leads_to(url: str, agent: str, project: Project) -> bool:
    """Whether the agent of this fleet is called at ``url``: at its own address, or as a virtual server."""
    path = _path_at(url, project.host, project.public_url)
    if path is None:
        return False
    parts = [unquote(part) for part in path.strip("/").split("/")]
    port = _port_of(url)
    if parts[0] in (VIRTUAL, PROJECTS):
        at_fleet = port in (project.registry_port, _port_of(project.public_url))
        return at_fleet and (parts[0] == PROJECTS or parts[1:2] == [f"agent-{agent}"])
    if parts[0] == "agents":  # one that was made over the API is in no file
        return (
            agent in parts[1:2] or _agent_at(url, project.host, project.public_url, project.agents) == agent
        )
    return _agent_at(url, project.host, project.public_url, project.agents) == agent


def _agent_at(url: str, host: str, public_url: str, agents: Mapping[str, AgentConfig]) -> str | None:
    path, port = _path_at(url, host, public_url), _port_of(url)
    if path is None or not port:
        return None
    named = unquote(path.removeprefix("/agents/").partition("/")[0]) if path.startswith("/agents/") else ""
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
