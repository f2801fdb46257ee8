"""Server Card of each agent and AI Catalog of the fleet: discovery as SEP-2127 has it, when asked for."""

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

# Public by design, so any page may read them; who may ask at all is the guard's decision, before this.
_HEADERS: Final = {
    "access-control-allow-origin": "*",
    "access-control-allow-methods": "GET",
    "access-control-expose-headers": "ETag",
    "cache-control": "public, max-age=60",
    "x-content-type-options": "nosniff",
}

Answer = Callable[[Request], Awaitable[Response]]


def server_card(project: Project, agent: AgentSnapshot) -> dict[str, Any] | None:
    """The agent's Server Card: who it is and how to connect, the same facts as in the registry.

    No tools, no state, no model: clients ask the server itself for these. None unless ``server_cards``.
    """
    if not project.server_cards:
        return None
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

    versions = sorted({*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS})
    card = {"$schema": CARD_SCHEMA, **identity(project, agent)}
    card["remotes"] = [remote | {"supportedProtocolVersions": versions} for remote in card["remotes"]]
    return card


def ai_catalog(project: Project, fleet: FleetSnapshot) -> dict[str, Any] | None:
    """The fleet's AI Catalog: for each published agent, where its card is. None unless ``server_cards``."""
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
    """An endpoint that serves ``document()`` with an ETag: 304 when the caller has it, 404 when it's None."""

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
