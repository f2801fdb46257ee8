"""A person is asked before a call, through any number of agents, and without a yes nothing is called."""

import asyncio
from pathlib import Path

import pytest
from support.approvals import answer, api, approvals_project, open_questions, say
from support.live import all_ready, running
from support.survivors import effects
from support.waiting import until

from pallas.model import Principal, RunRequest

NOTED = '{"result":"noted it"}'


@pytest.mark.slow
@pytest.mark.usefixtures("forked_children")
@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_a_question_three_agents_deep_reaches_the_caller_over_rest(
    tmp_path: Path, isolation: str
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite3"
    root = approvals_project(tmp_path / "p", keys={"clerk": {"isolation": isolation}})
    async with running(root, database=url) as fleet, api(fleet) as http:
        await until(lambda: all_ready(fleet))
        for action in ("accept", "decline", "cancel"):
            asking = asyncio.create_task(say(http, "front", "have it noted"))
            (question,) = await open_questions(http)
            assert (question["tool"], question["server"]) == ("shelf__note", "shelf")
            assert (question["agent"], question["path"]) == ("clerk", ["front", "office"])
            assert question["arguments"] == {"text": "it"}
            before = list(effects(root))
            assert await answer(http, question, action) == 200
            said = (await asking)["text"]
            if action == "accept":
                assert NOTED in said
                assert effects(root) == [*before, "note it"]
            else:
                assert effects(root) == before
                assert ("A person declined this call" if action == "decline" else "dismissed") in said
                assert "Do not repeat it" in said
            assert await answer(http, question, "accept") == 409
        assert (await http.get("/audit")).status_code == 401
        log = (await fleet.questions.audit(Principal("control:full"))).items
        said = [each.what for each in log]
        assert said == ["cancel", "asked", "decline", "asked", "used", "accept", "asked"]
        assert {each.tool for each in log} == {"shelf__note"}


@pytest.mark.slow
async def test_nobody_answers_and_the_model_is_told_so(tmp_path: Path) -> None:
    root = approvals_project(tmp_path / "p", top={"approvals": {"timeout": 1}})
    async with running(root) as fleet:
        await until(lambda: all_ready(fleet))
        async with asyncio.timeout(60):
            result = await fleet.kernel.run(RunRequest("front", "have it noted"))
        assert "no person answered within 1 s" in result.text
        assert effects(root) == []


@pytest.mark.slow
@pytest.mark.usefixtures("forked_children")
@pytest.mark.parametrize("isolation", ["none", "process"])
@pytest.mark.parametrize("agent", ["front", "clerk"])
async def test_a_question_survives_a_stop_of_the_fleet(tmp_path: Path, agent: str, isolation: str) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite3"
    root = approvals_project(tmp_path / "p", keys={"clerk": {"isolation": isolation}})
    text = "have it noted" if agent == "front" else "note it"
    async with running(root, database=url) as fleet, api(fleet) as http:
        await until(lambda: all_ready(fleet))
        asking = asyncio.create_task(
            http.post(f"/agents/{agent}/chat", json={"message": text, "stream": False})
        )
        (question,) = await open_questions(http)
    await asyncio.wait({asking})
    async with running(root, database=url) as fleet, api(fleet) as http:
        (again,) = await open_questions(http)
        assert again["id"] == question["id"]
        await until(lambda: fleet.questions.open_here)
        assert effects(root) == []
        assert await answer(http, again, "accept") == 200

        async def is_answered() -> bool:
            runs = (await http.get("/runs")).json()["items"]
            return all(each["status"] == "ok" for each in runs)

        await until(is_answered)
        assert effects(root) == ["note it"]
        assert (await http.get(f"/questions/{question['id']}")).json()["used"]
