"""What the fleet tells strangers about an agent: the same name, texts, icons and address on every page."""

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote, urljoin, urlsplit

from pallas.config.models import Icon, Project
from pallas.model import AgentSnapshot, AgentState, FleetSnapshot
from pallas.text import one_line

_MAX_TEXT: Final = 100
_MAX_URL: Final = 255


def shown_agents(fleet: FleetSnapshot) -> tuple[AgentSnapshot, ...]:
    """The agents that are published: all but the stopped ones. One in error still answers its port."""
    return tuple(agent for agent in fleet.agents if agent.state is not AgentState.STOPPED)


def published_name(project: Project, agent: AgentSnapshot) -> str:
    """``namespace/slug``, with exactly one slash (SPEC PI-2)."""
    return f"{project.namespace}/{agent.name.replace('_', '-')}"


def identity(project: Project, agent: AgentSnapshot) -> dict[str, Any]:
    """Name, title, description, version, icons (when there are any) and the one remote.

    Titles and descriptions have 1 to 100 characters, icons an absolute address (SPEC PI-3, PI-6). Nothing in
    it is more than what agents.yaml says for publishing.
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
    return facts | {"remotes": [{"type": "streamable-http", "url": mcp_url(project, agent)}]}


def mcp_url(project: Project, agent: AgentSnapshot) -> str:
    """Where callers elsewhere reach the agent; made of ``host`` in agents.yaml, never of a request."""
    return f"{_origin(project, agent.port)}/mcp"


def _icons(project: Project, icons: Sequence[Icon]) -> list[dict[str, Any]]:
    base = f"{_origin(project, project.registry_port)}/"
    shown = []
    for icon in icons:
        src = quote(urljoin(base, icon.src.strip()), safe="%/:?#[]@!$&'()*+,;=~")
        # What a client cannot show, or the schema forbids, is left out rather than passed on.
        if urlsplit(src).scheme in ("http", "https", "data") and len(src) <= _MAX_URL:
            shown.append({"src": src} | ({"sizes": list(icon.sizes)} if icon.sizes else {}))
    return shown


def _origin(project: Project, port: int) -> str:
    host = f"[{project.host}]" if ":" in project.host and not project.host.startswith("[") else project.host
    return f"http://{host}:{port}"
