"""Who may answer: the caller, or who has the grant; over REST and on the command line."""

import asyncio
import json
from pathlib import Path

import pytest
from support.approvals import answer, api, approvals_project, open_questions, say
from support.granted import TOKENS, auth, rules
from support.live import all_ready, running
from support.served import served
from support.surfaces import command
from support.survivors import effects
from support.waiting import until


@pytest.mark.slow
async def test_only_the_caller_and_who_has_the_grant_answer(tmp_path: Path) -> None:
    grants = {
        "token:ada": ["run:agents"],
        "token:bob": ["approve:agents:office"],
        "token:ci": ["approve:agents:front"],
        "token:eve": ["run:agents", "view:agents"],
    }
    root = approvals_project(tmp_path / "p", top={"auth": auth(), "rbac": rules(grants)})
    url = f"sqlite:///{tmp_path}/ledger.sqlite3"
    async with (
        running(root, database=url) as fleet,
        api(fleet, TOKENS["ada"]) as ada,
        api(fleet, TOKENS["bob"]) as bob,
        api(fleet, TOKENS["eve"]) as eve,
        api(fleet) as nobody,
    ):
        await until(lambda: all_ready(fleet))
        asking = asyncio.create_task(say(ada, "front", "have it noted"))
        (question,) = await open_questions(ada)
        assert question["ownerId"] == "token:ada"
        assert await answer(eve, question, "accept") == 404
        assert (await eve.get("/questions")).json()["items"] == []
        assert await answer(nobody, question, "accept") in (401, 404)
        assert (await nobody.get("/questions")).status_code == 401
        assert (await eve.get("/audit")).status_code == 403
        assert effects(root) == []
        (seen,) = await open_questions(bob)
        assert seen["id"] == question["id"]
        assert await answer(bob, question, "accept") == 200
        assert "noted it" in (await asking)["text"]
        done = (await ada.get(f"/questions/{question['id']}")).json()
        assert (done["answeredBy"], done["used"]) == ("token:bob", True)
        # Of another clerk's question, asked below no agent that is theirs, they see nothing.
        asking = asyncio.create_task(say(ada, "clerk", "note it"))
        (own,) = await open_questions(ada)
        assert await answer(bob, own, "accept") == 404
        assert await answer(ada, own, "decline") == 200
        await asking


@pytest.mark.slow
async def test_questions_are_listed_and_answered_on_the_command_line(tmp_path: Path) -> None:
    root = approvals_project(tmp_path / "p", database=f"sqlite:///{tmp_path}/ledger.sqlite3")
    with served(root) as fleet:
        await fleet.says("] running")
        async with api(fleet.registry) as http:
            asking = asyncio.create_task(say(http, "front", "have it noted"))
            (question,) = await open_questions(http)
            at = ("-p", str(root))
            status, out, _ = await command("get", "questions", *at)
            assert status == 0
            assert question["id"] in out
            assert "front > office > clerk" in out
            status, out, err = await command("answer", question["id"], "--yes", "--no", *at)
            assert status == 2, out + err
            status, out, err = await command("answer", question["id"], "--yes", *at)
            assert (status, out.strip()) == (0, f"{question['id']} accept"), err
            assert "noted it" in (await asking)["text"]
            status, _, err = await command("answer", question["id"], "--no", *at)
            assert status == 1
            assert "this question is over" in err
            status, out, err = await command("get", "audit", "-o", "json", *at)
            assert status == 0, err
            assert [each["what"] for each in json.loads(out)["items"]] == ["used", "accept", "asked"]
