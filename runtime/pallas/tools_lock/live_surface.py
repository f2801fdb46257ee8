"""Asks an MCP server for its surface: instructions, tools, prompts and resources."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from mcp import Client
from mcp.shared.exceptions import MCPError

from pallas.downstreams.result_fit import LeftOut
from pallas.safe_text import one_line
from pallas.toolbox.server_connection import connected
from pallas.toolbox.server_endpoint import ServerEndpoint

from .surface import Surface, masked, prompt_items, resource_items, template_items, tool_items

MAX_ITEMS: Final = 2_000
"""Things of one list that are read; a server with more cannot be locked."""
_MAX_PAGES: Final = 100
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
        live = await read_surface(client)
    texts = dict.fromkeys(one_line(str(each), 300) for each in left_out)
    return replace(live, left_out=tuple(texts)[:MAX_LEFT_OUT])


async def all_tools(client: Client) -> list[Any]:
    """Return the tools of a connected server as the protocol has them. Raises errors of the SDK."""
    tools, _ = await _pages(client.list_tools, "tools")
    return tools


async def read_surface(client: Client) -> LiveServer:
    """Return all that a connected server lists; what it does not offer is empty. Raises errors of the SDK."""
    has_tools = client.server_capabilities.tools is not None
    tools, more_tools = await (_pages if has_tools else _optional)(client.list_tools, "tools")
    prompts, more_prompts = await _optional(client.list_prompts, "prompts")
    resources, more_resources = await _optional(client.list_resources, "resources")
    templates, more_templates = await _optional(client.list_resource_templates, "resource_templates")
    instructions = client.instructions or ""
    surface, is_large = await asyncio.to_thread(_surface, instructions, tools, prompts, resources, templates)
    longer = {
        "tools": more_tools,
        "prompts": more_prompts,
        "resources": more_resources,
        "resource templates": more_templates,
    }
    names = ", ".join(name for name, more in longer.items() if more)
    problem = f"it has more than {MAX_ITEMS} {names}" if names else ""
    if is_large:
        problem = f"its texts and schemas have more than {MAX_SURFACE // 2**20} MiB"
    offered = client.server_capabilities.resources
    return LiveServer(
        surface,
        tuple(tools),
        problem,
        resources=tuple(resources),
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


async def _optional(list_page: Callable[..., Any], key: str) -> tuple[list[Any], bool]:
    """A list that a server need not have: one that does not know the method has none."""
    try:
        return await _pages(list_page, key)
    except MCPError:
        return [], False


async def _pages(list_page: Callable[..., Any], key: str) -> tuple[list[Any], bool]:
    found: list[Any] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await list_page(cursor=cursor)
        found += getattr(page, key)
        cursor = page.next_cursor
        if len(found) > MAX_ITEMS or not cursor:
            return found[:MAX_ITEMS], len(found) > MAX_ITEMS
    return found, True
