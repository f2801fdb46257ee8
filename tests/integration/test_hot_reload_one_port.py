"""Agents that come, go and are edited behind the one port of their fleet."""

from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from support.live import ERAS, ask
from support.ports import free_ports
from support.reloading import Saves, module, saying, watched
from support.waiting import until

from pallas.model import AgentState

SCRIPT = saying("Apple.", "Birch.", "Cedar.")
ALL = ("one", "two", "due", "own")


class Ingress:
    """The one port of a fleet, from outside."""

    def __init__(self, saves: Saves) -> None:
        self.saves = saves
        self.origin = f"http://127.0.0.1:{saves.fleet.project.port}"

    async def get(self, path: str) -> httpx2.Response:
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            return await http.get(self.origin + path)

    async def says(self, name: str, era: str) -> str:
        async with Client(f"{self.origin}/agents/{name}/mcp", mode=era) as caller:
            return await ask(caller, "hello")

    async def listed(self) -> dict[str, str]:
        """What the registry publishes: paths, or ports, by name."""
        servers = [each["server"] for each in (await self.get("/v0.1/servers")).json()["servers"]]
        return {each["name"].partition("/")[2]: each["remotes"][0]["url"] for each in servers}

    async def edit(self, change: Any, name: str) -> None:
        self.saves.edit("agents.yaml", lambda content: change(content["agents"]))
        await until(
            lambda: (
                (agent := self.saves.fleet.snapshot().agent(name)) is not None
                and agent.state is AgentState.READY
            )
        )


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
async def test_what_is_published_follows_agents_that_come_go_and_change_their_names(  # PI-5
    tmp_path: Path, era: str
) -> None:
    (port, own) = free_ports(2)
    async with watched(
        tmp_path,
        {"one": module("one", "Apple."), "own": module("own", "Apple.")},
        SCRIPT,
        probe=False,
        top={"port": port, "server_cards": True},
        keys={"one": {"port": None}},
        files={"agents/two.py": module("two", "Birch.")},
    ) as saves:
        ingress = Ingress(saves)
        card = "/agents/{}/mcp/server-card"

        async def everywhere() -> set[str]:
            names = set(await ingress.listed())
            cards = {each for each in ALL if (await ingress.get(card.format(each))).is_success}
            ways = {each for each in ALL if (await ingress.get(f"/agents/{each}/mcp")).status_code != 404}
            assert names == cards == ways
            return names

        assert await everywhere() == {"one", "own"}
        await ingress.edit(lambda agents: agents.update(two={"module": "agents.two"}), "two")
        assert await everywhere() == {"one", "own", "two"}
        assert await ingress.says("two", era) == "Birch. 1"
        await ingress.edit(lambda agents: agents.update(due=agents.pop("two")), "due")
        await until(lambda: saves.fleet.kernel.list() == ("one", "own", "due"))
        assert await everywhere() == {"one", "own", "due"}
        assert await ingress.says("due", era) == "Birch. 1"
        # A port of its own beside the one, which it gives up again.
        listed = (await ingress.listed())["due"]
        await ingress.edit(lambda agents: agents["due"].update(port=own), "due")
        await until(lambda: saves.fleet.snapshot().agents[2].port == own)
        assert await ingress.says("due", era) == "Birch. 1"
        async with Client(f"http://127.0.0.1:{own}/mcp", mode=era) as caller:
            assert await ask(caller, "hello") == "Birch. 1"
        saves.edit("agents.yaml", lambda content: content["agents"]["due"].pop("port"))
        await until(lambda: saves.fleet.snapshot().agents[2].port == 0)
        assert (await ingress.listed())["due"] == listed
        assert saves.versions() == {"one": 1, "own": 1, "due": 1}
        saves.edit("agents.yaml", lambda content: content["agents"].pop("due"))
        await until(lambda: saves.fleet.kernel.list() == ("one", "own"))
        assert await everywhere() == {"one", "own"}
        saves.write("agents/one.py", module("one", "Cedar."))
        await until(lambda: saves.versions()["one"] == 2)
        assert await ingress.says("one", era) == "Cedar. 1"
