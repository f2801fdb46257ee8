"""What the client of an MCP request can do, in both protocol versions."""

from collections.abc import Mapping
from typing import Any, Final

from fastmcp.server.dependencies import FastMCPRequestContext
from mcp_types import CLIENT_CAPABILITIES_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

MODERN: Final = frozenset(MODERN_PROTOCOL_VERSIONS)


def is_modern(context: FastMCPRequestContext | None) -> bool:
    """Whether the request is one of the protocol without sessions."""
    return context is not None and context.protocol_version in MODERN


def declared(context: FastMCPRequestContext | None) -> Mapping[str, Any]:
    """Return what the client declared on this request; empty in the versions with a handshake."""
    if context is None or not is_modern(context):
        return {}
    found = (context.meta or {}).get(CLIENT_CAPABILITIES_META_KEY)
    return found if isinstance(found, Mapping) else {}


def takes_forms(context: FastMCPRequestContext | None) -> bool:
    """Whether the client can show its user a form (elicitation), as it declared in its own way."""
    if context is None:
        return False
    if is_modern(context):
        modes = declared(context).get("elicitation")
    else:
        params = context.session.client_params
        found = params.capabilities.elicitation if params is not None else None
        modes = found.model_dump(exclude_none=True) if found is not None else None
    # Without a mode it is the only one there was at first: forms.
    return isinstance(modes, Mapping) and (not modes or "form" in modes)
