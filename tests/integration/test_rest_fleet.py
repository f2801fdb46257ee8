"""Chat over REST with a fleet that really runs: models, servers, failures; the same on every surface."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from support.live import agent_module, client, running
from support.offline import model_record, offline_project
from support.rest import chunks_in, text_in
from support.waiting import poll, until

from pallas.fleet.fleet import Fleet
from pallas.model import AgentState

SCRIPT = """
rules:
  - {when: {last: user, text: refuse}, error: {status: 401, message: "bad key sk-plantedplantedplanted1"}}
  - {when: {last: user, text: break}, error: {status: 503, message: "oops"}}
  - when: {last: user, text: both}
    say: "Let me ask both."
    call:
      - {tool: echo__echo, arguments: {text: "first"}}
      - {tool: second__echo, arguments: {text: "second"}}
  - when: {last: user, text: fails}
    call: [{tool: echo__boom, arguments: {text: "x"}}]
  - when: {last: user, text: slow}
    say: "One moment."
    call: [{tool: echo__slow, arguments: {text: "x"}}]
  - when: {last: tool}
    say: "They said: {{ result }}"
  - when: {last: user}
    say: "You said: {{ user }}"
"""
SECOND = '''
from stdio_server import StdioServer

server = StdioServer("second")

@server.tool()
def echo(text: str) -> str:
    """Say it another way."""
    return "second:" + text

server.run()
'''
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    root = offline_project(
        tmp_path_factory.mktemp("rest"),
        {"asker": agent_module("asker", ("echo", "second")), "broken": "import nowhere_to_be_found\n"},
        SCRIPT,
        files={"second_server.py": SECOND},
        config={
            "llm_retries": 0,
            "mcp": {"servers": {"second": {"command": "python", "args": ["second_server.py"]}}},
        },
    )
    async with running(root, database="memory") as started:
        await until(lambda: any(each.state is AgentState.READY for each in started.agents))
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def http(fleet: Fleet) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(
        base_url=f"{fleet.ports.origin}/api/v1", trust_env=False, timeout=60
    ) as made:
        yield made


async def streamed(http: httpx2.AsyncClient, **body: Any) -> list[dict[str, Any]]:
    answer = await http.post("/agents/asker/chat", json={**body, "stream": True})
    assert answer.status_code == 200, answer.text
    return chunks_in(answer.content)


async def over(http: httpx2.AsyncClient, run: str) -> dict[str, Any]:
    """The run when its end is written down."""

    async def now() -> dict[str, Any]:
        record: dict[str, Any] = (await http.get(f"/runs/{run}")).json()
        return record

    return await poll(now, lambda record: record["status"] != "running")


async def test_a_stream_and_a_whole_answer_say_the_same(http: httpx2.AsyncClient) -> None:
    # AG-15, AG-16
    chunks = await streamed(http, message="hello")
    assert text_in(chunks) == "You said: hello"
    assert {each["type"] for each in chunks} == {"text", "final"}
    whole = (await http.post("/agents/asker/chat", json={"message": "hello"})).json()
    assert whole["text"] == text_in(chunks)
    assert whole["turnIndex"] == chunks[-1]["turnIndex"] == 1
    assert whole["usage"]["outputTokens"] > 0 and whole["stopReason"] == "endTurn"
    again = (
        await http.post("/agents/asker/chat", json={"message": "again", "threadId": whole["threadId"]})
    ).json()
    assert (again["threadId"], again["turnIndex"]) == (whole["threadId"], 3)


async def test_tools_go_by_server_and_name_and_their_rows_are_linked(
    fleet: Fleet, http: httpx2.AsyncClient
) -> None:
    # AG-17, AG-15
    chunks = await streamed(http, message="both")
    offered = [each["function"]["name"] for each in model_record(fleet).requests[-1]["tools"]]
    assert {"echo__echo", "second__echo"} <= set(offered)
    tools = [each for each in chunks if each["type"].startswith("tool_")]
    assert tools == [
        {"type": "tool_call", "toolName": "echo__echo", "args": {"text": "first"}},
        {"type": "tool_call", "toolName": "second__echo", "args": {"text": "second"}},
        {"type": "tool_result", "toolName": "echo__echo", "ok": True},
        {"type": "tool_result", "toolName": "second__echo", "ok": True},
    ]
    final = chunks[-1]
    rows = (await http.get(f"/threads/{final['threadId']}/messages")).json()["items"]
    assert [each["role"] for each in rows] == ["user", "assistant", "tool", "tool", "assistant"]
    assert [each["status"] for each in rows] == ["complete"] * 5
    calls = rows[1]["toolCalls"]
    assert [each["name"] for each in calls] == ["echo__echo", "second__echo"]
    assert [each["toolCallId"] for each in rows[2:4]] == [each["id"] for each in calls]
    assert [each["content"] for each in rows[2:4]] == ["echo:first", "second:second"]
    assert rows[-1]["turnIndex"] == final["turnIndex"]
    whole = (await http.post("/agents/asker/chat", json={"message": "both"})).json()
    assert whole["text"] == text_in(chunks)
    assert whole["tools"] == 2


async def test_a_tool_that_fails_is_told_as_failed(http: httpx2.AsyncClient) -> None:
    chunks = await streamed(http, message="fails")
    assert [each["ok"] for each in chunks if each["type"] == "tool_result"] == [False]
    assert chunks[-1]["type"] == "final"


@pytest.mark.parametrize(("text", "kind", "status"), [("refuse", "AUTH", 502), ("break", "UPSTREAM", 502)])
async def test_one_failure_has_one_type_on_every_surface(
    fleet: Fleet, http: httpx2.AsyncClient, text: str, kind: str, status: int
) -> None:
    # UN-4, PR-36
    failed = (await streamed(http, message=text))[-1]
    whole = await http.post("/agents/asker/chat", json={"message": text})
    assert whole.status_code == status and "www-authenticate" not in whole.headers
    async with client(fleet, "asker") as connected:
        result = await connected.call_tool("send_message", {"message": text})
    over_mcp = json.loads(result.content[0].text)  # type: ignore[union-attr]
    assert failed["type"] == "error"
    assert failed["data"]["type"] == whole.json()["data"]["type"] == over_mcp["data"]["type"] == kind
    assert failed["data"]["code"] == whole.json()["code"] == over_mcp["code"]
    assert failed["message"] == whole.json()["error"] == over_mcp["error"]
    assert "sk-planted" not in json.dumps([failed, whole.json(), over_mcp])


async def test_an_agent_in_error_is_not_available_and_the_others_are(http: httpx2.AsyncClient) -> None:
    # PI-17
    for stream in (False, True):
        answer = await http.post("/agents/broken/chat", json={"message": "hi", "stream": stream})
        assert answer.status_code == 503
        assert "broken cannot answer: its code failed; the log has the details" in answer.json()["error"]
    await http.post(
        "/agents/asker/chat", json={"message": "hello"}
    )  # earlier runs may have failed on purpose
    listed = {each["name"]: each for each in (await http.get("/agents")).json()["items"]}
    assert (listed["broken"]["state"], listed["broken"]["health"]) == ("error", "error")
    assert (listed["asker"]["state"], listed["asker"]["health"]) == ("ready", "ok")
    assert listed["asker"]["url"].endswith("/mcp")


async def test_a_run_is_cancelled_in_the_middle_of_a_tool(fleet: Fleet, http: httpx2.AsyncClient) -> None:
    async with http.stream("POST", "/agents/asker/chat", json={"message": "slow", "stream": True}) as answer:
        run, body, asked = answer.headers["pallas-run-id"], b"", False
        async for piece in answer.aiter_bytes():
            body += piece
            if b"tool_call" in body and not asked:
                asked = True
                assert (await http.delete(f"/runs/{run}")).status_code == 202
    chunks = chunks_in(body)
    assert chunks[-1]["type"] == "error" and chunks[-1]["data"]["cancelled"] is True
    record = await over(http, run)
    assert (record["status"], record["partial"]) == ("cancelled", "One moment.")
    rows = (await http.get(f"/threads/{record['threadId']}/messages")).json()["items"]
    assert "pending" not in [each["status"] for each in rows]


async def test_threads_of_mcp_and_rest_are_the_same(fleet: Fleet, http: httpx2.AsyncClient) -> None:
    async with client(fleet, "asker") as connected:
        result = await connected.call_tool("send_message", {"message": "hi", "conversation_id": "new"})
        thread = (result.meta or {})["local.pallas/conversationId"]
        said = await http.post("/agents/asker/chat", json={"message": "and?", "threadId": thread})
        assert said.json()["turnIndex"] == 3
        rows = (await http.get(f"/threads/{thread}/messages")).json()["items"]
        assert [each["content"] for each in rows] == [
            "hi",
            "You said: hi",
            "and?",
            "You said: and?",
        ]
        listed = (await http.get("/threads?agent=asker")).json()["items"]
        assert thread in {each["id"] for each in listed}


async def test_the_control_api_and_the_registry_stand_beside_it(http: httpx2.AsyncClient) -> None:
    answers = await asyncio.gather(
        http.get("/openapi.json"), http.get("/whoami"), http.get("/fleet/snapshot")
    )
    assert [each.status_code for each in answers[:2]] == [200, 200]
    # In this fleet nobody opened the control API: its paths are none of the REST API's.
    assert answers[2].status_code == 404
