"""MCP clients of a fleet's port: the virtual servers that its agents are."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from pallas.fleet.fleet import Fleet


@asynccontextmanager
async def virtual(
    fleet: Fleet, path: str, *, era: str, bearer: str | None = None, **more: Any
) -> AsyncIterator[Client]:
    """A real MCP client of what is at ``path`` of the fleet's port; ``more`` goes to the client."""
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    async with (
        create_mcp_http_client(headers=headers) as http,
        Client(
            streamable_http_client(f"{fleet.ports.origin}{path}", http_client=http), mode=era, **more
        ) as connected,
    ):
        yield connected


def words(result: Any) -> list[str]:
    """The texts of a tool's result; fails the test when it is an error."""
    found = [getattr(block, "text", "") for block in result.content]
    assert not result.is_error, found
    return found
