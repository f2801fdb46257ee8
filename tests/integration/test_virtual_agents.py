"""Agents as tools: a virtual MCP server for each, and one for all of a project."""

import asyncio
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from mcp.client.auth.utils import extract_resource_metadata_from_www_auth
from support.granted import TOKENS, allow, api, auth, rules
from support.issuer import AUDIENCE, issuing
from support.live import MODERN_FIRST, ask, client, module_fleet, running, write_project
from support.ports import free_ports
from support.served import fault_in
from support.virtual import virtual, words
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.model import Notice, RunStarted
from pallas.model.params import KEYS

pytestmark = pytest.mark.asyncio(loop_scope="module")
both_eras = pytest.mark.parametrize("era", MODERN_FIRST)
PROJECT = "/projects/test/mcp"
ADA, BOB = TOKENS["ada"], TOKENS["bob"]


@module_fleet(database="memory")
def fleet(folder: Path) -> Path:
    taken = {"command": "python", "args": ["echo_server.py"]}
    return write_project(
        folder,
        {"desk": None, "research": None, "taken": None},
        keys={"desk": {"description": "Answers what it knows"}},
        config={"mcp": {"servers": {"agent-taken": taken}}},
    )


def tools(listed: Any) -> dict[str, str]:
    """The tools of a list, with what they are described as."""
    return {each.name: each.description for each in listed.tools}


@both_eras
async def test_an_agent_is_a_server_with_the_tool_chat_and_a_thread_to_go_on_with(
    fleet: Fleet, era: str
) -> None:
    # AG-23
    async with virtual(fleet, "/virtual/agent-desk/mcp", era=era) as desk:
        listed = await desk.list_tools()
        first = await desk.call_tool("chat", {"message": "hello"})
        facts = first.structured_content
        thread = facts["threadId"]
        second = await desk.call_tool("chat", {"message": "again", "threadId": thread})
    assert tools(listed) == {"chat": "Answers what it knows"}
    assert set(listed.tools[0].input_schema["properties"]) == {"message", "threadId", "images", *KEYS}
    # A model that calls the tool reads the text alone: the thread stands there as well.
    assert words(first) == ["hello", f"(threadId: {thread})"]
    assert facts == {"text": "hello", "threadId": thread, "turnIndex": 1}
    assert (second.structured_content["threadId"], second.structured_content["turnIndex"]) == (thread, 3)
    assert second.meta["local.pallas/threadId"] == thread
    assert second.meta["local.pallas/turnIndex"] == 3
    # It is a thread like any other.
    async with api(fleet, None) as http:
        rows = (await http.get(f"/threads/{thread}/messages")).json()["items"]
        origin = (await http.get(f"/threads/{thread}")).json()["origin"]
    assert [(row["role"], row["content"]) for row in rows] == [
        ("user", "hello"), ("assistant", "hello"), ("user", "again"), ("assistant", "again"),
    ]  # fmt: skip
    assert origin == "agent-tool"


@both_eras
async def test_a_project_is_a_server_with_a_tool_for_each_agent_whose_name_is_free(
    fleet: Fleet, era: str, caplog: pytest.LogCaptureFixture
) -> None:
    # AG-23, AG-24
    async with virtual(fleet, PROJECT, era=era) as project:
        assert tools(await project.list_tools()) == {
            "agent-desk__chat": "Answers what it knows",
            "agent-research__chat": "Research",
        }
        said = await project.call_tool("agent-research__chat", {"message": "hello"})
        assert words(said)[0] == "hello"
        fault = fault_in(await project.call_tool("agent-taken__chat", {"message": "hello"}))
        assert "agent-desk__chat, agent-research__chat" in fault["error"]
    told = [each for each in fleet.hub.since(0).events if isinstance(each, Notice)]
    (warning,) = [each for each in told if "agent-taken" in each.text]
    assert (warning.level, warning.agent) == ("warning", "taken")
    # Nobody else has its own address.
    async with virtual(fleet, "/virtual/agent-taken/mcp", era=era) as taken:
        assert words(await taken.call_tool("chat", {"message": "hello"}))[0] == "hello"


