"""Agents that call others of the fleet which ask for a token: whether one is sent."""

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from .models import DownstreamConfig
from .network import local_port
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
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None
    public = urlsplit(topology.public_url)
    ours = local_port(url) is not None or parts.hostname in (topology.host.lower(), public.hostname)
    if not ours or not port:
        return None
    path = parts.path.removeprefix(public.path.rstrip("/"))
    named = unquote(path.removeprefix("/agents/").partition("/")[0]) if path.startswith("/agents/") else ""
    for name, draft in topology.agents.items():
        if named in (name, draft.config.slug) or (not named and draft.config.port == port):
            return name
    return None
