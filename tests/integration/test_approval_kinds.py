"""Rules for tools hold for every kind of agent that calls, and for every way to name a tool."""

import asyncio
import re
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.approvals import SCRIPT, answer, api, approvals_project, open_questions, say
from support.live import ERAS, all_ready, running
from support.offline import model_record, offline_project
from support.surfaces import typed
from support.survivors import SERVER, effects
from support.virtual import virtual, words
from support.waiting import until

from pallas.fleet.fleet import Fleet

DESK = """
from dataclasses import dataclass

from pallas.contract import HandlerResponse, SystemError, Text


@dataclass
class Topic:
    about: str


async def desk(payload, metadata):
    if isinstance(payload, Topic):
        return HandlerResponse(Text("note it") if payload.about == "clerk" else payload, to=payload.about)
    return HandlerResponse.respond(payload)


async def drawer(payload, metadata):
    return HandlerResponse.respond(Text(f"drawer has {payload.about}"))
"""
CHILD = """
from fast_agent import FastAgent

fast = FastAgent("boss")


@fast.agent(name="clerk", instruction="You are the clerk.", servers=["shelf"])
@fast.agent(name="boss", instruction="You are the boss.", agents=["clerk"], default=True)
async def main() -> None: ...
"""
OF_BOSS = """
rules:
  - when: {last: user, text: have it noted}
    call: [{tool: agent__clerk, arguments: {message: "note it"}}]
"""


@asynccontextmanager
async def fleet_of(
    root: Path, database: str | None = None
) -> AsyncIterator[tuple[Fleet, httpx2.AsyncClient]]:
    url = database or f"sqlite:///{root}/ledger.sqlite3"
    async with running(root, database=url) as fleet, api(fleet) as http:
        await until(lambda: all_ready(fleet))
        yield fleet, http


async def test_the_model_does_not_see_a_denied_tool_and_cannot_call_it_by_another_name(
    tmp_path: Path,
) -> None:
    root = approvals_project(tmp_path / "p", tools={"deny": ["shelf__note"]})
    async with fleet_of(root) as (fleet, http):
        for text in ("note it", "note bare", "note loud"):
            said = (await say(http, "clerk", text))["text"]
            assert "not called: it is not allowed here" in said
        assert effects(root) == []
        shown = [tool["function"]["name"] for tool in model_record(fleet).requests[0]["tools"]]
        assert shown == ["shelf__wait"]


async def test_a_call_by_another_name_is_asked_about_too(tmp_path: Path) -> None:
    root = approvals_project(tmp_path / "p")
    async with fleet_of(root) as (_, http):
        for text in ("note bare", "note loud"):
            asking = asyncio.create_task(say(http, "clerk", text))
            (question,) = await open_questions(http)
            assert question["tool"] == "shelf__note"
            assert await answer(http, question, "decline") == 200
            assert "A person declined" in (await asking)["text"]
        assert effects(root) == []


async def test_only_the_call_whose_arguments_fit_is_asked_about(tmp_path: Path) -> None:
    rules = {"ask": [{"tool": "shelf__note", "when": {"text": "matches ^tw"}}]}
    root = approvals_project(tmp_path / "p", tools=rules)
    async with fleet_of(root) as (_, http):
        asking = asyncio.create_task(say(http, "clerk", "note two"))
        (question,) = await open_questions(http)
        assert question["arguments"] == {"text": "two"}
        await until(lambda: effects(root) == ["note one"])
        assert await answer(http, question, "decline") == 200
        await asking
        assert effects(root) == ["note one"]


async def test_always_holds_for_the_thread_in_which_it_was_said(tmp_path: Path) -> None:
    root = approvals_project(tmp_path / "p")
    async with fleet_of(root) as (_, http):
        asking = asyncio.create_task(say(http, "clerk", "note it"))
        (question,) = await open_questions(http)
        assert await answer(http, question, "accept", always=True) == 200
        thread = (await asking)["threadId"]
        assert "noted it" in (await say(http, "clerk", "note it", threadId=thread))["text"]
        assert effects(root) == ["note it", "note it"]
        other = asyncio.create_task(say(http, "clerk", "note it"))
        (again,) = await open_questions(http)
        assert again["threadId"] != thread
        assert await answer(http, again, "cancel") == 200
        await other


async def test_tools_allowlist_only_narrows(tmp_path: Path) -> None:
    root = approvals_project(tmp_path / "p", tools={"ask": ["shelf__note"], "deny": ["shelf__wait"]})
    async with fleet_of(root) as (_, http):
        said = await say(http, "clerk", "wait for it", tools_allowlist=["shelf__*"])
        assert "not allowed" in said["text"]
        asking = asyncio.create_task(say(http, "clerk", "note it", tools_allowlist=["shelf__note"]))
        (question,) = await open_questions(http)
        assert await answer(http, question, "decline") == 200
        await asking
        assert effects(root) == []