@both_eras
async def test_arguments_are_those_of_a_run_and_a_wrong_one_is_named(fleet: Fleet, era: str) -> None:
    async with virtual(fleet, "/virtual/agent-desk/mcp", era=era) as desk:
        thread = (await desk.call_tool("chat", {"message": "one"})).structured_content["threadId"]
        for given, said in (
            ({}, "message is missing"),
            ({"message": "x", "temprature": 1}, "did you mean temperature"),
            ({"message": "x", "temperature": 3}, "temperature: must be a number from 0 to 2"),
            ({"message": "x", "threadId": 7}, "threadId is not the id of a thread"),
            ({"message": "x", "threadId": thread, "thread_id": thread}, "leave one out"),
            ({"message": "x", "images": [{"data": "x"}]}, "images[0] needs data"),
        ):
            fault = fault_in(await desk.call_tool("chat", given))
            assert said in fault["error"] and fault["data"]["type"] == "PROTOCOL", fault
        camel = {"message": "two", "thread_id": thread, "topP": 0.5, "maxTokens": None}
        assert words(await desk.call_tool("chat", camel))[0] == "two"
    async with virtual(fleet, "/virtual/agent-research/mcp", era=era) as research:
        fault = fault_in(await research.call_tool("chat", {"message": "x", "threadId": thread}))
        assert "not found" in fault["error"]


@both_eras
async def test_progress_and_caller_are_told_as_for_an_agents_own_tools(fleet: Fleet, era: str) -> None:
    seen: list[tuple[float, str]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        seen.append((done, message or ""))

    async with virtual(fleet, "/virtual/agent-desk/mcp", era=era, bearer="somebody") as desk:
        await desk.call_tool("chat", {"message": "hello"}, progress_callback=progress)
    assert seen[0] == (1.0, "desk step 1 (llm)")
    *_, run = [each for each in fleet.hub.since(0).events if isinstance(each, RunStarted)]
    assert run.caller == "mcp" and run.principal


@both_eras
async def test_agents_that_come_go_and_are_described_anew_show_at_once(fleet: Fleet, era: str) -> None:
    heard = asyncio.Event()

    async def hear(message: Any) -> None:
        if "list_changed" in repr(getattr(message, "method", message)):
            heard.set()

    name = f"made-{era[:4]}"
    made = {"name": name, "description": "First", "systemPrompt": "Be.", "project": "test"}
    async with api(fleet, None) as http, virtual(fleet, PROJECT, era=era, message_handler=hear) as project:
        before = tools(await project.list_tools())
        assert (await http.post("/agents", json=made)).status_code == 201
        assert tools(await project.list_tools()) == {**before, f"agent-{name}__chat": "First"}
        if era == "legacy":  # the newer protocol has no session that could be told
            await asyncio.wait_for(heard.wait(), 60)
        assert words(await project.call_tool(f"agent-{name}__chat", {"message": "hello"}))[0] == "hello"
        async with virtual(fleet, f"/virtual/agent-{name}/mcp", era=era) as own:
            await http.patch(f"/agents/{name}", json={"description": "Second"})
            assert tools(await own.list_tools()) == {"chat": "Second"}
        await http.patch(f"/agents/{name}", json={"project": None})
        assert tools(await project.list_tools()) == before
        assert (await http.delete(f"/agents/{name}")).status_code in (200, 204)
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as plain:
            gone = await plain.post(f"{fleet.ports.origin}/virtual/agent-{name}/mcp", json={})
        assert gone.status_code == 404 and "/virtual/agent-NAME/mcp" in gone.text


@both_eras
async def test_a_project_made_over_the_api_has_its_own_agents_and_servers(fleet: Fleet, era: str) -> None:
    # AG-24
    group, one, two = (f"{each}-{era[:4]}" for each in ("group", "one", "two"))
    server = {"name": f"agent-{two}", "url": "http://127.0.0.1:9/mcp"}
    async with api(fleet, None) as http:
        assert (await http.post("/projects", json={"name": group, "servers": [server]})).status_code == 201
        for name in (one, two):
            body = {"name": name, "description": name, "systemPrompt": "Be.", "project": group}
            assert (await http.post("/agents", json=body)).status_code == 201
        async with virtual(fleet, f"/projects/{quote(group)}/mcp", era=era) as project:
            assert tools(await project.list_tools()) == {f"agent-{one}__chat": one}
        told = [each for each in fleet.hub.since(0).events if isinstance(each, Notice)]
        assert [each.level for each in told if f"{group}: {two} is not a tool" in each.text] == ["warning"]
        for name in (one, two):
            await http.delete(f"/agents/{name}")


@both_eras
async def test_every_agent_is_a_tool_whose_name_strict_clients_take(fleet: Fleet, era: str) -> None:
    made = [f"sums.add-{era[:4]}", f"sums_add-{era[:4]}", f"long-{era[:4]}-".ljust(100, "x")]
    async with api(fleet, None) as http, virtual(fleet, PROJECT, era=era) as project:
        for name in made:
            body = {"name": name, "description": name, "systemPrompt": "Be.", "project": "test"}
            assert (await http.post("/agents", json=body)).status_code == 201
        names = {said: name for name, said in tools(await project.list_tools()).items() if said in made}
        assert set(names) == set(made)
        assert [name for name in names.values() if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)] == []
        assert names[made[1]] == f"agent-{made[1]}__chat"
        for name in names.values():
            assert words(await project.call_tool(name, {"message": name}))[0] == name
        for name in made:
            await http.delete(f"/agents/{name}")


