"""The Server Card of each agent and the AI Catalog of the fleet: discovery by SEP-2127, if it is enabled."""

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pallas.config.models import Project
from pallas.model import AgentSnapshot, FleetSnapshot

from .published_agent import identity, published_name, resource_url, shown_agents

CARD_PATH: Final = "/mcp/server-card"
CARD_TYPE: Final = "application/mcp-server-card+json"
CARD_SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
CATALOG_PATH: Final = "/.well-known/ai-catalog.json"
CATALOG_TYPE: Final = "application/ai-catalog+json"
METHODS: Final = ("GET", "HEAD")

# Public by design, so any page may read them; the host guard in front decides which requests come this far.
_HEADERS: Final = {
    "access-control-allow-origin": "*",
    "access-control-allow-methods": "GET",
    "access-control-expose-headers": "ETag",
    "cache-control": "public, max-age=60",
    "x-content-type-options": "nosniff",
}

Answer = Callable[[Request], Awaitable[Response]]


def server_card(project: Project, agent: AgentSnapshot) -> dict[str, Any] | None:
    """Return the agent's Server Card: its identity and how to connect, the same facts as in the registry.

    Has no tools, state or model: clients get these from the server itself. None unless ``server_cards`` is
    set.
    """
    if not project.server_cards:
        return None
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

    versions = sorted({*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS})
    card = {"$schema": CARD_SCHEMA, **identity(project, agent)}
    card["remotes"] = [remote | {"supportedProtocolVersions": versions} for remote in card["remotes"]]
    return card


def ai_catalog(project: Project, fleet: FleetSnapshot) -> dict[str, Any] | None:
    """Return the fleet's AI Catalog: the URL of each published agent's card. None unless ``server_cards``
    is set."""
    if not project.server_cards:
        return None
    # The urn names the publisher by its domain, the registry by the domain's parts in reverse.
    publisher = ".".join(reversed(project.namespace.split(".")))
    entries = []
    for agent in shown_agents(fleet):
        facts = identity(project, agent)
        slug = published_name(project, agent).partition("/")[2]
        entries.append(
            {
                "identifier": f"urn:air:{publisher}:mcp:{slug}",
                "displayName": facts["title"],
                "description": facts["description"],
                "type": CARD_TYPE,
                "url": f"{resource_url(project, agent)}/server-card",
            }
        )
    return {"specVersion": "1.0", "entries": entries}


def page(document: Callable[[], Mapping[str, Any] | None], media_type: str) -> Answer:
    """Return an endpoint that serves ``document()`` with an ETag: 304 if the caller has it, 404 if it is
    None."""

    async def answer(request: Request) -> Response:
        if (found := document()) is None:
            return JSONResponse({"error": "Not found"}, 404)
        body = json.dumps(found, ensure_ascii=False).encode()
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        headers = {**_HEADERS, "etag": tag}
        if _has(request.headers.get("if-none-match", ""), tag):
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers | {"content-type": media_type})

    return answer


def _has(if_none_match: str, tag: str) -> bool:
    named = {each.strip().removeprefix("W/") for each in if_none_match.split(",")}
    return "*" in named or tag in named
