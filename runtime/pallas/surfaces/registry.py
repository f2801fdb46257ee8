"""The registry: the fleet's catalogue over plain HTTP, with liveness, readiness and metrics."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urljoin, urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from pallas.config.models import AgentConfig, Capabilities, Project
from pallas.health.preflight import ProviderReport
from pallas.model import AgentSnapshot, FleetSnapshot, FleetState
from pallas.model.refusals import not_found

from .connection_shares import ConnectionShares
from .control import BASE
from .metrics import Metrics
from .published_agent import identity, published_name, shown_agents, timestamp
from .server_cards import CATALOG_PATH, CATALOG_TYPE, ai_catalog, page
from .status_pages import replica_of, status_pages

MAX_ICON_BYTES: Final = 1024 * 1024
_ICON_MEDIA: Final = {
    ".gif": "image/gif",
    ".ico": "image/x-icon",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webp": "image/webp",
}
_ICON_HEADERS: Final = {
    "cache-control": "max-age=300",
    "x-content-type-options": "nosniff",
    # An SVG may hold a script: this keeps it from running when opened as a page.
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
}

API: Final = "/api/v1"
WELL_KNOWN: Final = "/.well-known/mcp/server.json"
SERVERS: Final = "/v0.1/servers"
SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
OFFICIAL: Final = "io.modelcontextprotocol.registry/official"
PUBLISHER: Final = "io.modelcontextprotocol.registry/publisher-provided"


def icon_at(project: Project, path: str) -> Response | None:
    """Return the icon published at that path; None if no agent names one, or it is no image.

    Reads the file, so call it in a thread. The file must be in the project's folder after following links,
    and at most 1 MiB.
    """
    sources = (icon.src.strip() for agent in project.agents.values() for icon in agent.icons)
    if path not in {_icon_path(src) for src in sources}:
        return None
    root = project.root.resolve()
    try:
        file = Path(root, path.lstrip("/")).resolve()
        media = _ICON_MEDIA.get(file.suffix.lower())
        if media is None or not file.is_relative_to(root) or not file.is_file():
            return None
        with file.open("rb") as stream:
            content = stream.read(MAX_ICON_BYTES + 1)
    except (OSError, ValueError):
        return None
    return (
        Response(content, headers=_ICON_HEADERS, media_type=media) if len(content) <= MAX_ICON_BYTES else None
    )


def _icon_path(src: str) -> str:
    """Return the path at which a relative icon is published; empty for an address elsewhere."""
    parts = urlsplit(src)
    return "" if parts.scheme or parts.netloc else unquote(urlsplit(urljoin("/", src)).path)


def registry_app(
    project: Project | Callable[[], Project],
    snapshot: Callable[[], FleetSnapshot],
    *,
    providers: Callable[[], Sequence[ProviderReport]],
    metrics: Metrics,
    shares: ConnectionShares | None = None,
    control: ASGIApp | None = None,
    rest: ASGIApp | None = None,
) -> Starlette:
    """Return the application of the registry's port (PI-1 to PI-6, PR-23); put a ``HostOriginGuard``
    before it.

    ``GET`` of the well-known path and of ``/v0.1/servers`` returns the catalogue, built from the project
    and the snapshot for each request; below the latter is each server and its one version. ``/healthz``
    reports liveness and the result of the provider checks, ``/readyz`` is 503 unless the fleet runs,
    ``/metrics`` is for Prometheus. With ``server_cards`` it also serves the AI Catalog; icons of agents are
    at their published addresses. ``shares`` is the table of worker processes. ``control``
    is the control API, below ``/api/v1/fleet``, ``rest`` the REST API, below ``/api/v1``. No answer repeats
    any part of its request.
    """

    def current() -> Project:
        return project() if callable(project) else project

    async def servers(_: Request) -> Response:
        return _json(catalogue(current(), snapshot()))

    async def versions(request: Request) -> Response:
        entries = _named(current(), snapshot(), request.path_params["name"])
        return _json(_list(entries)) if entries else _not_found("Server not found")

    async def version(request: Request) -> Response:
        entries = _named(current(), snapshot(), request.path_params["name"])
        if not entries:
            return _not_found("Server not found")
        if request.path_params["version"] not in ("latest", entries[0]["server"]["version"]):
            return _not_found("Server has no such version")
        return _json(entries[0])

    async def elsewhere(request: Request, problem: Exception) -> Response:
        if request.method in ("GET", "HEAD"):
            found = await asyncio.to_thread(icon_at, current(), request.scope["path"])
            if found is not None:
                return found
        return _nothing_here(request, problem)

    return Starlette(
        routes=[
            Route(WELL_KNOWN, servers),
            Route(SERVERS, servers),
            # A name holds a slash: encoded as %2F it arrives here decoded.
            Route(f"{SERVERS}/{{name:path}}/versions", versions),
            Route(f"{SERVERS}/{{name:path}}/versions/{{version}}", version),
            Route(CATALOG_PATH, page(lambda: ai_catalog(current(), snapshot()), CATALOG_TYPE)),
            *(
                Route(path, status)
                for path, status in status_pages(
                    snapshot, root=current().root, providers=providers, metrics=metrics, shares=shares
                ).items()
            ),
            # Without a control API, the REST API must not answer in its place.
            Mount(BASE, control if control is not None else _not_found("Not found")),
            *([Mount(API, rest)] if rest is not None else []),
        ],
        exception_handlers={404: elsewhere},
    )


def catalogue(project: Project, fleet: FleetSnapshot) -> dict[str, Any]:
    """Return the registry's document: an entry for each agent of the fleet that has not been stopped.

    Its ``metadata`` name the replica that answers.
    """
    listed = _list([_entry(project, fleet, agent) for agent in shown_agents(fleet)])
    listed["metadata"] |= replica_of(fleet)
    return listed


def _named(project: Project, fleet: FleetSnapshot, name: str) -> list[dict[str, Any]]:
    """Return the entry of that published name, in a list; empty if there is none."""
    shown = shown_agents(fleet)
    return [_entry(project, fleet, agent) for agent in shown if published_name(project, agent) == name]


def _list(entries: list[dict[str, Any]]) -> dict[str, Any]:
    return {"servers": entries, "metadata": {"count": len(entries)}}


def _entry(project: Project, fleet: FleetSnapshot, agent: AgentSnapshot) -> dict[str, Any]:
    config = project.agents.get(agent.name)
    server: dict[str, Any] = {"$schema": SCHEMA, **identity(project, agent)}
    published: dict[str, Any] = {}
    if capabilities := _capabilities(project, config, agent):
        server["capabilities"] = published["pallas"] = capabilities
    # Next to the capabilities, not among them: clients compare the two objects.
    leaving = fleet.state in (FleetState.DRAINING, FleetState.STOPPING)
    published["state"] = FleetState.DRAINING.value if leaving else agent.state.value
    published["status"] = "unavailable" if leaving else agent.availability
    published["kind"] = agent.kind
    if agent.capabilities:
        published["agentCapabilities"] = list(agent.capabilities)
    server["_meta"] = {PUBLISHER: published}
    since = max(agent.since, fleet.since) if leaving else agent.since
    official = {"status": "active", "updatedAt": timestamp(since), "isLatest": True}
    return {"server": server, "_meta": {OFFICIAL: official}}


def _capabilities(project: Project, config: AgentConfig | None, agent: AgentSnapshot) -> Mapping[str, Any]:
    configured: Capabilities | None = config.model_capabilities if config else project.capabilities
    if configured is None:
        return {}
    return {
        "model": agent.model or project.model,
        "vision": configured.vision,
        "context_window": configured.context_window,
        "max_output_tokens": configured.max_output_tokens,
    }


def _json(body: Mapping[str, Any], status: int = 200) -> Response:
    text = json.dumps(body, ensure_ascii=False)
    headers = {"cache-control": "no-cache", "x-content-type-options": "nosniff"}
    return Response(text, status, headers, media_type="application/json")


def _nothing_here(request: Request, _: Exception) -> Response:
    """Answer 404; below the API as a Fault, for paths that a mount does not match, such as those with a
    line break."""
    if request.scope["path"].startswith(f"{API}/"):
        fault = not_found(f"there is nothing under this path; GET {API}/openapi.json lists all")
        return _json(fault.to_body(), 404)
    return _not_found("Not found")


def _not_found(error: str) -> Response:
    return _json({"error": error}, 404)
