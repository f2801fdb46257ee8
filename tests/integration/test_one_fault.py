"""One Fault, whatever way it is told: over the bridge, REST whole and streamed, MCP, in the workbench."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.bridged import refused, tell
from support.live import ERAS, agent_module, client, module_fleet
from support.offline import offline_project
from support.served import fault_in
from support.virtual import virtual
from support.workers import SIMPLE

from pallas.fleet.fleet import Fleet
from pallas.model import Fault, FaultType, RunRequest
from pallas_tui.chat.conversation import ChatConversation
from pallas_tui.chat_client import ChatClient
from pallas_tui.widgets.chat.message_view import figures

SCRIPT = """
rules:
  - {when: {text: refuse}, error: {status: 401, message: "bad key sk-abcdefghijklmnopqrstuvwx"}}
  - {when: {text: hurry}, error: {status: 429, message: "slow down"}}
"""

HANDLER = """
from dataclasses import dataclass

from pallas.contract import HandlerResponse, SystemError, Text


@dataclass
class Ask:
    agent: str
    text: str


@dataclass
class Heard:
    code: str
    message: str
    again: bool


async def asker(payload, metadata):
    if isinstance(payload, Ask):
        return HandlerResponse(Text(payload.text), to=payload.agent)
    assert isinstance(payload, SystemError), payload
    return HandlerResponse.respond(Heard(payload.code, payload.message, payload.retry_allowed))
"""

pytestmark = pytest.mark.asyncio(loop_scope="module")


@module_fleet(database="memory")
def fleet(folder: Path) -> Path:
    return offline_project(
        folder,
        {"desk": agent_module("desk"), "coder": None, "asker": None},
        SCRIPT,
        keys={
            "coder": {"kind": "worker", "module": None, "command": ["python", str(SIMPLE)]},
            "asker": {
                "kind": "handler",
                "module": None,
                "handler": "asking_code:asker",
                "payload": "asking_code:Ask",
                "peers": ["desk", "coder"],
            },
        },
        files={"asking_code.py": HANDLER},
        config={"llm_retries": 0},
    )


@pytest.mark.parametrize(
    ("agent", "text", "kind", "status"),
    [
        ("desk", "refuse", ("AUTH", -32003, False), 502),
        ("desk", "hurry", ("UPSTREAM", -32002, True), 502),
        ("coder", "refuse", ("UPSTREAM", -32002, True), 502),
        ("coder", "malformed", ("PROTOCOL", -32000, False), 502),
    ],
)
async def test_one_fault_has_one_type_and_one_code_however_it_is_told(
    fleet: Fleet, agent: str, text: str, kind: tuple[str, int, bool], status: int
) -> None:
    # UN-4, PR-36, DR-21, DR-22
    bodies: list[dict[str, Any]] = []
    for era in ERAS:
        async with virtual(fleet, "/mcp", era=era) as door:
            session = (await tell(door, "sessions_create", agentId=agent))["sessionId"]
            bodies.append(await refused(door, "sessions_prompt", sessionId=session, prompt=text))
            bodies.append(await refused(door, "tasks_delegate", agentId=agent, prompt=text))
            await tell(door, "sessions_close", sessionId=session)
        async with client(fleet, agent, era=era) as connected:
            bodies.append(fault_in(await connected.call_tool("send_message", {"message": text})))
    async with virtual(fleet, f"/virtual/agent-{agent}/mcp", era=ERAS[0]) as as_tool:
        bodies.append(fault_in(await as_tool.call_tool("chat", {"message": text})))
    async with httpx2.AsyncClient(base_url=fleet.ports.origin, trust_env=False, timeout=60) as http:
        whole = await http.post(f"/api/v1/agents/{agent}/chat", json={"message": text})
        assert whole.status_code == status
        bodies.append(whole.json())
        stream = await http.post(f"/api/v1/agents/{agent}/chat", json={"message": text, "stream": True})
    chunks = [json.loads(line.removeprefix("data: ")) for line in stream.text.splitlines() if "{" in line]
    assert chunks[-1]["type"] == "error"
    data = chunks[-1]["data"]
    bodies.append({"error": chunks[-1]["message"], "code": data["code"], "data": data})

    told = {(each["data"]["type"], each["code"], each["data"]["retryable"]) for each in bodies}
    assert told == {kind}
    assert len({each["error"] for each in bodies}) == 1
    assert "sk-abc" not in json.dumps(bodies)

    result = await fleet.kernel.run(RunRequest("asker", json.dumps({"agent": agent, "text": text})))
    heard = json.loads(result.text)
    assert (heard["code"], heard["again"]) == (kind[0].lower(), kind[2])
    fault = Fault(FaultType(kind[0]), bodies[0]["error"], retryable=kind[2])
    assert heard == {
        "code": fault.system_code,
        "message": fault.system_message,
        "again": fault.system_retryable,
    }
    assert bodies[0]["error"] not in heard["message"]  # C9: handlers learn nothing of what is behind it

    url = next(each.url for each in fleet.agents if each.name == agent)
    workbench = ChatClient(url, "conv-of-the-workbench")
    try:
        reply = await workbench.send(text)
    finally:
        await workbench.close()
    assert reply.fault is not None
    assert (reply.fault.type, reply.fault.code, reply.fault.retryable) == kind
    conversation = ChatConversation(agent)
    conversation.answer(conversation.begin(text, (), 0.0), reply, 1.0)
    entry = conversation.entries[-1]
    assert entry.role == "error"
    assert figures(entry)[0] == kind[0]
    assert (entry.text, entry.retryable) == (bodies[0]["error"], kind[2])


async def test_a_message_that_does_not_fit_the_class_is_the_callers_mistake_over_rest(fleet: Fleet) -> None:
    async with httpx2.AsyncClient(base_url=fleet.ports.origin, trust_env=False, timeout=60) as http:
        answer = await http.post("/api/v1/agents/asker/chat", json={"message": '{"agent": "desk"}'})
    assert answer.status_code == 400
    body = answer.json()
    assert body["error"].startswith("Ask.text is missing") and body["data"]["field"] == "text"


async def test_who_describes_a_typed_handler_reads_what_it_takes(fleet: Fleet) -> None:
    async with httpx2.AsyncClient(base_url=fleet.ports.origin, trust_env=False, timeout=60) as http:
        asker = (await http.get("/api/v1/agents/asker")).json()
        desk = (await http.get("/api/v1/agents/desk")).json()
    assert asker["payload"]["name"] == "Ask"
    assert sorted(asker["payload"]["schema"]["properties"]) == ["agent", "text"]
    assert sorted(asker["payload"]["example"]) == ["agent", "text"]
    assert desk["payload"] is None