async def test_what_is_not_there_is_not_found_and_all_else_is_where_it_was(fleet: Fleet) -> None:
    async with httpx2.AsyncClient(base_url=fleet.ports.origin, trust_env=False, timeout=60) as http:
        for path in ("/virtual/agent-nobody/mcp", "/virtual/desk/mcp", "/projects/none/mcp", "/virtual"):
            assert (await http.post(path, json={})).status_code == 404, path
        for path in ("/.well-known/mcp/server.json", "/healthz", "/api/v1/projects"):
            assert (await http.get(path)).status_code == 200, path
        hostile = await http.post("/virtual/agent-desk/mcp", json={}, headers={"host": "evil.example.com"})
        assert hostile.status_code == 421


@both_eras
async def test_tools_are_shown_and_taken_as_the_caller_was_granted(
    tmp_path_factory: pytest.TempPathFactory, era: str
) -> None:
    # AG-20
    root = write_project(
        tmp_path_factory.mktemp("granted"),
        {"desk": None, "research": None, "narrow": None},
        keys={"narrow": {"auth": {"tokens": ["bob"]}}},
        top={"auth": auth(), "rbac": rules({"token:ada": ["run:agents:desk"], "token:bob": ["view:*"]})},
    )
    async with running(root) as fleet:
        async with virtual(fleet, PROJECT, era=era, bearer=ADA) as ada:
            assert list(tools(await ada.list_tools())) == ["agent-desk__chat"]
            assert words(await ada.call_tool("agent-desk__chat", {"message": "hi"}))[0] == "hi"
            fault = fault_in(await ada.call_tool("agent-research__chat", {"message": "hi"}))
            assert fault["data"]["grant"] == "run:agents:research"
            # A grant is not enough where the agent itself does not take the caller.
            allow(fleet, {"authenticated": ["run:agents"]})
            assert list(tools(await ada.list_tools())) == ["agent-desk__chat", "agent-research__chat"]
            fault = fault_in(await ada.call_tool("agent-narrow__chat", {"message": "hi"}))
            assert "auth: of that agent does not accept" in fault["error"]
        async with virtual(fleet, PROJECT, era=era, bearer=BOB) as bob:
            assert "agent-narrow__chat" in tools(await bob.list_tools())
            assert words(await bob.call_tool("agent-narrow__chat", {"message": "hi"}))[0] == "hi"
        async with virtual(fleet, "/virtual/agent-desk/mcp", era=era, bearer=ADA) as ada:
            thread = (await ada.call_tool("chat", {"message": "mine"})).structured_content["threadId"]
            allow(fleet, {"token:bob": ["run:agents"]})
            assert tools(await ada.list_tools()) == {}
        async with virtual(fleet, "/virtual/agent-desk/mcp", era=era, bearer=BOB) as bob:
            fault = fault_in(await bob.call_tool("chat", {"message": "go on", "threadId": thread}))
            assert "not found" in fault["error"]
        async with httpx2.AsyncClient(base_url=fleet.ports.origin, trust_env=False, timeout=60) as http:
            for path in (PROJECT, "/virtual/agent-desk/mcp"):
                assert (await http.post(path, json={})).status_code == 401
        allow(fleet, {"token:ada": ["run:agents"]})
        async with client(fleet, "desk", era=era, bearer=ADA) as own:  # it is the same conversation there
            assert await ask(own, "again", conversation_id=thread) == "again"
        await until(lambda: not fleet.kernel.in_flight)


@both_eras
async def test_a_virtual_server_says_where_to_get_a_token_for_it(
    tmp_path_factory: pytest.TempPathFactory, era: str
) -> None:
    async with issuing() as issuer:
        corp = {"issuer": issuer.issuer, "audience": AUDIENCE, "jwks_url": issuer.url}
        (port,) = free_ports(1)
        root = write_project(
            tmp_path_factory.mktemp("oauth"),
            {"desk": None},
            keys={"desk": {"port": None}},
            top={"auth": auth(jwt={"corp": corp}), "port": port},
        )
        async with running(root) as fleet:
            async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
                for path in (PROJECT, "/virtual/agent-desk/mcp"):
                    url = f"http://localhost:{port}{path}"
                    refused = await http.post(url, json={})
                    where = extract_resource_metadata_from_www_auth(refused)
                    assert (refused.status_code, where is not None) == (401, True)
                    assert (await http.get(str(where))).json()["resource"] == url
            async with virtual(fleet, PROJECT, era=era, bearer=issuer.token()) as ada:
                assert words(await ada.call_tool("agent-desk__chat", {"message": "hi"}))[0] == "hi"