@pytest.mark.slow
async def test_the_rules_hold_for_an_agent_that_is_made_over_the_api(tmp_path: Path) -> None:
    root = approvals_project(tmp_path / "p", tools={"ask": ["shelf__note"], "deny": ["shelf__wait"]})
    async with fleet_of(root) as (fleet, http):
        (project,) = (await http.get("/projects")).json()["items"]
        made = {"name": "maid", "systemPrompt": "You note things.", "project": project["name"]}
        assert (await http.post("/agents", json=made)).status_code == 201
        asking = asyncio.create_task(say(http, "maid", "note it"))
        (question,) = await open_questions(http)
        assert (question["tool"], question["agent"]) == ("shelf__note", "maid")
        assert await answer(http, question, "decline") == 200
        assert "A person declined" in (await asking)["text"]
        assert "not allowed here" in (await say(http, "maid", "wait for it"))["text"]
        shown = [tool["function"]["name"] for tool in model_record(fleet).requests[-1]["tools"]]
        assert "shelf__note" in shown
        assert "shelf__wait" not in shown
        assert effects(root) == []
        for agent in ("maid", "clerk"):
            rules = (await http.get(f"/agents/{agent}")).json()["toolRules"]
            told = {each["tool"]: each["rule"] for each in rules}
            assert re.fullmatch(
                r"ask of the project: shelf__note \(agents\.yaml:\d+\)", told["shelf__note"]
            ), told
            assert told["shelf__wait"].startswith("deny of the project: shelf__wait (agents.yaml:")
        described = await typed("describe", "agent", "clerk", "--url", fleet.ports.origin)
        assert re.search(r"TOOL +RULE\n", described)
        assert "ask of the project: shelf__note (agents.yaml:" in described
        (front,) = (await http.get("/agents/front")).json()["toolRules"]
        assert front == {"tool": "agent:office", "rule": "allow: no rule names it"}
        shelf = next(each for each in (await fleet.describe("clerk")).servers if each.server)
        assert {each.name: each.rule for each in shelf.tools} == {
            name.removeprefix("shelf__"): rule for name, rule in told.items()
        }


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
async def test_the_rules_hold_behind_a_virtual_server(tmp_path: Path, era: str) -> None:
    root = approvals_project(tmp_path / "p", top={"approvals": {"timeout": 1}})
    async with fleet_of(root) as (fleet, _), virtual(fleet, "/virtual/agent-front/mcp", era=era) as client:
        said = words(await client.call_tool("chat", {"message": "have it noted"}))
        assert "no person answered within 1 s" in "".join(said)
        assert effects(root) == []


async def test_an_agent_that_is_asked_is_a_tool_to_the_rules(tmp_path: Path) -> None:
    rules = {"ask": ["agent:clerk"]}
    root = approvals_project(tmp_path / "p", tools=rules)
    async with fleet_of(root) as (_, http):
        asking = asyncio.create_task(say(http, "front", "have it noted"))
        (question,) = await open_questions(http)
        assert (question["tool"], question["agent"]) == ("agent:clerk", "office")
        assert question["arguments"] == {"message": "note it"}
        assert await answer(http, question, "accept") == 200
        assert "noted it" in (await asking)["text"]


@pytest.mark.slow
async def test_a_sub_agent_and_its_tools_are_asked_about(tmp_path: Path) -> None:
    script = OF_BOSS + SCRIPT.split("rules:\n", 1)[1]
    root = offline_project(
        tmp_path / "p",
        {"boss": CHILD},
        script,
        top={"bind": "127.0.0.1", "tools": {"ask": ["agent:clerk", "shelf__note"]}},
        config={"mcp": {"servers": {"shelf": {"command": "python", "args": ["shelf.py"]}}}},
        files={"shelf.py": SERVER.replace("HERE", str(tmp_path / "p"))},
    )
    async with fleet_of(root) as (_, http):
        asking = asyncio.create_task(say(http, "boss", "have it noted"))
        for tool in ("agent:clerk", "shelf__note"):
            (question,) = await open_questions(http)
            assert question["tool"] == tool
            assert effects(root) == []
            assert await answer(http, question, "accept") == 200
            await until(partial(_is_used, http, question["id"]))
        assert "noted it" in (await asking)["text"]
        assert effects(root) == ["note it"]


async def test_a_router_asks_before_the_agent_it_chose_and_does_not_choose_a_denied_one(
    tmp_path: Path,
) -> None:
    router = {
        "module": None,
        "kind": "router",
        "agents": ["clerk", "office"],
        "fallback": "clerk",
        "peers": None,
    }
    root = approvals_project(
        tmp_path / "p", tools={"ask": ["agent:clerk"], "deny": ["agent:office"]}, keys={"front": router}
    )
    async with fleet_of(root) as (_, http):
        for action in ("accept", "decline"):
            asking = asyncio.create_task(
                http.post("/agents/front/chat", json={"message": "hello", "stream": False})
            )
            (question,) = await open_questions(http)
            assert (question["tool"], question["agent"]) == ("agent:clerk", "front")
            assert await answer(http, question, action) == 200
            said = (await asking).json()
            assert "turn 1" in said["text"] if action == "accept" else "declined" in said["error"]


async def test_a_handler_asks_before_its_messages_to_others(tmp_path: Path) -> None:
    handler = {"module": None, "kind": "handler", "payload": "desk:Topic", "peers": None}
    root = approvals_project(
        tmp_path / "p",
        tools={"ask": ["agent:clerk", "agent:front"]},
        keys={
            "office": {**handler, "handler": "desk:desk", "peers": ["clerk", "front"]},
            "front": {**handler, "handler": "desk:drawer"},
        },
    )
    (root / "desk.py").write_text(textwrap.dedent(DESK))
    async with fleet_of(root) as (_, http):
        for to, reply in (("clerk", "noted it"), ("front", "drawer has front")):
            for action in ("accept", "decline"):
                asking = asyncio.create_task(
                    http.post(
                        "/agents/office/chat", json={"message": f'{{"about": "{to}"}}', "stream": False}
                    )
                )
                (question,) = await open_questions(http)
                assert (question["tool"], question["agent"]) == (f"agent:{to}", "office")
                assert await answer(http, question, action) == 200
                said = (await asking).text
                assert (reply in said) is (action == "accept"), said


async def _is_used(http: httpx2.AsyncClient, id: str) -> Any:  # noqa: A002 - the word of the record
    return (await http.get(f"/questions/{id}")).json()["used"]
