"""What the fleet publishes about an agent: the same name, texts, icons and address on every page."""

import json
from collections.abc import Sequence
from time import time
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote, urljoin, urlsplit

from pallas.config.models import Icon, Project
from pallas.model import AgentSnapshot, AgentState, FleetSnapshot, Health, HealthStatus
from pallas.model.time_text import iso
from pallas.safe_text import one_line

AGENTS: Final = "agents"
"""The path above all agents at the fleet's port."""
CHAT: Final = "chat"
"""The name of an agent's tool at its own virtual server."""
_MAX_TEXT: Final = 100
_MAX_URL: Final = 255


class Offered(NamedTuple):
    """A tool's name, and the agent that it chats with."""

    tool: str
    agent: str
    description: str


def health_text(health: Health) -> str:
    """Return the JSON text ``{status, timestamp, message?}`` (PI-8).

    ``timestamp`` is when the health was checked, ISO 8601 in UTC; ``message`` is present and not empty
    whenever the status is not ok.
    """
    body = {"status": health.status.value, "timestamp": timestamp(health.checked_at or time())}
    if health.status is not HealthStatus.OK:
        body["message"] = health.message or f"The agent reports {health.status.value} without a reason"
    return json.dumps(body, ensure_ascii=False)


def timestamp(seconds: float) -> str:
    """Format Unix seconds as ISO 8601 in UTC, whole seconds, for example ``2026-03-12T15:42:00Z``."""
    return iso(seconds, "seconds")


def shown_agents(fleet: FleetSnapshot) -> tuple[AgentSnapshot, ...]:
    """Return the published agents: all but the stopped ones. One in error still answers its port."""
    return tuple(agent for agent in fleet.agents if agent.state is not AgentState.STOPPED)


def published_name(project: Project, agent: AgentSnapshot) -> str:
    """Return ``namespace/slug``, with exactly one slash (PI-2)."""
    return f"{project.namespace}/{agent.name.replace('_', '-')}"


def identity(project: Project, agent: AgentSnapshot) -> dict[str, Any]:
    """Return name, title, description, version, icons (if there are any) and the one remote.

    Titles and descriptions have 1 to 100 characters, icons an absolute address (PI-3, PI-6). It holds
    no more than agents.yaml says for publishing.
    """
    config = project.agents.get(agent.name)
    title = one_line(agent.title, _MAX_TEXT) or agent.name
    facts: dict[str, Any] = {
        "name": published_name(project, agent),
        "title": title,
        "description": one_line(agent.description, _MAX_TEXT) or title,
        "version": project.version,
    }
    if icons := _icons(project, config.icons if config else ()):
        facts["icons"] = icons
    return facts | {"remotes": [{"type": "streamable-http", "url": resource_url(project, agent)}]}


class Named(Protocol):
    """The part of an agent that its address needs: its configuration or its snapshot has it."""

    @property
    def name(self) -> str:
        """As in agents.yaml."""
        ...

    @property
    def port(self) -> int:
        """Its own port, 0 for none."""
        ...


def resource_url(project: Project, agent: Named) -> str:
    """Return the public URL of the agent's MCP endpoint, which is also the audience of its tokens.

    If the project has one port for everything, the URL is below ``public_url`` or else below that port,
    even for an agent with a port of its own; an agent without one is on the registry's port. Built from
    agents.yaml, never from a request.
    """
    if project.port is None and agent.port:
        return f"{_origin(project, agent.port)}/mcp"
    return f"{base_url(project)}/{AGENTS}/{quote(agent.name)}/mcp"


def base_url(project: Project) -> str:
    """Return the public URL of the fleet, without a trailing slash."""
    return project.public_url or _origin(project, project.registry_port)


def _icons(project: Project, icons: Sequence[Icon]) -> list[dict[str, Any]]:
    base = f"{base_url(project)}/"
    shown = []
    for icon in icons:
        src = quote(urljoin(base, icon.src.strip()), safe="%/:?#[]@!$&'()*+,;=~")
        # Text that a client cannot show, or the schema forbids, is left out rather than passed on.
        if urlsplit(src).scheme in ("http", "https", "data") and len(src) <= _MAX_URL:
            shown.append({"src": src} | ({"sizes": list(icon.sizes)} if icon.sizes else {}))
    return shown


def _origin(project: Project, port: int) -> str:
    host = f"[{project.host}]" if ":" in project.host and not project.host.startswith("[") else project.host
    return f"{'http' if project.tls is None else 'https'}://{host}:{port}"
