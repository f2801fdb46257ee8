"""The registry: the fleet's catalogue over plain HTTP, with liveness, readiness and metrics beside it."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urljoin, urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pallas.config.models import AgentConfig, Capabilities, Icon, Project
from pallas.model import AgentSnapshot, AgentState, FleetSnapshot, FleetState
from pallas.preflight import ProviderReport
from pallas.text import one_line

from .health import timestamp
from .metrics import CONTENT_TYPE, Metrics

WELL_KNOWN: Final = "/.well-known/mcp/server.json"
SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
OFFICIAL: Final = "io.modelcontextprotocol.registry/official"
PUBLISHER: Final = "io.modelcontextprotocol.registry/publisher-provided"

_MAX_TEXT: Final = 100
_MAX_URL: Final = 255
_READINESS: Final = {
    FleetState.RUNNING: "ready",
    FleetState.STARTING: "starting",
    FleetState.FAILED: "failed",
}


def registry_app(
    project: Project | Callable[[], Project],
    snapshot: Callable[[], FleetSnapshot],
    *,
    providers: Callable[[], Sequence[ProviderReport]],
    metrics: Metrics,
) -> Starlette:
    """The application of the registry's port (SPEC PI-1 to PI-6, PR-23); put a ``HostOriginGuard`` before it.

    ``GET`` of the well-known path and of ``/v0.1/servers`` gives the catalogue, made anew from the project
    and the snapshot each time; ``/healthz`` says that it lives and what the provider checks found,
    ``/readyz`` is 503 unless the fleet runs, ``/metrics`` is for Prometheus. Nothing of a request is
    repeated in an answer.
    """

    async def servers(_: Request) -> Response:
        return _json(catalogue(project() if callable(project) else project, snapshot()))

    async def healthz(_: Request) -> Response:
        return _json({"status": "ok", "providers": [_report(report) for report in providers()]})

    async def readyz(_: Request) -> Response:
        fleet = snapshot()
        ready = fleet.state is FleetState.RUNNING
        states = {agent.name: agent.state.value for agent in fleet.agents}
        body = {"status": _READINESS.get(fleet.state, "draining"), "agents": states}
        return _json(body, 200 if ready else 503)

    async def scrape(_: Request) -> Response:
        return Response(metrics.render(), headers={"content-type": CONTENT_TYPE})

    return Starlette(
        routes=[
            Route(WELL_KNOWN, servers),
            Route("/v0.1/servers", servers),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", scrape),
        ]
    )


def catalogue(project: Project, fleet: FleetSnapshot) -> dict[str, Any]:
    """The registry's document: an entry for each agent of the fleet that has not been stopped."""
    entries = [_entry(project, agent) for agent in fleet.agents if agent.state is not AgentState.STOPPED]
    return {"servers": entries, "metadata": {"count": len(entries)}}


def _entry(project: Project, agent: AgentSnapshot) -> dict[str, Any]:
    config = project.agents.get(agent.name)
    slug = agent.name.replace("_", "-")
    title = one_line(agent.title, _MAX_TEXT) or agent.name
    server: dict[str, Any] = {
        "$schema": SCHEMA,
        "name": f"{project.namespace}/{slug}",
        "title": title,
        "description": one_line(agent.description, _MAX_TEXT) or title,
        "version": project.version,
    }
    if icons := _icons(project, config.icons if config else ()):
        server["icons"] = icons
    server["remotes"] = [{"type": "streamable-http", "url": f"{_origin(project, agent.port)}/mcp"}]
    published: dict[str, Any] = {}
    if capabilities := _capabilities(project, config, agent):
        server["capabilities"] = published["pallas"] = capabilities
    # Beside the capabilities, not among them: clients compare the two objects.
    published["state"] = agent.state.value
    server["_meta"] = {PUBLISHER: published}
    official = {"status": "active", "updatedAt": timestamp(agent.since), "isLatest": True}
    return {"server": server, "_meta": {OFFICIAL: official}}


def _capabilities(project: Project, config: AgentConfig | None, agent: AgentSnapshot) -> Mapping[str, Any]:
    configured: Capabilities | None = config.capabilities if config else project.capabilities
    if configured is None:
        return {}
    return {
        "model": agent.model or project.model,
        "vision": configured.vision,
        "context_window": configured.context_window,
        "max_output_tokens": configured.max_output_tokens,
    }


def _icons(project: Project, icons: Sequence[Icon]) -> list[dict[str, Any]]:
    base = f"{_origin(project, project.registry_port)}/"
    published = []
    for icon in icons:
        src = quote(urljoin(base, icon.src.strip()), safe="%/:?#[]@!$&'()*+,;=~")
        # What a client cannot show, or the schema forbids, is left out rather than passed on.
        if urlsplit(src).scheme in ("http", "https", "data") and len(src) <= _MAX_URL:
            published.append({"src": src} | ({"sizes": list(icon.sizes)} if icon.sizes else {}))
    return published


def _origin(project: Project, port: int) -> str:
    host = f"[{project.host}]" if ":" in project.host and not project.host.startswith("[") else project.host
    return f"http://{host}:{port}"


def _report(report: ProviderReport) -> dict[str, Any]:
    body: dict[str, Any] = {"provider": report.provider, "active": report.active, "ok": report.ok}
    return body | ({"message": report.message} if report.message else {})


def _json(body: Mapping[str, Any], status: int = 200) -> Response:
    text = json.dumps(body, ensure_ascii=False)
    headers = {"cache-control": "no-cache", "x-content-type-options": "nosniff"}
    return Response(text, status, headers, media_type="application/json")
