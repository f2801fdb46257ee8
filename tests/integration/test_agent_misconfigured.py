"""An agent whose entry in agents.yaml is wrong answers CONFIG, on every way in."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from support.bridged import kind_of, refused
from support.live import ECHO, IN_A_FILE, MODERN_FIRST, client, module_fleet, write_project

from pallas.cli.code_check import read_code
from pallas.fleet.fleet import Fleet

TYPO = """
from fast_agent import FastAgent

fast = FastAgent("typo")


@fast.agent(name="typo", instruction="x", servers=["echo"], tools={"ehco": ["*"]})
async def main() -> None: ...
"""
CODE = """
class Idle:
    id = "idle"

idle = Idle()
"""

pytestmark = pytest.mark.asyncio(loop_scope="module")


@module_fleet(database=IN_A_FILE)
def fleet(folder: Path) -> Path:
    keys: dict[str, dict[str, Any]] = {
        "idle": {"module": None, "kind": "handler", "handler": "things:idle"},
        "absent": {"module": None, "kind": "worker", "command": ["no-such-program-here"]},
        "crashes": {
            "module": None,
            "kind": "worker",
            "command": ["python", "-c", "raise SystemExit('no licence')"],
            "restart": {"policy": "never"},
        },
    }
    agents = {**dict.fromkeys(keys), "typo": TYPO}
    return write_project(folder, agents, keys=keys, config=ECHO, files={"things.py": CODE})


@pytest.mark.parametrize("era", MODERN_FIRST)
@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("idle", "has neither prompt nor stream", ("CONFIG", -32004, False)),
        ("absent", "no such program", ("CONFIG", -32004, False)),
        (
            "typo",
            "agents.typo.tools: filters server ehco, which is not among its servers",
            ("CONFIG", -32004, False),
        ),
        ("crashes", "its worker ended with exit status 1", ("UPSTREAM", -32002, False)),
    ],
)
async def test_a_mistake_of_an_entry_is_of_type_config_for_its_callers(
    fleet: Fleet, name: str, text: str, kind: tuple[str, int, bool], era: str
) -> None:
    # DR-26
    async with client(fleet, name, era=era) as direct:
        result = await direct.call_tool("send_message", {"message": "hi"})
        assert result.is_error
        body = json.loads(result.content[0].text)  # type: ignore[union-attr]
    bodies = [body]
    async with Client(f"http://127.0.0.1:{fleet.project.registry_port}/mcp", mode=era) as bridge:
        bodies.append(await refused(bridge, "sessions_create", agentId=name))
        bodies.append(await refused(bridge, "tasks_delegate", agentId=name, prompt="hi"))
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        url = f"http://127.0.0.1:{fleet.project.registry_port}/api/v1/agents/{name}/chat"
        response = await http.post(url, json={"message": "hi"})
    assert response.status_code == 503
    bodies.append(response.json())
    assert [kind_of(body) for body in bodies] == [kind] * 4, bodies
    assert all(text in body["error"] for body in bodies)
    assert not any("no licence" in body["error"] for body in bodies)


async def test_the_fleet_says_of_a_typo_what_the_check_says(fleet: Fleet) -> None:
    (mistake,) = read_code(fleet.project)
    shown = next(each.health for each in fleet.snapshot().agents if each.name == "typo")
    assert str(mistake).startswith("agents/typo.py:7: ")
    assert (shown.status, shown.message) == ("error", str(mistake))
