"""An approval reaches the person who called over MCP, in both protocol versions, three agents deep."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import mcp_types as mt
import pytest
from mcp import Client, MCPError
from support.approvals import answer, api, approvals_project, open_questions
from support.asked import accepting, asked_client, url_of
from support.live import ERAS, running
from support.served import Served, served, text_of
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.surfaces import parked_calls
from pallas.tasks import is_ended

ANNA, BEN = "anna-token-of-many-characters", "ben-token-of-many-characters"
TOKENS = {
    name: {"sha256": sha256(token.encode()).hexdigest()} for name, token in (("anna", ANNA), ("ben", BEN))
}


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    database = f"sqlite:///{tmp_path}/ledger.sqlite3"
    async with running(approvals_project(tmp_path / "p", database=database), database=database) as started:
        yield started


def noted(fleet: Fleet) -> list[str]:
    """What the tool noted."""
    file = fleet.project.root / "noted.txt"
    return file.read_text().split() if file.exists() else []


@pytest.mark.slow
async def test_a_call_is_made_once_the_caller_allows_it(fleet: Fleet) -> None:
    for era in ERAS:
        seen: list[Any] = []

        async def allow(params: Any, seen: list[Any] = seen) -> mt.ElicitResult:
            seen.append(params)
            return accepting({"decision": "allow once"})

        async with asked_client(url_of(fleet, "front"), era, allow) as client:
            for _ in range(2):  # once is once: the next call asks again
                result = await client.call_tool("send_message", {"message": "have it noted"})
                assert "done: " in text_of(result)
        assert len(seen) == 2
        message, decision = seen[0].message, seen[0].requested_schema["properties"]["decision"]
        assert "front > office > clerk wants to call shelf__note" in message
        assert '"it"' in message
        # A session is a thread.
        always = ["always allow in this thread"] if era == "legacy" else []
        assert decision["enum"] == ["allow once", *always, "refuse"]


@pytest.mark.slow
async def test_always_holds_for_the_thread_alone(fleet: Fleet) -> None:
    for era in ERAS:
        seen: list[Any] = []

        async def allow(params: Any, seen: list[Any] = seen) -> mt.ElicitResult:
            seen.append(params)
            assert "always allow in this thread" in params.requested_schema["properties"]["decision"]["enum"]
            return accepting({"decision": "always allow in this thread"})

        async with asked_client(url_of(fleet, "front"), era, allow) as client:
            for thread in (f"one of {era}", f"one of {era}", f"two of {era}"):
                arguments = {"message": "have it noted", "conversation_id": thread}
                assert "done: " in text_of(await client.call_tool("send_message", arguments))
        assert len(seen) == 2


@pytest.mark.slow
@pytest.mark.parametrize("content", [{"decision": "refuse"}, {"decision": "yes"}, {}])
async def test_whatever_is_not_an_offered_yes_refuses_the_call(fleet: Fleet, content: dict[str, Any]) -> None:
    async def fill(params: Any) -> mt.ElicitResult:
        return accepting(content)

    for era in ERAS:
        async with asked_client(url_of(fleet, "front"), era, fill) as client:
            result = await client.call_tool("send_message", {"message": "have it noted"})
        assert "declined" in text_of(result)


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
async def test_an_answer_over_rest_lets_the_mcp_caller_go_on(fleet: Fleet, era: str) -> None:
    async def wait(params: Any) -> mt.ElicitResult:
        await until(lambda: not fleet.kernel.questions.open_here)
        return mt.ElicitResult(action="decline")  # too late

    for answering in (wait, None):  # a client that is asked, and one that cannot be
        async with asked_client(url_of(fleet, "front"), era, answering) as client, api(fleet) as http:
            call = asyncio.create_task(client.call_tool("send_message", {"message": "have it noted"}))
            (question,) = await open_questions(http)
            assert await answer(http, question, "accept") == 200
            result = await call
            assert "done: " in text_of(result)
            assert "declined" not in text_of(result)


async def test_a_call_that_was_answered_before_its_caller_could_be_asked_returns_its_result(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    next_of = parked_calls._next

    async def late(tasks: Any, id: str, principal: Any, answered: Any) -> Any:  # noqa: A002
        assert is_ended(await tasks.wait(id, principal, 60))
        return await next_of(tasks, id, principal, answered)

    async def never(params: Any) -> mt.ElicitResult:
        raise AssertionError

    monkeypatch.setattr(parked_calls, "_next", late)
    async with asked_client(url_of(fleet, "front"), "2026-07-28", never) as client, api(fleet) as http:
        call = asyncio.create_task(client.call_tool("send_message", {"message": "have it noted"}))
        (question,) = await open_questions(http)
        assert await answer(http, question, "accept") == 200
        assert "done: " in text_of(await call)


async def _retried(client: Client, state: str, answers: dict[str, Any], message: str) -> Any:
    return await client.session.call_tool(
        "send_message",
        {"message": message},
        input_responses=answers,
        request_state=state,
        allow_input_required=True,
    )


@pytest.mark.slow
async def test_no_other_caller_answers_or_joins(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/ledger.sqlite3"
    project = approvals_project(tmp_path / "p", database=database, top={"auth": {"tokens": TOKENS}})
    message, yes = "have it noted", accepting({"decision": "allow once"})

    async def unused(params: Any) -> mt.ElicitResult:
        raise AssertionError

    async with (
        running(project, database=database) as fleet,
        asked_client(url_of(fleet, "front"), ERAS[0], unused, bearer=ANNA) as anna,
        asked_client(url_of(fleet, "front"), ERAS[0], unused, bearer=BEN) as ben,
    ):
        arguments = {"message": message}
        first: Any = await anna.session.call_tool("send_message", arguments, allow_input_required=True)
        ((key, request),) = first.input_requests.items()
        assert request.params.requested_schema["properties"]["decision"]
        # Another caller with the state and the id of the question, as if both had leaked.
        stolen = await _retried(ben, first.request_state, {key: yes}, message)
        assert stolen.is_error
        assert "another caller's" in text_of(stolen)
        async with api(fleet, BEN) as http:
            assert await answer(http, {"id": key}, "accept") == 404
        # A state that was changed, of another message, or made up.
        for state, said in (
            (first.request_state[:-2] + "AA", message),
            (first.request_state, "note two"),
            ("made up", message),
        ):
            with pytest.raises(MCPError, match="Invalid or expired requestState"):
                await _retried(anna, state, {key: yes}, said)
        # An answer to the question of another call of her own.
        other: Any = await anna.session.call_tool("send_message", arguments, allow_input_required=True)
        ((wrong, _),) = other.input_requests.items()
        again: Any = await _retried(anna, first.request_state, {wrong: yes}, message)
        assert list(again.input_requests) == [key]
        questions = {each.id: each for each in fleet.kernel.questions.open_here}
        assert questions.keys() == {key, wrong}
        done = await _retried(anna, again.request_state, {key: yes}, message)
        assert "done: " in text_of(done)
        assert json.loads(json.dumps(done.meta))["local.pallas/runId"] == questions[key].root
        # The result stays for its caller, and for no one else.
        assert text_of(await _retried(anna, again.request_state, {}, message)) == text_of(done)
        assert (await _retried(ben, again.request_state, {}, message)).is_error


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_a_call_that_waits_survives_a_restart_of_the_fleet(tmp_path: Path, how: signal.Signals) -> None:
    root = approvals_project(tmp_path / "p", database=f"sqlite:///{tmp_path}/ledger.sqlite3")
    message, yes = "have it noted", accepting({"decision": "allow once"})

    async def unused(params: Any) -> mt.ElicitResult:
        raise AssertionError

    async def call(fleet: Served, **more: Any) -> Any:
        async with asked_client(fleet.url("front"), ERAS[0], unused) as client:
            arguments = {"message": message, "conversation_id": "a thread that nobody else knows"}
            return await client.session.call_tool(
                "send_message", arguments, allow_input_required=True, **more
            )

    with served(root) as fleet:
        await fleet.says("] running")
        asked = await call(fleet)
        ((key, _),) = asked.input_requests.items()
        fleet.send(how)
        await fleet.ended()
    with served(root) as fleet:
        await fleet.says("] running")
        result = await call(fleet, input_responses={key: yes}, request_state=asked.request_state)
        if result.result_type == "input_required":  # asked again: it had not gone on yet
            answers = dict.fromkeys(result.input_requests, yes)
            result = await call(fleet, input_responses=answers, request_state=result.request_state)
        assert "done: " in text_of(result), text_of(result)
        assert not result.is_error
