"""The tools that a warm instance found, read from fast-agent's state without another request.

``tests/contract/test_tools_seam.py`` fails when that state changes.
"""

import asyncio
from collections.abc import Container, Iterable
from typing import Any, Final

from pallas.downstreams.offer import all_pages
from pallas.model import ServerDetail, ToolDetail
from pallas.model.redaction import redact_text
from pallas.model.tool_rules import hints_of
from pallas.safe_text import one_line
from pallas.toolbox.plain_json import json_text, text_of
from pallas.toolbox.server_connection import connected
from pallas.toolbox.server_endpoint import ServerEndpoint

from .downstreams_seam import downstreams_of

MAX_TOOLS: Final = 500
# Limits in characters: a schema, a description, and all schemas of a server.
MAX_SCHEMA: Final = 64 * 1024
MAX_DESCRIPTION: Final = 16 * 1024
_MAX_ALL: Final = 8 * 1024 * 1024


async def list_tools(
    endpoint: ServerEndpoint, bearer: str | None = None
) -> tuple[tuple[ToolDetail, ...], bool]:
    """Return the tools of a server and whether there are more than ``MAX_TOOLS``. Raises Fault; has no
    deadline."""
    async with connected(endpoint, bearer) as client:
        tools = await all_pages(client.list_tools, "tools", [])
    return await asyncio.to_thread(details_of, tools[:MAX_TOOLS]), len(tools) > MAX_TOOLS


def details_of(tools: list[Any]) -> tuple[ToolDetail, ...]:
    """Return tools as values: sanitised, secrets masked, bounded. Blocks."""
    left = _MAX_ALL
    details: list[ToolDetail] = []
    for tool in tools:
        hints = hints_of(getattr(tool, "annotations", None))
        given, gives = (_schema(each, left) for each in (tool.input_schema or {}, tool.output_schema))
        left -= len(given) + len(gives)
        details.append(
            ToolDetail(
                name=one_line(tool.name, 200),
                title=one_line(redact_text(tool.title or ""), 200),
                description=text_of(tool.description or "", MAX_DESCRIPTION),
                input_schema=given,
                output_schema=gives,
                hints=None if hints is None else tuple(hints),
            )
        )
    return tuple(details)


def _schema(schema: Any, left: int) -> str:
    return "" if schema is None else json_text(schema, min(MAX_SCHEMA, max(200, left)), names=False)


def tools_of(agents: Iterable[Any], servers: Iterable[str], away: Container[str]) -> tuple[ServerDetail, ...]:
    """Return the tools of each of ``servers`` as these agents found them; functions of their code have an
    empty name.

    Servers that are ``away`` have a problem instead. Takes a while if there are many tools.
    """
    found: dict[str, dict[str, Any]] = {name: {} for name in ("", *servers)}
    for agent in agents:
        downstreams = downstreams_of(agent)
        for each in list(downstreams.tools.values()) if downstreams is not None else ():
            found.setdefault(each.server_name, {})[each.tool.name] = each.tool
        for tool in list(getattr(agent, "_tool_schemas", ())):
            found[""][tool.name] = tool
    return tuple(
        ServerDetail(name, problem="it could not be reached")
        if name in away and not tools
        else ServerDetail(name, details_of(list(tools.values())[:MAX_TOOLS]))
        for name, tools in found.items()
    )
