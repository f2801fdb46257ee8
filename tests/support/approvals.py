"""A project whose clerk asks a person before it notes something, three agents deep: front, office, clerk."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from pallas.fleet.fleet import Fleet

from .live import agent_module
from .offline import offline_project
from .survivors import SERVER
from .waiting import until

SCRIPT = """
rules:
  - when: {last: user, text: have it noted}
    call: [{tool: office, arguments: {message: "see to it"}}]
  - when: {last: user, text: see to it}
    say: "One moment."
    call: [{tool: clerk, arguments: {message: "note it"}}]
  - when: {last: user, text: note two}
    call:
      - {tool: shelf__note, arguments: {text: "one"}}
      - {tool: shelf__note, arguments: {text: "two"}}
  - when: {last: user, text: note it}
    say: "I ask."
    call: [{tool: shelf__note, arguments: {text: "it"}}]
  - when: {last: user, text: wait for it}
    call: [{tool: shelf__wait, arguments: {text: "it"}}]
  - when: {last: user, text: note bare}
    call: [{tool: note, arguments: {text: "bare"}}]
  - when: {last: user, text: note loud}
    call: [{tool: SHELF__Note, arguments: {text: "loud"}}]
  - when: {last: tool}
    say: "done: {{ result }}"
  - when: {last: user}
    say: "turn {{ turns }}"
"""


def approvals_project(
    root: Path,
    *,
    database: str = "",
    tools: Mapping[str, Any] | None = None,
    of_clerk: Mapping[str, Any] | None = None,
    top: Mapping[str, Any] | None = None,
    keys: Mapping[str, Mapping[str, Any]] | None = None,
    here: Path | None = None,
    script: str = SCRIPT,
) -> Path:
    """The project; ``tools`` are its rules, ``of_clerk`` the clerk's, ``keys`` further keys by agent."""
    given = keys or {}
    return offline_project(
        root,
        {
            "front": agent_module("front"),
            "office": agent_module("office"),
            "clerk": agent_module("clerk", ("shelf",)),
        },
        script,
        keys={
            "front": {"peers": ["office"], **given.get("front", {})},
            "office": {"peers": ["clerk"], **given.get("office", {})},
            "clerk": {**({"tools": of_clerk} if of_clerk else {}), **given.get("clerk", {})},
        },
        top={
            "bind": "127.0.0.1",
            **({"database_url": database} if database else {}),
            "tools": {"ask": ["shelf__note"]} if tools is None else tools,
            **(top or {}),
        },
        config={"mcp": {"servers": {"shelf": {"command": "python", "args": ["shelf.py"]}}}},
        files={"shelf.py": SERVER.replace("HERE", str(here or root))},
    )


@asynccontextmanager
async def api(fleet: Fleet | str, bearer: str = "") -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the REST API of a fleet, or of the one at that origin."""
    origin = fleet if isinstance(fleet, str) else fleet.ports.origin
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    async with httpx2.AsyncClient(
        base_url=f"{origin}/api/v1", trust_env=False, timeout=90, headers=headers
    ) as http:
        yield http


async def say(http: httpx2.AsyncClient, agent: str, message: str, **more: Any) -> dict[str, Any]:
    """An agent's answer to a message over REST."""
    answer = await http.post(f"/agents/{agent}/chat", json={"message": message, "stream": False, **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def open_questions(http: httpx2.AsyncClient, number: int = 1, **query: str) -> list[dict[str, Any]]:
    """The open questions, once there are so many."""

    async def found() -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = (await http.get("/questions", params=query)).json()["items"]
        return items if len(items) == number else []

    questions: list[dict[str, Any]] = await until(found)
    return questions


async def answer(http: httpx2.AsyncClient, question: Mapping[str, Any], action: str, **more: Any) -> int:
    """Answer a question; the status."""
    path = f"/questions/{question['id']}/answer"
    return (await http.post(path, json={"action": action, **more})).status_code
