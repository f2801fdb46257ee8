"""The version that an agent's MCP server says of itself is that of the registry."""

from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from support.live import ERAS, client
from support.reloading import module, saying, watched
from support.virtual import virtual


async def _versions(fleet: Any) -> set[str]:
    """What the registry and the servers of each agent say, in both eras."""
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        listed = (await http.get(fleet.registry_url)).json()["servers"]
    found = {each["server"]["version"] for each in listed}
    for era in ERAS:
        async with client(fleet, "one", era=era) as direct:
            found.add(await _version(direct))
        async with virtual(fleet, "/virtual/agent-one/mcp", era=era) as tool:
            found.add(await _version(tool))
    return found


async def _version(connected: Client) -> str:
    """Of the handshake; the newer protocol has it with each result."""
    listed = await connected.list_tools()
    if connected.server_info is not None:
        return str(connected.server_info.version)
    said: Any = (listed.meta or {})["io.modelcontextprotocol/serverInfo"]
    return str(said["version"])


@pytest.mark.slow
async def test_servers_have_the_version_of_the_registry_also_after_a_reload(tmp_path: Path) -> None:
    # PI-3
    agents = {"one": module("one", "Apple.")}
    async with watched(tmp_path, agents, saying("Apple."), database="memory") as saves:
        assert await _versions(saves.fleet) == {"1.0.0"}

        def release(content: dict[str, Any]) -> None:
            content["version"] = "3.1.4"

        saves.edit("agents.yaml", release)
        await saves.settled()
        assert await _versions(saves.fleet) == {"3.1.4"}
