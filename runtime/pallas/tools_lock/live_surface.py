"""Asks an MCP server for its surface: instructions, tools, prompts and resources."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from mcp import Client
from mcp.shared.exceptions import MCPError

from pallas.downstreams.offer import all_pages
from pallas.downstreams.result_fit import LeftOut
from pallas.safe_text import one_line
from pallas.toolbox.server_connection import connected
from pallas.toolbox.server_endpoint import ServerEndpoint

from .surface import Surface, masked, prompt_items, resource_items, template_items, tool_items

MAX_ITEMS: Final = 2_000
"""Of one list; a server with more cannot be locked, and the rest is not shown."""
MAX_LEFT_OUT: Final = 50
MAX_SURFACE: Final = 8 * 1024 * 1024
"""Bytes of a surface as JSON; a larger one cannot be locked."""


@dataclass(frozen=True, slots=True)
class LiveServer:
    """A server as it was found. ``tools`` are those of the protocol, ``problem`` says what is left out."""

    surface: Surface
    tools: tuple[Any, ...] = ()
    problem: str = ""
    left_out: tuple[str, ...] = ()
    """What it lists and cannot be used, with reasons, one line each, at most ``MAX_LEFT_OUT``."""
    resources: tuple[Any, ...] = ()
    """Those of the protocol."""
    subscribes: bool = False
    """Whether it takes subscriptions to them."""


async def look_at(endpoint: ServerEndpoint, bearer: str | None = None) -> LiveServer:
    """Connect to a server and return all that it lists. Raises Fault; has no deadline."""
    left_out: list[LeftOut] = []
    async with connected(endpoint, bearer, left_out) as client:
        live = await read_surface(client, left_out)
    texts = dict.fromkeys(one_line(str(each), 300) for each in left_out)
    return replace(live, left_out=tuple(texts)[:MAX_LEFT_OUT])


async def read_surface(client: Client, left_out: list[LeftOut] | None = None) -> LiveServer:
    """Return all that a connected server lists; what it does not offer is empty. Raises errors of the SDK.

    ``left_out`` gets what is wrong with its lists.
    """
    found: list[LeftOut] = []
    has_tools = client.server_capabilities.tools is not None
    lists = {
        "tools": await (all_pages if has_tools else _listed)(client.list_tools, "tools", found),
        "prompts": await _listed(client.list_prompts, "prompts", found),
        "resources": await _listed(client.list_resources, "resources", found),
        "resource_templates": await _listed(client.list_resource_templates, "resource_templates", found),
    }
    read = {key: items[:MAX_ITEMS] for key, items in lists.items()}
    surface, is_large = await asyncio.to_thread(_surface, client.instructions or "", *read.values())
    if left_out is not None:
        left_out[:0] = found
    offered = client.server_capabilities.resources
    return LiveServer(
        surface,
        tuple(read["tools"]),
        _problem(found, lists, is_large=is_large),
        resources=tuple(read["resources"]),
        subscribes=offered is not None and bool(offered.subscribe),
    )


def _surface(
    instructions: str, tools: list[Any], prompts: list[Any], resources: list[Any], templates: list[Any]
) -> tuple[Surface, bool]:
    """The surface, and whether it is larger than ``MAX_SURFACE``."""
    surface = Surface(
        masked(instructions),
        tool_items(tools),
        prompt_items(prompts),
        resource_items(resources),
        template_items(templates),
    )
    return surface, surface.size > MAX_SURFACE


async def _listed(fetch: Callable[..., Any], key: str, found: list[LeftOut]) -> list[Any]:
    """A list that a server need not have: one that does not know the method has none."""
    try:
        return await all_pages(fetch, key, found)
    except MCPError:
        return []


def _problem(found: Iterable[LeftOut], lists: Mapping[str, list[Any]], *, is_large: bool) -> str:
    """Why the server cannot be locked, as the end of a sentence; empty if it can."""
    if is_large:
        return f"its texts and schemas have more than {MAX_SURFACE // 2**20} MiB"
    if names := ", ".join(key.replace("_", " ") for key, items in lists.items() if len(items) > MAX_ITEMS):
        return f"it has more than {MAX_ITEMS:,} {names}"
    return next((f"its list of {each.name}: {each.why}" for each in found if not each.part), "")
