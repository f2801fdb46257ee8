"""Agents, projects and their prompts that are made at one replica appear at all others."""

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from sqlalchemy import event
from support.databases import Server, fresh_database
from support.live import ERAS
from support.served import Served, served, text_of
from support.surfaces import door, rest
from support.survivors import project
from support.waiting import poll

from pallas.ledger import open_ledger

type Body = dict[str, Any]


@dataclass
class Replicas:
    """Two fleets on one database."""

    one: Served
    two: Served


@pytest_asyncio.fixture
async def replicas(database_url: str, tmp_path: Path) -> AsyncIterator[Replicas]:
    with ExitStack() as stack:
        one, two = (
            stack.enter_context(served(project(tmp_path / name, database_url))) for name in ("one", "two")
        )
        for fleet in (one, two):
            await fleet.says("] running")
        yield Replicas(one, two)


async def found(fleet: Served, path: str, seen: Callable[[httpx2.Response], bool]) -> Body:
    """What a fleet answers, once it is as ``seen`` says."""
    async with rest(fleet) as http:
        body: Body = (await poll(lambda: http.get(path), seen)).json()
        return body


def is_ready(answer: httpx2.Response) -> bool:
    return answer.status_code == 200 and answer.json()["state"] == "ready"


@pytest.mark.slow
async def test_what_is_made_changed_or_deleted_at_one_replica_is_so_at_the_other(replicas: Replicas) -> None:
    one, two = replicas.one, replicas.two
    async with rest(one) as at_one, rest(two) as at_two:
        made = await at_one.post("/agents", json={"name": "reviewer", "description": "I review."})
        assert made.status_code == 201, made.text
        there = await found(two, "/agents/reviewer", is_ready)
        assert there["id"] == made.json()["id"]
        for number, era in enumerate(ERAS, 1):
            async with door(two, "/agents/reviewer/mcp", era) as client:
                message = {"message": "hi", "conversation_id": "mine"}
                assert text_of(await client.call_tool("send_message", message)) == f"turn {number}"

        prompts = [{"name": "review", "text": "Review it all."}]
        created = await at_one.post("/projects", json={"name": "ops", "prompts": prompts})
        assert created.status_code == 201, created.text
        ops = await found(two, "/projects/ops", lambda answer: answer.status_code == 200)
        assert ops["prompts"][0]["text"] == "Review it all."

        changed = await at_two.patch("/agents/reviewer", json={"description": "changed", "project": "ops"})
        assert changed.status_code == 200, changed.text
        seen = await found(one, "/agents/reviewer", lambda each: each.json()["description"] == "changed")
        assert seen["project"]["name"] == "ops"

        assert (await at_two.delete("/agents/reviewer")).status_code == 204
        await found(one, "/agents/reviewer", lambda answer: answer.status_code == 404)
        url = f"{one.registry}/agents/reviewer/mcp"
        await poll(lambda: at_one.post(url), lambda answer: answer.status_code == 404)


async def test_a_look_for_changes_is_one_statement(postgres: Server) -> None:
    async with fresh_database(postgres) as url:
        ledger, other = await open_ledger(url), await open_ledger(url)
        statements: list[str] = []
        event.listen(
            ledger.database._engine.sync_engine,  # type: ignore[attr-defined]
            "before_cursor_execute",
            lambda _, cursor, statement, *rest: statements.append(statement),
        )
        await ledger.resources.have_folder()
        before = (await ledger.resources.everything()).mark
        statements.clear()
        assert await ledger.resources.mark() == before
        assert len(statements) == 1
        row = await other.resources.insert("agent", "a1", "jarvis", {"made": True}, "me")
        marks = [before, await ledger.resources.mark()]
        await other.resources.update("agent", row.id, {"description": "more"})
        marks.append(await ledger.resources.mark())
        await other.resources.declare_agents({"butler": "agents.yaml:3"})
        marks.append(await ledger.resources.mark())
        await other.resources.delete("agent", row.id)
        marks.append(await ledger.resources.mark())
        assert len(set(marks)) == len(marks)
        # What changes nothing is none.
        await other.resources.declare_agents({"butler": "agents.yaml:3"})
        assert await ledger.resources.mark() == marks[-1]
        assert (await ledger.resources.everything()).mark == marks[-1]

        for each in (other, ledger):
            await each.close()
