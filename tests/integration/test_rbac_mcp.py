"""Rules of grants over MCP: who may run which agent, what agents ask of each other, rules that change."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
import yaml
from fastmcp import Context, FastMCP
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from support.granted import TOKENS, allow, auth, granted, rules
from support.guarded import call, headers
from support.issuer import AUDIENCE, issuing
from support.live import ERAS, agent_module, ask, client, running, write_project
from support.served import fault_in
from support.waiting import until

from pallas.access.grants import Grants
from pallas.fleet.fleet import Fleet
from pallas.model import Notice, Principal, Reloaded
from pallas.surfaces.listener import Listener, bind

pytestmark = pytest.mark.asyncio(loop_scope="module")
both_eras = pytest.mark.parametrize("era", ERAS)
ADA = TOKENS["ada"]
CALL = '***CALL_TOOL {} {{"message": "deep"}}'


class Mole:
    """A downstream that shows what it was called with to an agent, while it is called."""

    def __init__(self) -> None:
        self.server: FastMCP = FastMCP("mole")
        self.target = ""
        self.answers: list[Any] = []
        self.server.tool(self.dig, name="dig")

    async def dig(self, message: str, context: Context) -> str:
        """Call the agent in the name of whoever called this, within the very same trace."""
        meta = dict(context.request_context.meta or {}) if context.request_context is not None else {}
        kept = {key: value for key, value in meta.items() if key == "traceparent"}
        assert kept
        async with (
            create_mcp_http_client(headers={"Authorization": f"Bearer {ADA}"}) as http,
            Client(streamable_http_client(self.target, http_client=http), mode=ERAS[0]) as connected,
        ):
            given: Any = kept
            self.answers.append(await connected.call_tool("send_message", {"message": "dug"}, meta=given))
        return message


@asynccontextmanager
async def served(server: FastMCP) -> AsyncIterator[str]:
    listener = Listener(server.http_app(path="/mcp", host_origin_protection=False), bind("127.0.0.1", 0, "x"))
    await listener.start()
    try:
        yield f"http://127.0.0.1:{listener.port}/mcp"
    finally:
        await listener.stop()


@pytest.fixture(scope="module")
def mole() -> Mole:
    return Mole()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory, mole: Mole) -> AsyncIterator[Fleet]:
    async with served(mole.server) as url:
        root = write_project(
            tmp_path_factory.mktemp("mcp"),
            {"boss": agent_module("boss", ("helper", "mole")), "helper": None, "demo": None},
            top={"auth": auth(), "rbac": rules({"token:ada": ["run:agents:boss"]})},
            keys={"demo": {"auth": False}, "boss": {"depends_on": ["helper"]}},
        )
        entries = yaml.safe_load((root / "agents.yaml").read_text())["agents"]
        mole.target = f"http://127.0.0.1:{entries['helper']['port']}/mcp"
        servers = {
            "helper": {"url": mole.target, "auth": {"oauth": False}, "forward_inbound_auth": True},
            "mole": {"url": url, "auth": {"oauth": False}},
        }
        settings = yaml.safe_load((root / "fastagent.config.yaml").read_text())
        (root / "fastagent.config.yaml").write_text(yaml.safe_dump({**settings, "mcp": {"servers": servers}}))
        async with running(root) as found:
            yield found


@both_eras
async def test_a_run_needs_the_grant_of_that_agent_and_so_does_the_history(
    fleet: Fleet, era: str, caplog: pytest.LogCaptureFixture
) -> None:
    # AG-20
    caplog.set_level(logging.INFO)
    allow(fleet, {"token:ada": ["run:agents:boss", "view:*", "edit:agents"]})
    async with client(fleet, "boss", era=era, bearer=ADA) as boss:
        assert await ask(boss, "hello", conversation_id=f"c-{era}") == "hello"
        assert len((await boss.get_prompt("boss_history", {"conversation_id": f"c-{era}"})).messages) == 2
    async with client(fleet, "helper", era=era, bearer=ADA) as helper:
        assert [each.name for each in (await helper.list_tools()).tools] == ["send_message", "get_health"]
        fault = fault_in(await helper.call_tool("send_message", {"message": "hello"}))
        assert (fault["data"]["type"], fault["data"]["reason"]) == ("AUTH", "forbidden")
        assert fault["data"]["grant"] == "run:agents:helper"
        with pytest.raises(MCPError, match="run:agents:helper"):
            await helper.get_prompt("helper_history", {})
        assert not (await helper.call_tool("get_health", {})).is_error
    denied = [each for each in caplog.records if each.name == "pallas.audit"]
    assert [(vars(each)["audit"], vars(each)["target"]) for each in denied] == [("denied", "helper")] * 2
    assert ADA not in caplog.text


@both_eras
async def test_an_agent_that_asks_nobody_who_they_are_needs_a_grant_for_everyone(
    fleet: Fleet, era: str
) -> None:
    allow(fleet, {"authenticated": ["*"]})
    async with client(fleet, "demo", era=era, bearer=ADA) as demo:
        fault = fault_in(await demo.call_tool("send_message", {"message": "hello"}))
        assert fault["data"]["reason"] == "unauthenticated"
        allow(fleet, {"anonymous": ["run:agents:demo"]})
        assert await ask(demo, "hello") == "hello"


@both_eras
async def test_whoever_may_run_an_agent_has_it_ask_others_and_may_not_ask_them(
    fleet: Fleet, era: str, mole: Mole
) -> None:
    allow(fleet, {"token:ada": ["run:agents:boss"]})
    async with client(fleet, "boss", era=era, bearer=ADA) as boss:
        assert "deep" in await ask(boss, CALL.format("helper__send_message"))
        # Another downstream learns the span of its own call, and it opens nothing.
        mole.answers.clear()
        assert "deep" in await ask(boss, CALL.format("mole__dig"))
    (answer,) = mole.answers
    assert fault_in(answer)["data"]["grant"] == "run:agents:helper"


@both_eras
async def test_a_subject_of_an_issuer_is_known_by_its_name_in_the_rules(tmp_path: Path, era: str) -> None:
    async with issuing() as issuer:
        corp = {"issuer": issuer.issuer, "audience": AUDIENCE, "jwks_url": issuer.url}
        given = {"jwt:corp:ada@example.com": ["run:agents:desk"]}
        async with granted(tmp_path, given, top={"auth": auth(jwt={"corp": corp})}) as fleet:
            async with client(fleet, "desk", era=era, bearer=issuer.token("ada@example.com")) as ada:
                assert await ask(ada, "hello") == "hello"
            async with client(fleet, "desk", era=era, bearer=issuer.token("bob@example.com")) as bob:
                fault = fault_in(await bob.call_tool("send_message", {"message": "hello"}))
                assert fault["data"]["reason"] == "forbidden"
                # Who it is is personal: a fingerprint is all that is said.
                assert "bob" not in fault["error"] and "jwt:corp:" in fault["error"]


async def saved(root: Path, fleet: Fleet, given: dict[str, list[str]], agent: str) -> None:
    """Save other rules; until they hold."""
    path = root / "agents.yaml"
    written = yaml.safe_load(path.read_text("utf-8"))
    written["rbac"] = rules(given)
    path.write_text(yaml.safe_dump(written, sort_keys=False), "utf-8")
    grants: Grants = fleet.grants
    await until(lambda: grants.allows(Principal("token:ada"), "run", "agents", agent), timeout=60)


async def test_rules_are_those_of_the_files_whatever_version_answers(tmp_path: Path) -> None:
    root = write_project(
        tmp_path,
        {"desk": None, "other": None},
        top={"auth": auth(), "rbac": rules({"token:ada": ["run:agents:desk"]})},
    )
    async with running(root, watch=True) as fleet:
        told = [event for event in fleet.hub.since(0).events if isinstance(event, Notice)]
        assert not [event for event in told if "rbac" in event.text]
        versions: list[Reloaded] = []
        fleet.hub.listen(lambda event: versions.append(event) if isinstance(event, Reloaded) else None)
        async with client(fleet, "desk", bearer=ADA) as desk, client(fleet, "other", bearer=ADA) as other:
            assert await ask(desk, "hello") == "hello"
            assert (await other.call_tool("send_message", {"message": "x"})).is_error
            source = root / "agents" / "desk.py"
            source.write_text(source.read_text("utf-8").replace("You are desk.", "Be kind."), "utf-8")
            await until(lambda: [each for each in versions if each.agent == "desk"], timeout=60)
            # The next save breaks the code, and has other rules all the same.
            source.write_text("1 +\n", "utf-8")
            await saved(root, fleet, {"token:ada": ["run:agents:other"]}, "other")
            assert (await desk.call_tool("send_message", {"message": "x"})).is_error
            assert await ask(other, "hello") == "hello"
            before = len(versions)
            fleet.control("desk", "rollback")
            await until(lambda: len(versions) > before, timeout=60)
            assert (await desk.call_tool("send_message", {"message": "x"})).is_error
            assert await ask(other, "hello") == "hello"


async def test_pallas_dev_on_loopback_asks_for_grants_where_it_asks_who_calls(tmp_path: Path) -> None:
    whole = {"auth": auth(dev=False), "rbac": rules({"token:ada": ["run:agents:desk"]})}
    root = write_project(tmp_path / "a", {"desk": None}, top=whole)
    async with running(root) as fleet, client(fleet, "desk") as anyone:
        assert await ask(anyone, "hello") == "hello"
        told = [event for event in fleet.hub.since(0).events if isinstance(event, Notice)]
        assert any("enabled: true under rbac:" in event.text for event in told)
    whole["rbac"]["enabled"] = True
    root = write_project(tmp_path / "b", {"desk": None}, top=whole)
    async with running(root) as fleet:
        async with client(fleet, "desk", bearer=ADA) as ada:
            assert await ask(ada, "hello") == "hello"
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            lines = {**headers("tools/list"), "authorization": "Bearer nobody"}
            answer = await http.post(fleet.agents[0].url, json=call("tools/list"), headers=lines)
        assert answer.status_code == 401
