"""Budgets and times of questions in fleets where handlers ask models, and these handlers again."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from support.backends import servers
from support.live import agent_module, all_ready, ask_agent, running
from support.offline import offline_project
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.llm import backend_request
from pallas.model import BackendChosen, Event, Fault

pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]

CODE = """
from dataclasses import dataclass

from pallas.contract import HandlerResponse, Text
from pallas.llm import BudgetExhausted, complete

rounds = {}


@dataclass
class Ask:
    text: str


async def boss(payload, metadata):
    # Asks the writer for ever, who asks the helper, who asks a model.
    mine = metadata.thread_id
    rounds[mine] = 0 if isinstance(payload, Ask) else rounds[mine] + 1
    if rounds[mine] > 9 or "stopped" in payload.text:
        return HandlerResponse.respond(Text(f"{rounds[mine]}: {payload.text}"))
    return HandlerResponse(Text("go on"), to="writer")


async def helper(payload, metadata):
    try:
        answer = await complete(model="m-1", messages=[{"role": "user", "content": payload.text}])
    except BudgetExhausted as error:
        return HandlerResponse.respond(Text(f"stopped at {error.data['used']}"))
    return HandlerResponse.respond(Text(answer.content))
"""
SCRIPT = """
rules:
  - when: {last: user}
    call: [{tool: helper, arguments: {text: "{{ last }}"}}]
  - {when: {last: tool}, say: "{{ result }}"}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["none", "process"])
async def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Fleet, list[Any], list[Event]]]:
    async with servers(["fine"], ["fine"]) as (first, second):
        given = {"provider": "openai", "supported_models": ["m-"]}
        backends = [
            {**given, "id": name, "base_url": server.base, "priority": number}
            for number, (name, server) in enumerate((("first", first), ("second", second)), 1)
        ]
        typed = {"module": None, "kind": "handler", "payload": "code_of:Ask", "timeout": 20}
        root = offline_project(
            tmp_path_factory.mktemp("trees") / "p",
            {"writer": agent_module("writer"), "boss": None, "helper": None, "quick": None},
            SCRIPT,
            keys={
                "writer": {"peers": ["helper"], "isolation": request.param},
                "boss": {**typed, "handler": "code_of:boss", "agent": True, "peers": ["writer"]},
                "helper": {**typed, "handler": "code_of:helper", "isolation": request.param},
                "quick": {**typed, "handler": "code_of:helper", "timeout": 1.5, "isolation": request.param},
            },
            files={"code_of.py": CODE},
            top={"llm": {"max_tokens_per_thread": 250, "retry_base_delay": 0, "backends": backends}},
        )
        async with running(root) as fleet:
            await until(lambda: all_ready(fleet), timeout=60)
            events: list[Event] = []
            unlisten = fleet.hub.listen(events.append)
            yield fleet, [first, second], events
            unlisten()


@pytest.mark.slow
async def test_a_handler_has_one_budget_for_all_that_is_asked_for_it_through_models(stage: Any) -> None:
    # HC-33
    fleet, _, _ = stage
    assert await ask_agent(fleet, "boss", "hello", conversation="c1") == '5: {"text": "stopped at 200"}'
    assert (
        await ask_agent(fleet, "boss", "hello", conversation="c1") == '1: {"text": "stopped at 200"}'
    )  # over its runs as well
    assert await ask_agent(fleet, "boss", "hello", conversation="c2") == '5: {"text": "stopped at 200"}'


async def test_a_model_at_the_top_has_its_handlers_answer_each_call_anew(stage: Any) -> None:
    # HC-33
    fleet, _, _ = stage
    assert [await ask_agent(fleet, "writer", "hello", conversation="c3") for _ in range(6)] == [
        '{"text": "fine"}'
    ] * 6


@pytest.mark.slow
async def test_a_backend_that_hangs_is_left_though_its_handlers_die_before_its_timeout(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # HC-27
    fleet, both, events = stage
    monkeypatch.setattr(backend_request, "SLOW", 0.1)
    both[0].does[:] = [asyncio.Event()]
    events.clear()
    with pytest.raises(Fault):
        await ask_agent(fleet, "quick", "hello")
    await until(lambda: not both[0].active)
    assert await ask_agent(fleet, "quick", "hello") == "fine"
    ended = [
        (each.backend, each.outcome) for each in events if isinstance(each, BackendChosen) and each.outcome
    ]
    assert ended == [("first", "timeout"), ("second", "ok")]
