"""What a server offers: all pages of its lists, and what of them could not be used."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mcp import Client, MCPError
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND, Prompt, Resource, ResourceTemplate, Tool

from pallas.model.redaction import redact_text
from pallas.safe_text import one_line

from .result_fit import Kind, LeftOut, as_json

MAX_PAGES: Final = 100
"""Of one list."""
MAX_ITEMS: Final = 10_000
"""Of all pages of one list."""
MAX_SIZE: Final = 8 * 1024 * 1024
"""Characters as JSON of all pages of one list."""


@dataclass(frozen=True, slots=True)
class Offer:
    """``left_out`` names what the server listed and cannot be used, with the reason."""

    tools: tuple[Tool, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    instructions: str | None = None
    version: str = ""
    """Of the protocol."""
    left_out: tuple[LeftOut, ...] = ()
    announces_tools: bool = False
    """Whether the server says that it has tools."""
    has_resources: bool = False
    """Whether it has resources or templates; it is asked only if it has neither tools nor prompts."""
    name: str = ""
    """That the server gives itself."""
    release: str = ""
    """Its own version."""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    """As in MCP."""


async def offer_of(client: Client, found: list[LeftOut]) -> Offer:
    """List the tools and prompts; ``found`` has and gets what cannot be used. Raises the SDK's errors."""
    can, told = client.server_capabilities, client.server_info
    tools = await _listed(client.list_tools, "tools", "tool", found, is_announced=can.tools is not None)
    prompts: Sequence[Any] = ()
    if can.prompts is not None:
        prompts = await _listed(client.list_prompts, "prompts", "prompt", found, is_announced=True)
    return Offer(
        tuple(tools),
        tuple(prompts),
        client.instructions,
        client.protocol_version,
        tuple(found),
        announces_tools=can.tools is not None,
        has_resources=not tools
        and not prompts
        and can.resources is not None
        and await _has_resources(client),
        name=told.name if told is not None else "",
        release=told.version if told is not None else "",
        capabilities=can.model_dump(mode="json", by_alias=True, exclude_none=True),
    )


def each_name_once(offer: Offer) -> Offer:
    """Return an offer with the first of several tools, or prompts, of one name; the others are left out."""
    found = list(offer.left_out)
    tools = _firsts(offer.tools, "tool", found)
    prompts = _firsts(offer.prompts, "prompt", found)
    if len(found) == len(offer.left_out):
        return offer
    return replace(offer, tools=tools, prompts=prompts, left_out=tuple(found))


def _firsts(items: Sequence[Any], kind: Kind, found: list[LeftOut]) -> tuple[Any, ...]:
    kept: dict[str, Any] = {}
    again = [item.name for item in items if kept.setdefault(item.name, item) is not item]
    why = f"another {kind} before it has this name"
    found += [LeftOut(kind, one_line(name, 100), why) for name in again]
    return tuple(kept.values())


async def resources_of(client: Client, found: list[LeftOut] | None = None) -> tuple[Resource, ...]:
    """List the resources; ``found`` gets what is wrong with the list. Raises the SDK's errors."""
    notes = found if found is not None else []
    return tuple(await all_pages(client.list_resources, "resources", notes))


async def templates_of(client: Client) -> tuple[ResourceTemplate, ...]:
    """List the templates of resources. Raises the SDK's errors."""
    return tuple(await all_pages(client.list_resource_templates, "resource_templates", []))


async def _has_resources(client: Client) -> bool:
    for listed in (resources_of, templates_of):
        with suppress(MCPError):
            if await listed(client):
                return True
    return False


async def _listed(
    fetch: Callable[..., Awaitable[Any]], key: str, kind: Kind, found: list[LeftOut], *, is_announced: bool
) -> list[Any]:
    """All of one list; a list that the server refuses is empty, and a finding if it was announced."""
    try:
        return await all_pages(fetch, key, found)
    except MCPError as error:
        if kind == "tool" and not is_announced and error.code == METHOD_NOT_FOUND:
            return []
        if (error.code < 0 and kind == "prompt") or error.code == METHOD_NOT_FOUND:
            why = f"{key}/list failed: {one_line(redact_text(error.message), 200)}"
            found.append(LeftOut(kind, f"all {key}", why))
            return []
        raise


async def all_pages(fetch: Callable[..., Awaitable[Any]], key: str, found: list[LeftOut]) -> list[Any]:
    """The items of all pages of a list, within the limits above. Raises the SDK's errors.

    ``found`` gets, first of all, what is wrong with the list; that has no ``part`` if items are missing.
    """
    items: list[Any] = []
    names: set[str] = set()
    seen: set[str] = set()
    cursor: str | None = None
    size = 0
    for _ in range(MAX_PAGES):
        try:
            page = await fetch(cursor=cursor)
        except MCPError as error:
            if cursor is None or error.code != INVALID_PARAMS:
                raise
            said = one_line(redact_text(error.message), 200)
            why = f"its cursor is refused: {said}; what arrived before is used"
            found.insert(0, LeftOut("result", key, why))
            return items
        listed = list(getattr(page, key))
        own = {str(getattr(item, "uri", None) or item.name) for item in listed}
        # Many servers say by an empty cursor that there is no other page, and answer it with the first one.
        if cursor == "" and own <= names:
            return items
        names |= own
        for item in listed:
            size += len(as_json(item.model_dump(mode="json", by_alias=True, exclude_none=True)))
            if len(items) == MAX_ITEMS or size > MAX_SIZE:
                most = f"{MAX_ITEMS:,} items" if size <= MAX_SIZE else f"{MAX_SIZE:,} characters"
                found.insert(0, _cut(key, most, len(items)))
                return items
            items.append(item)
        cursor = page.next_cursor
        if cursor is None:
            return items
        if cursor in seen:
            why = "its pages do not end: a cursor is repeated; what arrived before is used"
            found.insert(0, LeftOut("result", key, why, "nextCursor"))
            return items
        seen.add(cursor)
    found.insert(0, _cut(key, f"{MAX_PAGES} pages", len(items)))
    return items


def _cut(key: str, most: str, used: int) -> LeftOut:
    """The finding for a list that is too long."""
    return LeftOut("result", key, f"it has more than {most}; only the first {used:,} {_words(key)} are used")


def _words(key: str) -> str:
    return key.replace("_", " ")
