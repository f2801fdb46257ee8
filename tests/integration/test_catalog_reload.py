"""Agents made over the API, beside files that are read anew while the fleet answers."""

import asyncio
import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from support.live import ERAS, ask, client
from support.ports import free_ports
from support.reloading import Saves, module, saying, watched
from support.waiting import until

from pallas.catalog import Catalog
from pallas.cli.resources.fleet_requests import FleetLocation
from pallas.cli.resources.resource_details import describe
from pallas.cli.resources.resource_lists import ListOptions, get
from pallas.model import AgentState

SCRIPT = saying("Apple.", "Birch.", "Cedar.")
DATABASE = "memory"


def catalog_of(saves: Saves) -> Catalog:
    assert saves.fleet.catalog is not None
    return saves.fleet.catalog


async def said(saves: Saves, name: str) -> set[str]:
    """What an agent answers a caller of either era."""
    found = set()
    for era in ERAS:
        async with client(saves.fleet, name, era=era) as connected:
            found.add(await ask(connected, "hi"))
    return found


async def listed(saves: Saves, limit: int = 1) -> list[dict[str, Any]]:
    """Agents named ``both`` as the REST API lists them, page by page."""
    found, cursor = [], ""
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        while True:
            url = f"http://127.0.0.1:{saves.fleet.project.registry_port}/api/v1/agents"
            page = (await http.get(url, params={"limit": limit, "cursor": cursor})).json()
            found += [each for each in page["items"] if each["name"] == "both"]
            if not (cursor := page["next"] or ""):
                return found


async def printed(saves: Saves, output: str, *described: str) -> str:
    """What `pallas get agents` prints, or `pallas describe` of the ``described``."""
    origin = f"http://127.0.0.1:{saves.fleet.project.registry_port}"
    out = io.StringIO()

    def called() -> None:
        with redirect_stdout(out):
            place = FleetLocation(saves.root, origin, "")
            if described:
                assert describe(described, place, output) == 0
            else:
                assert get(ListOptions(("agents",), output), place) == 0

    await asyncio.to_thread(called)
    return out.getvalue()


@pytest.mark.slow
async def test_files_that_are_read_anew_leave_them_as_they_are(tmp_path: Path) -> None:
    async with watched(tmp_path, {"one": module("one", "Apple.")}, SCRIPT, database=DATABASE) as saves:
        catalog = catalog_of(saves)
        await catalog.create("agent", "made", {"systemPrompt": "Birch."}, "ann")
        await catalog.create("project", "team", {"servers": ["echo"]}, "ann")
        await catalog.create("agent", "tooled", {"systemPrompt": "Cedar.", "project": "team"}, "ann")

        def describe(content: dict[str, Any]) -> None:
            content["agents"]["one"]["description"] = "Another one."

        assert await saves.concerned(lambda: saves.edit("agents.yaml", describe)) == set()
        assert await saves.after("agents/one.py", module("one", "Cedar.")) == {"one"}
        assert await saves.after("notes.txt", "of nobody") == set()
        saves.fleet.control_fleet("reload")
        await saves.settled()
        assert await said(saves, "made") == {"Birch. 1"} and await said(saves, "one") == {"Cedar. 1"}
        assert {"made", "tooled"} <= saves.fleet.project.agents.keys()
        # What it uses of the files concerns it: a server of the folder's configuration, by name.

        def retime(content: dict[str, Any]) -> None:
            content["mcp"]["servers"]["echo"]["read_timeout_seconds"] = 45

        assert await saves.concerned(lambda: saves.edit("fastagent.config.yaml", retime)) == {"tooled"}
        assert await said(saves, "tooled") == {"Cedar. 1"}
        await catalog.create("agent", "later", {"systemPrompt": "Apple."}, "ann")
        assert await saves.after("agents/one.py", module("one", "Birch.")) == {"one"}
        assert await said(saves, "later") == {"Apple. 1"}


