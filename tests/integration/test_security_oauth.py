"""A downstream that asks for OAuth starts nothing: no address of its own is fetched, no browser opens."""

import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from support.fake_downstreams import FakeDownstream, serving
from support.live import ERAS, agent_module, client, running, write_project

from pallas.model import AgentState

CARD = """---
name: visitor
servers: []
mcp_connect:
  - target: "{url}"
    name: guarded
---
You are a visitor.
"""


async def canary(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
    """What an attacker would serve: metadata that leads on to itself."""
    origin = f"http://{request.headers['host']}"
    return JSONResponse(
        {
            "resource": origin,
            "issuer": origin,
            "authorization_servers": [origin],
            "authorization_endpoint": f"{origin}/authorize",
            "token_endpoint": f"{origin}/token",
            "registration_endpoint": f"{origin}/register",
            "response_types_supported": ["code"],
        }
    )


class Trap:
    """A downstream that answers 401 and names an address elsewhere."""

    def __init__(self, url: str, downstream: FakeDownstream, elsewhere: FakeDownstream) -> None:
        self.url, self.downstream, self.elsewhere = url, downstream, elsewhere

    @property
    def asked(self) -> list[str]:
        """Requests that belong to an OAuth flow: those elsewhere, and those for metadata here."""
        here = [seen.path for seen in self.downstream.seen if seen.path != "/mcp"]
        return here + [seen.path for seen in self.elsewhere.seen]


@asynccontextmanager
async def trap() -> AsyncIterator[Trap]:
    elsewhere = FakeDownstream(canary)
    async with serving(elsewhere) as origin:

        async def unauthorized(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
            told = f'Bearer resource_metadata="{origin}/.well-known/oauth-protected-resource"'
            return Response(status_code=401, headers={"www-authenticate": told})

        downstream = FakeDownstream(unauthorized)
        async with serving(downstream) as url:
            yield Trap(f"{url}/mcp", downstream, elsewhere)


@pytest.fixture(autouse=True)
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses that a browser was asked to open."""
    found: list[str] = []
    for name in ("open", "open_new", "open_new_tab"):
        monkeypatch.setattr(webbrowser, name, lambda url, *_, **__: found.append(url) or True)
    return found


@pytest.mark.parametrize("auth", [None, {"oauth": True, "persist": "memory"}, {"persist": "memory"}])
@pytest.mark.parametrize("era", ERAS)
async def test_a_downstream_that_asks_for_oauth_starts_no_flow(
    tmp_path: Path, opened: list[str], era: str, auth: dict[str, Any] | None
) -> None:
    async with trap() as set_up:
        server = {"url": set_up.url} | ({"auth": auth} if auth else {})
        root = write_project(
            tmp_path,
            {"desk": agent_module("desk", ("guarded",))},
            config={"mcp": {"servers": {"guarded": server}}},
        )
        async with running(root) as fleet, client(fleet, "desk", era=era) as desk:
            health = await desk.call_tool("get_health", {})
            result = await desk.call_tool("send_message", {"message": "hello"})
            assert "guarded" in repr(health.content)
            assert not result.is_error
            missing = (result.meta or {})["local.pallas/missingServers"]
            assert missing == {"guarded": "asks for a credential (HTTP 401)"}
        assert {seen.path for seen in set_up.downstream.seen} == {"/mcp"}
        assert set_up.asked == []
    assert opened == []


async def test_a_server_that_a_card_brings_along_starts_no_flow_either(
    tmp_path: Path, opened: list[str]
) -> None:
    async with trap() as set_up:
        root = write_project(
            tmp_path,
            {"desk": None, "visitor": None},
            files={"visitor.md": CARD.format(url=set_up.url)},
        )
        topology = root / "agents.yaml"
        topology.write_text(topology.read_text().replace("module: agents.visitor", "card: visitor.md"))
        async with running(root) as fleet, client(fleet, "visitor") as visitor:
            assert next(a.state for a in fleet.agents if a.name == "desk") is AgentState.READY
            await visitor.call_tool("send_message", {"message": "hello"})
        assert set_up.downstream.seen
        assert set_up.asked == []
    assert opened == []


async def test_a_server_with_a_credential_of_its_own_starts_no_flow_either(tmp_path: Path) -> None:
    async with trap() as set_up:
        server = {"url": set_up.url, "headers": {"Authorization": "Bearer planted-a81c"}}
        root = write_project(
            tmp_path,
            {"desk": agent_module("desk", ("guarded",))},
            config={"mcp": {"servers": {"guarded": server}}},
        )
        async with running(root) as fleet, client(fleet, "desk") as desk:
            await desk.call_tool("send_message", {"message": "hello"})
        assert set_up.asked == []
