"""Protected-resource metadata (RFC 9728): where a client gets a token for an agent."""

from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from pallas.config.auth import AuthConfig
from pallas.config.models import Project
from pallas.surfaces.published_agent import Named, resource_url

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
METADATA_PATH: Final = f"{WELL_KNOWN}/mcp"
"""Where an agent serves its own; the one port answers ``/.well-known/…/agents/NAME/mcp`` with the same."""


def document(auth: AuthConfig, resource: str) -> dict[str, Any] | None:
    """Return the metadata of the agent at ``resource``; None if no issuer has an address for tokens."""
    servers = [each.issuer for each in auth.issuers.values() if _is_url(each.issuer)]
    if not servers:
        return None
    found: dict[str, Any] = {"resource": resource, "authorization_servers": servers}
    if auth.scopes:
        found["scopes_supported"] = list(auth.scopes)
    return found | {"bearer_methods_supported": ["header"]}


def metadata_url(resource: str) -> str:
    """Return the URL of the metadata of ``resource``: the well-known part goes before its path."""
    parts = urlsplit(resource)
    return f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{parts.path}"


def resource_at(project: Project, agent: Named, port: int | None) -> str:
    """Return the agent's URL for a client of ``port``: that of the agent's own port, or the published one.

    Built from agents.yaml, never from the request.
    """
    if project.port is not None and agent.port and port == agent.port:
        project = replace(project, port=None, public_url="")
    return resource_url(project, agent)


def _is_url(issuer: str) -> bool:
    parts = urlsplit(issuer)
    return parts.scheme in ("http", "https") and bool(parts.netloc)
