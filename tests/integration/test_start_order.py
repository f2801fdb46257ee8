"""What callers see of a fleet while it starts: the registry first, then the providers are asked."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from support.fake_downstreams import FakeDownstream, serving
from support.live import write_project
from support.served import Served, served

WELL_KNOWN = "/.well-known/mcp/server.json"
PUBLISHER = "io.modelcontextprotocol.registry/publisher-provided"


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
