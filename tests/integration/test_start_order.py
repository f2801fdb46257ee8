"""What callers see of a fleet while it starts: the registry first, then the providers are asked."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from support.fake_downstreams import FakeDownstream, serving
from support.live import agent_module, write_project
from support.ports import free_ports
from support.served import Served, served

from pallas.config import AgentConfig, load_project
from pallas.fleet import agent_factory
from pallas.fleet.fleet import Fleet
from pallas.model import AgentState

WELL_KNOWN = "/.well-known/mcp/server.json"
PUBLISHER = "io.modelcontextprotocol.registry/publisher-provided"


@pytest.mark.slow
async def test_the_registry_answers_first_and_lists_agents_as_starting(tmp_path: Path) -> None:
    # PR-5, PI-1
    running: list[Served] = []
    during: list[httpx2.Response] = []
    answered = asyncio.Event()

    async def provider(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
        if not during:
            during.extend([await running[0].get(WELL_KNOWN), await running[0].get("/readyz")])
            answered.set()
        return JSONResponse({"object": "list", "data": [{"id": "good"}]})

    async with serving(FakeDownstream(provider)) as origin:
        root = write_project(
            tmp_path / "p",
            {"one": None, "two": None},
            keys={"two": {"depends_on": ["one"]}},
            config={
                "default_model": "openai.good",
                "openai": {"api_key": "sk-of-the-test", "base_url": f"{origin}/v1"},
            },
        )
        with served(root, XDG_STATE_HOME=str(tmp_path / "state")) as fleet:
            running.append(fleet)
            await asyncio.wait_for(answered.wait(), 60)
            catalogue, readyz = during
            states = _states(catalogue)
            assert set(states) == {"one", "two"}
            assert set(states.values()) <= {"waiting", "importing", "connecting"}
            assert (readyz.status_code, readyz.json()["status"]) == (503, "starting")
            await fleet.says("two: ready")
            ready = {"one": "ready", "two": "ready"}
            assert _states(await fleet.get(WELL_KNOWN)) == ready


def _states(catalogue: httpx2.Response) -> dict[str, str]:
    assert catalogue.status_code == 200, catalogue.text
    servers = [entry["server"] for entry in catalogue.json()["servers"]]
    return {each["name"].rpartition("/")[2]: each["_meta"][PUBLISHER]["state"] for each in servers}


# A server that answers once the fleet has imported what its agents need.
LATE = """
import http.server
import pathlib
import sys
import time

imported = pathlib.Path(__file__).with_name("imported")
while not imported.exists():
    time.sleep(0.01)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args):
        pass


http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


async def test_programs_start_while_the_fleet_imports_and_before_code_of_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = free_ports(1)
    module = agent_module("one") + "\nimport urllib.request\n"
    module += f"urllib.request.urlopen('http://127.0.0.1:{port}/', timeout=60)\n"  # is there by now
    server = {"command": f"python late.py {port}", "url": f"http://127.0.0.1:{port}/", "start_timeout": 60}
    root = write_project(tmp_path, {"one": module}, top={"servers": {"late": server}})
    (root / "late.py").write_text(LATE)
    own = agent_factory._imported  # in this process it may take long: more is imported here than in a fleet

    def imported(config: AgentConfig, *more: Any) -> Any:
        found = own(config, *more)
        (root / "imported").touch()
        return found

    monkeypatch.setattr(agent_factory, "_imported", imported)
    fleet = Fleet(load_project(root), dev=True)
    try:
        await fleet.start()
        (program,) = fleet.snapshot().servers
        assert (program.state, program.crashes, program.restarts) == (AgentState.READY, 0, 0)
        assert [agent.state for agent in fleet.agents] == [AgentState.READY]
    finally:
        await fleet.stop()
