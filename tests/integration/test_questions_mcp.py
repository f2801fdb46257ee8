"""A question of a run reaches the person who called over MCP, in both versions, three agents deep."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import mcp_types as mt
import pytest
from support.asked import accepting, asked_client, asking_project, through, url_of
from support.live import ERAS, running
from support.served import text_of
from support.waiting import poll, until

from pallas.fleet.fleet import Fleet
from pallas.model import Principal
from pallas.model.questions import Question, QuestionAnswer

DEEP = through("desk", "clerk", text="release")


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with running(
        asking_project(tmp_path / "p"), database=f"sqlite:///{tmp_path}/ledger.sqlite3"
    ) as started:
        yield started


async def opened(fleet: Fleet, count: int = 1) -> tuple[Question, ...]:
    """The open questions, once there are that many."""
    questions = fleet.kernel.questions

    def found() -> tuple[Question, ...]:
        return questions.open_here if len(questions.open_here) >= count else ()

    return await until(found)


async def test_the_caller_is_asked_and_its_answer_reaches_the_agent_that_asks(fleet: Fleet) -> None:
    for era in ERAS:
        seen: list[Any] = []

        async def fill(params: Any, seen: list[Any] = seen) -> mt.ElicitResult:
            seen.append(params)
            return accepting({"answer": "main"})

        async with asked_client(url_of(fleet, "front"), era, fill) as client:
            result = await client.call_tool("send_message", {"message": DEEP})
        assert not result.is_error, text_of(result)
        assert "released main" in text_of(result)
        (params,) = seen
        assert "front > desk > clerk" in params.message
        assert "Which branch?" in params.message
        assert params.requested_schema["required"] == ["answer"]
        assert fleet.kernel.questions.open_here == ()


async def test_a_refusal_and_a_form_that_is_closed_reach_the_agent_as_what_they_are(fleet: Fleet) -> None:
    for era in ERAS:
        for action in ("decline", "cancel"):

            async def refuse(params: Any, action: Any = action) -> mt.ElicitResult:
                return mt.ElicitResult(action=action)

            async with asked_client(url_of(fleet, "front"), era, refuse) as client:
                result = await client.call_tool("send_message", {"message": DEEP})
            assert f"nothing, {action}" in text_of(result)


async def test_a_question_that_nobody_answers_expires_and_the_run_goes_on(fleet: Fleet) -> None:
    never = asyncio.Event()

    async def wait(params: Any) -> mt.ElicitResult:
        await never.wait()
        raise AssertionError

    for era in ERAS:
        async with asked_client(url_of(fleet, "front"), era, wait) as client:
            message = through("desk", "clerk", text="release in 0.3")
            call = asyncio.create_task(client.call_tool("send_message", {"message": message}))
            if era == "legacy":
                assert "no answer within 0.3 s" in text_of(await call)
            else:  # the client is still asking its user when the question is over
                (asked,) = await opened(fleet)
                await poll(
                    lambda asked=asked: fleet.kernel.questions.get(asked.id, Principal()),
                    lambda found: found.state == "expired",
                )
                call.cancel()
                await asyncio.wait({call})


async def test_two_questions_at_once_are_asked_at_once(fleet: Fleet) -> None:
    both = asyncio.Barrier(2)

    async def fill(params: Any) -> mt.ElicitResult:
        await both.wait()
        return accepting({"answer": "one" if "first" in params.message else "two"})

    for era in ERAS:
        async with asked_client(url_of(fleet, "front"), era, fill) as client:
            message = through("desk", "clerk", text="two")
            result = await client.call_tool("send_message", {"message": message})
        assert "one two" in text_of(result)


async def test_what_does_not_fit_the_form_is_asked_again(fleet: Fleet) -> None:
    for era in ERAS:
        answers = [{"answer": 7}, {"answer": "main"}]

        async def fill(params: Any, answers: list[Any] = answers) -> mt.ElicitResult:
            return accepting(answers.pop(0))

        async with asked_client(url_of(fleet, "front"), era, fill) as client:
            result = await client.call_tool("send_message", {"message": DEEP})
        assert "released main" in text_of(result)
        assert answers == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_cannot_be_asked_is_told_where_the_answer_is_waited_for(
    fleet: Fleet, era: str
) -> None:
    lines: list[str] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        lines.append(message or "")

    async with asked_client(url_of(fleet, "front"), era, None) as client:
        call = asyncio.create_task(
            client.call_tool("send_message", {"message": DEEP}, progress_callback=hear)
        )
        (asked,) = await opened(fleet)
        line = await until(lambda: next((each for each in lines if "waits for" in each), ""))
        assert f"POST /api/v1/questions/{asked.id}/answer" in line
        assert "Which branch?" in line
        answer = QuestionAnswer("accept", {"answer": "elsewhere"})
        await fleet.kernel.questions.answer(asked.id, answer, Principal())
        assert "released elsewhere" in text_of(await call)


@pytest.mark.parametrize("era", ERAS)
async def test_an_answer_that_comes_another_way_ends_the_question_at_the_caller(
    fleet: Fleet, era: str
) -> None:
    asked_of_user, withdrawn = asyncio.Event(), asyncio.Event()

    async def wait(params: Any) -> mt.ElicitResult:
        asked_of_user.set()
        try:
            if era == "legacy":
                await asyncio.Event().wait()
            await until(lambda: not fleet.kernel.questions.open_here)
        finally:
            withdrawn.set()
        return accepting({"answer": "too late"})

    async with asked_client(url_of(fleet, "front"), era, wait) as client:
        call = asyncio.create_task(client.call_tool("send_message", {"message": DEEP}))
        await asked_of_user.wait()
        (asked,) = await opened(fleet)
        answer = QuestionAnswer("accept", {"answer": "first"})
        await fleet.kernel.questions.answer(asked.id, answer, Principal())
        assert "released first" in text_of(await call)
        await withdrawn.wait()


async def test_a_caller_that_leaves_withdraws_its_questions(fleet: Fleet) -> None:
    for era in ERAS:
        asked_of_user = asyncio.Event()

        async def wait(params: Any, asked_of_user: asyncio.Event = asked_of_user) -> mt.ElicitResult:
            asked_of_user.set()
            await asyncio.Event().wait()
            raise AssertionError

        async with asked_client(url_of(fleet, "front"), era, wait) as client:
            call = asyncio.create_task(client.call_tool("send_message", {"message": DEEP}))
            await asked_of_user.wait()
            (asked,) = await opened(fleet)
            if era == "legacy":
                call.cancel()
                await asyncio.wait({call})
                await poll(
                    lambda asked=asked: fleet.kernel.questions.get(asked.id, Principal()),
                    lambda found: found.state == "withdrawn",
                )
            else:  # no request is open: the run waits for its time, or for an answer of another way
                call.cancel()
                await asyncio.wait({call})
                assert fleet.kernel.questions.open_here[0].id == asked.id
                await fleet.kernel.questions.answer(asked.id, QuestionAnswer("decline"), Principal())
                await until(lambda: not len(fleet.kernel.in_flight))
