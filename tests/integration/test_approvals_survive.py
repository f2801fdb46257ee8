"""Questions and their answers outlive fleets: killed, started again, or answered at another replica."""

import asyncio
import signal
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Any

import pytest
from support.approvals import answer, api, approvals_project, open_questions
from support.databases import KINDS, fresh_database
from support.served import Served, served
from support.survivors import effects, ended_run
from support.waiting import until

from pallas.ledger import open_ledger
from pallas.model.questions import Question
from pallas.questions.question_events import audit_entry


async def asked(fleet: Served, text: str, agent: str = "clerk") -> None:
    """Ask the clerk, until its fleet is gone."""
    with suppress(Exception):  # the connection breaks
        async with api(fleet.registry) as http:
            await http.post(f"/agents/{agent}/chat", json={"message": text, "stream": False})


async def killed_while_asked(root: Path, text: str, agent: str = "clerk") -> dict[str, Any]:
    """The question that a fleet had asked when it was killed."""
    with served(root) as fleet:
        await fleet.says("] running")
        asking = asyncio.create_task(asked(fleet, text, agent))
        async with api(fleet.registry) as http:
            (question,) = await open_questions(http)
        fleet.send(signal.SIGKILL)
        await fleet.ended()
        await asking
    return question


async def answered_meanwhile(url: str, id: str, **values: Any) -> None:  # noqa: A002 - the word of the record
    """Write an answer that another replica took."""
    ledger = await open_ledger(url)
    question = await ledger.questions.get(id)
    assert question is not None
    ended: Question = replace(question, answered_by="anonymous", answered_at=time(), **values)
    assert await ledger.questions.end(ended, audit_entry(ended, "anonymous", ended.action))
    await ledger.close()


@pytest.mark.slow
@pytest.mark.parametrize("action", ["accept", "decline"])
async def test_a_question_is_asked_again_after_a_kill_and_the_call_is_made_once(
    tmp_path: Path, action: str
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite3"
    root = approvals_project(tmp_path / "p", database=url)
    question = await killed_while_asked(root, "have it noted", "front")
    with served(root) as fleet:
        async with api(fleet.registry) as http:
            (again,) = await open_questions(http)
            assert again["id"] == question["id"]
            await fleet.in_flight(3)
            assert await answer(http, again, action) == 200
            run, said = await ended_run(url)
    assert run.status == "ok"
    assert effects(root) == (["note it"] if action == "accept" else [])
    assert "outcome unknown" not in "".join(said)


@pytest.mark.slow
async def test_a_yes_that_came_while_no_fleet_ran_holds(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite3"
    root = approvals_project(tmp_path / "p", database=url)
    question = await killed_while_asked(root, "note it")
    await answered_meanwhile(url, question["id"], state="answered", action="accept")
    with served(root):
        run, said = await ended_run(url)
    assert run.status == "ok"
    assert effects(root) == ["note it"]
    assert "noted it" in "".join(said)


@pytest.mark.slow
async def test_a_question_that_expired_meanwhile_is_a_no(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite3"
    root = approvals_project(tmp_path / "p", database=url, top={"approvals": {"timeout": 10}})
    await killed_while_asked(root, "note it")
    with served(root):
        run, said = await ended_run(url)
    assert run.status == "ok"
    assert effects(root) == []
    assert "no person answered within 10 s" in "".join(said)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["tell", "ask"])
async def test_a_used_yes_does_not_make_the_call_twice(tmp_path: Path, policy: str) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite3"
    root = approvals_project(
        tmp_path / "p",
        database=url,
        tools={"ask": ["shelf__*"]},
        top={"unfinished_calls": {"shelf__wait": policy}},
    )
    with served(root) as fleet:
        await fleet.says("] running")
        asking = asyncio.create_task(asked(fleet, "wait for it"))
        async with api(fleet.registry) as http:
            (question,) = await open_questions(http)
            assert await answer(http, question, "accept") == 200
        await until(lambda: effects(root) == ["wait it"])
        fleet.send(signal.SIGKILL)
        await fleet.ended()
        await asking
    (root / "door").touch()
    with served(root) as fleet:
        if policy == "ask":
            async with api(fleet.registry) as http:
                (again,) = await open_questions(http)
                assert again["id"] != question["id"]
                assert "whether it was done is unknown" in again["message"]
                assert effects(root) == ["wait it"]
                assert await answer(http, again, "accept") == 200
        run, said = await ended_run(url)
    assert run.status == "ok"
    assert effects(root) == ["wait it"] * (2 if policy == "ask" else 1)
    assert ("outcome unknown" in "".join(said)) is (policy == "tell")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_at_another_replica_reaches_the_run(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    async with fresh_database(request.getfixturevalue("postgres")) as postgres:
        url = postgres if kind == "postgresql" else f"sqlite:///{tmp_path}/ledger.sqlite3"
        with ExitStack() as stack:
            roots = [approvals_project(tmp_path / name, database=url, here=tmp_path) for name in ("a", "b")]
            one, two = (stack.enter_context(served(root)) for root in roots)
            for fleet in (one, two):
                await fleet.says("] running")
            asking = asyncio.create_task(asked(one, "have it noted", "front"))
            async with api(two.registry) as http:
                (question,) = await open_questions(http)
                assert (question["agent"], question["path"]) == ("clerk", ["front", "office"])
                assert await answer(http, question, "accept") == 200
                await asking
                assert effects(tmp_path) == ["note it"]
                assert await answer(http, question, "accept") == 409
