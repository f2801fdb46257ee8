"""Whoever asks, the caller is asked: servers, models, handlers, remote agents; on every way in."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import mcp_types as mt
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from support.asked import ASKING, accepting, asked_client, url_of
from support.curious_server import COMMAND
from support.live import ERAS, agent_module, module_fleet, tool_call, write_project
from support.ports import free_ports
from support.served import text_of

from pallas.fleet.fleet import Fleet

pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]
both_eras = pytest.mark.parametrize("era", ERAS)

TYPED = '''
from dataclasses import dataclass

from pallas.asking import ask
from pallas.contract import HandlerResponse


@dataclass
class Order:
    """What to release."""

    text: str


@dataclass
class Done:
    text: str


async def take(payload: Order, metadata) -> HandlerResponse:
    found = await ask(f"Which branch for {payload.text}?")
    return HandlerResponse.respond(Done(f"{found.action} {found.text}"))
'''
FORM = {
    "mode": "form",
    "message": "Your name?\x1b]52;c;cm0=\x07",
    "requestedSchema": {
        "type": "object",
        "properties": {"name": {"type": "string", "title": "Name\x1b[31m"}},
        "required": ["name"],
    },
}


@module_fleet()
def fleet(folder: Path) -> Path:
    root = folder / "p"
    (port,) = free_ports(1)
    curious = agent_module("desk", ("older", "newer"), human_input=True)
    typed = {"module": None, "kind": "handler", "handler": "orders:take", "payload": "orders:Order"}
    write_project(
        root,
        {"desk": curious, "apart": curious.replace('"desk"', '"apart"'), "clerk": ASKING, "far": None,
         "typed": None, "boxed": None},
        keys={
            "apart": {"isolation": "process"},
            "clerk": {"module": None, "kind": "handler", "handler": "agents.clerk:clerk", "port": port},
            "far": {"module": None, "kind": "remote", "url": f"http://127.0.0.1:{port}/mcp"},
            "typed": typed,
            "boxed": {**typed, "isolation": "process"},
        },
        config={
            "mcp": {
                "servers": {
                    name: {"command": sys.executable, "args": [COMMAND], "protocol_mode": mode}
                    for name, mode in (("older", "legacy"), ("newer", "modern"))
                }
            }
        },
        files={"orders.py": TYPED},
    )  # fmt: skip
    return root


def calling(tool: str, **arguments: Any) -> dict[str, Any]:
    """The message that has an agent call a tool."""
    return {"message": tool_call(tool, **arguments)}


def told(result: Any) -> Any:
    """What a curious server was answered."""
    return json.loads(text_of(result).rpartition("\n")[2])


@both_eras
@pytest.mark.parametrize("agent", ["desk", "apart"])
async def test_a_server_of_either_version_asks_the_caller(fleet: Fleet, era: str, agent: str) -> None:
    for server in ("older", "newer"):
        seen: list[Any] = []

        async def fill(params: Any, seen: list[Any] = seen) -> mt.ElicitResult:
            seen.append(params)
            return accepting({"name": f"n{len(seen)}"})

        async with asked_client(url_of(fleet, agent), era, fill) as client:
            call = calling(f"{server}__ask", method="elicitation/create", params=FORM, times=2)
            answers = told(await client.call_tool("send_message", call))
        assert [each["action"] for each in answers] == ["accept", "accept"]
        assert sorted(each["content"]["name"] for each in answers) == ["n1", "n2"]
        assert f"{server} ({agent}): Your name?" in seen[0].message
        assert "\x1b" not in json.dumps(seen[0].requested_schema) + seen[0].message
        assert "\\u001b" not in json.dumps(seen[0].requested_schema)


@both_eras
async def test_an_address_is_shown_and_never_opened_and_one_that_hides_is_declined(
    fleet: Fleet, era: str
) -> None:
    seen: list[str] = []

    async def accept(params: Any) -> mt.ElicitResult:
        seen.append(params.message)
        assert params.mode == "form"
        return accepting({})

    async with asked_client(url_of(fleet, "desk"), era, accept) as client:
        for url, action in (
            ("https://login.example.com/start?x=1", "accept"),
            ("https://bank.example.com@evil.example.com/", "decline"),
            ("javascript:alert(1)", "decline"),
            ("https://example.com/\u202egpj", "decline"),
        ):
            params = {"mode": "url", "message": "Log in", "url": url, "elicitationId": "4711"}
            call = calling("older__ask", method="elicitation/create", params=params)
            (answer,) = told(await client.call_tool("send_message", call))
            assert answer["action"] == action, url
            assert ("local.pallas/reason" in answer.get("_meta", {})) == (action == "decline")
    assert len(seen) == 1
    assert "https://login.example.com/start?x=1" in seen[0]


@both_eras
@pytest.mark.parametrize("agent", ["desk", "apart"])
async def test_a_model_asks_by_human_input(fleet: Fleet, era: str, agent: str) -> None:
    actions: list[Any] = [accepting({"which": "blue"}), mt.ElicitResult(action="decline")]

    async def fill(params: Any) -> mt.ElicitResult:
        assert "Which?" in params.message
        found: mt.ElicitResult = actions.pop(0)
        return found

    form = {"message": "Which?", "fields": [{"name": "which", "type": "text"}]}
    async with asked_client(url_of(fleet, agent), era, fill) as client:
        call = calling("__human_input", **form)
        assert '"which": "blue"' in text_of(await client.call_tool("send_message", call))
        assert "declined" in text_of(await client.call_tool("send_message", call))


@both_eras
@pytest.mark.parametrize("agent", ["typed", "boxed"])
async def test_a_typed_handler_asks_from_any_process(fleet: Fleet, era: str, agent: str) -> None:
    async def fill(params: Any) -> mt.ElicitResult:
        assert params.message == "Which branch for docs?"
        return accepting({"answer": "main"})

    async with asked_client(url_of(fleet, agent), era, fill) as client:
        result = await client.call_tool("send_message", {"message": json.dumps({"text": "docs"})})
        assert "accept main" in text_of(result)


@both_eras
async def test_a_remote_agent_asks_our_caller(fleet: Fleet, era: str) -> None:
    answers = [accepting({"answer": "main"}), mt.ElicitResult(action="decline")]

    async def fill(params: Any) -> mt.ElicitResult:
        assert "far (far): Which branch?" in params.message
        return answers.pop(0)

    async with asked_client(url_of(fleet, "far"), era, fill) as client:
        for wanted in ("released main", "nothing, decline"):
            result = await client.call_tool("send_message", {"message": "release"})
            assert text_of(result) == wanted


@both_eras
async def test_the_bridge_and_virtual_servers_ask_their_callers(fleet: Fleet, era: str) -> None:
    async def fill(params: Any) -> mt.ElicitResult:
        return accepting({"answer": "main"})

    origin = fleet.registry_url.rsplit("/.well-known", 1)[0]
    async with asked_client(f"{origin}/mcp", era, fill) as bridge:
        call = {"agentId": "clerk", "prompt": "release"}
        assert "released main" in text_of(await bridge.call_tool("tasks_delegate", call))
        session = json.loads(text_of(await bridge.call_tool("sessions_create", {"agentId": "clerk"})))
        call = {"sessionId": session["sessionId"], "prompt": "release"}
        assert "released main" in text_of(await bridge.call_tool("sessions_prompt", call))
    async with asked_client(f"{origin}/virtual/agent-clerk/mcp", era, fill) as virtual:
        assert "released main" in text_of(await virtual.call_tool("chat", {"message": "release"}))
    async with asked_client(f"{origin}/projects/test/mcp", era, fill) as project:
        result = await project.call_tool("agent-clerk__chat", {"message": "release"})
        assert "released main" in text_of(result)


@pytest.mark.slow
@both_eras
async def test_the_bridge_on_stdio_passes_questions_on_to_its_client(fleet: Fleet, era: str) -> None:
    async def fill(_: Any, params: Any) -> mt.ElicitResult:
        return accepting({"answer": "main"})

    origin = fleet.registry_url.rsplit("/.well-known", 1)[0]
    command = [sys.executable, "-m", "pallas.server", "bridge", "--url", origin]
    server = StdioServerParameters(command=command[0], args=command[1:], env={**os.environ})
    async with Client(stdio_client(server), mode=era, elicitation_callback=fill) as bridge:
        call = {"agentId": "clerk", "prompt": "release"}
        assert "released main" in text_of(await bridge.call_tool("tasks_delegate", call))