@pytest.mark.slow
async def test_a_file_that_declares_its_name_goes_first_until_it_lets_go(tmp_path: Path) -> None:
    async with watched(tmp_path, {"one": module("one", "Apple.")}, SCRIPT, database=DATABASE) as saves:
        catalog = catalog_of(saves)
        made = await catalog.create("agent", "both", {"systemPrompt": "Birch."}, "ann")
        (port,) = free_ports(1)
        saves.write("agents/both.py", module("both", "Cedar."))

        def declare(content: dict[str, Any]) -> None:
            content["agents"]["both"] = {"module": "agents.both", "port": port}

        saves.edit("agents.yaml", declare)
        await saves.settled()
        # UN-6: a name that is there twice is reported, and one of both has it
        assert await said(saves, "both") == {"Cedar. 1"}
        (agent,) = [each for each in saves.fleet.agents if each.name == "both"]
        assert agent.config.port == port and agent.url.endswith(f":{port}/mcp")
        assert any("declares it now" in notice for notice in saves.notices())
        await until(lambda: catalog._view.rows.agents[0].values["declared"])
        found = await catalog.get("agent", made.id)
        assert found.id == made.id and found.status["shadowed"].startswith("agents.yaml:")
        answers = await catalog.get("agent", "both")
        assert (answers.spec["systemPrompt"], answers.status["shadows"]) == ("Cedar.", "api")
        described = await printed(saves, "text", "agent", "both")
        assert described.index("Cedar.") < described.index("Birch.")
        assert f"Shadowed: {found.status['shadowed']}" in " ".join(described.split())
        both = json.loads(await printed(saves, "json", "agent", "both"))
        assert (both["systemPrompt"], both["shadowedAgent"]["systemPrompt"]) == ("Cedar.", "Birch.")
        assert both["shadowedAgent"]["shadowed"] == found.status["shadowed"] and "threads" in both
        in_project = await catalog.list("agent", project=saves.fleet.project.name)
        assert [each.spec["systemPrompt"] for each in in_project.items if each.name == "both"] == ["Cedar."]
        shown = await listed(saves)
        assert [(each["source"].partition(":")[0], bool(each.get("shadowed"))) for each in shown] == [
            ("agents.yaml", False),
            ("api", True),
        ]
        assert (shown[0]["state"], shown[0]["systemPrompt"], shown[0]["shadows"]) == (
            "ready",
            "Cedar.",
            "api",
        )
        assert shown[1]["shadowed"] == shown[0]["source"]
        table = await printed(saves, "table")
        assert [line.split()[2] for line in table.splitlines() if line.startswith("both")] == [
            "ready",
            "shadowed",
        ]
        assert f"api (shadowed by {shown[0]['source']})" in table
        documents = yaml.safe_load_all(await printed(saves, "yaml"))
        prompts = [each["spec"]["systemPrompt"] for each in documents if each["metadata"]["name"] == "both"]
        assert prompts == ["Birch."]

        def let_go(content: dict[str, Any]) -> None:
            del content["agents"]["both"]

        saves.edit("agents.yaml", let_go)
        await saves.settled()
        assert await said(saves, "both") == {"Birch. 1"}
        (agent,) = [each for each in saves.fleet.agents if each.name == "both"]
        assert agent.state is AgentState.READY and agent.url == made.status["url"].replace(
            "localhost", "127.0.0.1"
        )
        found = await catalog.get("agent", "both")
        assert "shadowed" not in found.status and found.status["url"] == made.status["url"]
        assert found.version == made.version


async def test_defaults_that_were_set_here_outlast_a_reload(tmp_path: Path) -> None:
    async with watched(tmp_path, {"one": module("one", "Apple.")}, SCRIPT, database=DATABASE) as saves:
        catalog = catalog_of(saves)
        await catalog.update("agent", "one", {"defaultParams": {"temperature": 0.4}})
        (agent,) = [each for each in saves.fleet.agents if each.name == "one"]
        assert agent.params.get("temperature") == 0.4

        def describe(content: dict[str, Any]) -> None:
            content["agents"]["one"]["description"] = "Another one."

        saves.edit("agents.yaml", describe)
        await saves.settled()
        assert agent.config.description == "Another one." and agent.params.get("temperature") == 0.4
        saves.fleet.control("one", "restart")
        await until(lambda: agent.snapshot().restarts >= 1 and agent.state is AgentState.READY)
        assert agent.params.get("temperature") == 0.4
