"""Typed handlers that ask agents of other kinds, and models: in whose name, and what comes back."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from support.live import MODERN_FIRST, HeardEvents, agent_module, ask, ask_agent, client, module_fleet
from support.offline import offline_model
from support.project_modules import module_at
from support.typed import typed_project
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.model import (
    ANONYMOUS,
    Fault,
    FaultType,
    MessagePassed,
    Principal,
    RunRequest,
    RunStarted,
    ToolEvent,
)
from pallas.runs.kernel import MAX_DEPTH

pytestmark = pytest.mark.asyncio(loop_scope="module")

DESK = """
    import asyncio
    from dataclasses import dataclass

    from pallas.contract import HandlerResponse, SystemError, Text
    from pallas.llm import complete

    heard = []
    holding, held = asyncio.Event(), []

    @dataclass
    class Topic:
        about: str

    @dataclass
    class Sum:
        a: int
        b: int

    async def writer(payload, metadata):
        heard.append((payload, metadata.from_id))
        if isinstance(payload, Topic):
            if payload.about == "plain/later":
                held.append("later")
                await holding.wait()
                held.remove("later")
            to, _, about = payload.about.rpartition("/")
            return HandlerResponse(Text(about), to=to or "poet")
        return HandlerResponse.respond(payload)

    async def asks(payload, metadata):
        if isinstance(payload, Topic):
            return HandlerResponse(payload, to="slow")
        return HandlerResponse.respond(payload)

    async def slow(payload, metadata):
        held.append("slow")
        try:
            await asyncio.Event().wait()
        finally:
            held.remove("slow")

    async def adder(payload, metadata):
        if isinstance(payload, Sum):
            return HandlerResponse(payload, to="plain")
        return HandlerResponse.respond(payload)

    async def thinker(payload, metadata):
        first = await complete(messages=[{"role": "user", "content": f"rhyme {payload.about}"}])
        again = await complete(messages=[{"role": "user", "content": first.content}])
        return HandlerResponse.respond(Text(f"{first.content} | {again.content}"))

    async def plain(request):
        return f"plain had {request.text} of {request.principal}"

    async def holder(request):
        held.append(request.run_id)
        try:
            await holding.wait()
        finally:
            held.remove(request.run_id)
        return "held"

    async def kaput(request):
        raise ValueError("swordfish")
"""
MODEL = """
    rules:
      - when: {regex: 'fall over'}
        error: {status: 400, message: swordfish}
      - say: "a poem: {{ user }}"
"""
TOPIC = {"payload": "Topic", "agent": True}
OTHERS = ["poet", "plain", "holder", "kaput", "front", "hidden"]
ENTRIES: dict[str, dict[str, Any]] = {
    "writer": {**TOPIC, "peers": OTHERS},
    "sender": {**TOPIC, "handler": "desk:writer", "peers": OTHERS, "forward_inbound_auth": True},
    "adder": {"payload": "Sum", "agent": True, "peers": ["plain"]},
    "thinker": TOPIC,
    "asks": {**TOPIC, "peers": ["slow"]},
    "slow": TOPIC,
    "poet": {"module": "agents.poet"},
    "plain": {"kind": "handler", "handler": "desk:plain"},
    "holder": {"kind": "handler", "handler": "desk:holder"},
    "kaput": {"kind": "handler", "handler": "desk:kaput"},
    "hidden": {"kind": "handler", "handler": "desk:plain"},
    "front": {"kind": "router", "agents": ["plain"], "fallback": "plain"},
}


@module_fleet(ready=True)
def fleet(folder: Path) -> Path:
    files = {"agents/__init__.py": "", "agents/poet.py": agent_module("poet")}
    return typed_project(folder / "project", DESK, ENTRIES, **offline_model(MODEL, files=files))


@pytest.fixture(autouse=True)
def desk(fleet: Fleet) -> Any:
    module = module_at(fleet.project.root, "desk")
    module.heard.clear()
    return module


@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_a_model_is_asked_and_its_answer_comes_back_as_text(fleet: Fleet, desk: Any, era: str) -> None:
    # UN-1
    with HeardEvents(fleet) as heard:
        async with client(fleet, "writer", era=era) as caller:
            assert await ask(caller, "the sea") == "a poem: the sea"
    assert [each[1] for each in desk.heard] == ["system.caller", "poet"]
    (outer,) = heard.of(RunStarted, agent="writer")
    (inner,) = heard.of(RunStarted, agent="poet")
    started, completed = heard.of(ToolEvent, run_id=outer.run_id)
    (passed,) = heard.of(MessagePassed, to="poet")
    assert (inner.caller, inner.surface) == ("handler writer", "handler")
    assert inner.parent_span == started.span_id == passed.span_id
    assert inner.trace_id == outer.trace_id
    assert passed.frame.startswith(inner.conversation[:8])
    assert (started.server, started.tool, completed.phase) == ("poet", "send_message", "completed")
    assert fleet.kernel.conversation("poet", passed.frame) is not None


async def test_who_takes_text_gets_it_or_the_json_of_a_message(fleet: Fleet) -> None:
    assert await ask_agent(fleet, "writer", "plain/hello") == "plain had hello of anonymous"
    assert await ask_agent(fleet, "writer", "front/hello") == "plain had hello of anonymous"
    answer = json.loads(await ask_agent(fleet, "adder", '{"a": 1, "b": 2}'))["text"]
    assert answer == 'plain had {"a": 1, "b": 2} of anonymous'


@pytest.mark.parametrize("peer", ["poet/fall over", "kaput/please"])
async def test_what_fails_below_is_told_without_its_words(fleet: Fleet, desk: Any, peer: str) -> None:
    # HC-22, UN-4
    error = json.loads(await ask_agent(fleet, "writer", json.dumps({"about": peer})))
    assert error["code"] == "upstream"
    assert "swordfish" not in str(error)
    assert "swordfish" not in str(desk.heard)
    assert await ask_agent(fleet, "writer", "plain/again") == "plain had again of anonymous"


async def test_a_cancelled_run_cancels_whom_it_asked(fleet: Fleet, desk: Any) -> None:
    run = asyncio.create_task(ask_agent(fleet, "writer", "holder/on"))
    await until(lambda: desk.held)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await until(lambda: not desk.held)
    await until(lambda: fleet.messaging.open_frames == 0)


async def test_a_handler_that_is_stopped_ends_what_others_asked_of_it(fleet: Fleet, desk: Any) -> None:
    run = asyncio.create_task(ask_agent(fleet, "asks", json.dumps({"about": "slow"})))
    await until(lambda: desk.held)
    slow = next(each for each in fleet.agents if each.name == "slow")
    await slow.stop("stopped by hand", 0.1)
    assert not desk.held
    assert json.loads(await run)["code"] == "upstream"
    refused = json.loads(await ask_agent(fleet, "asks", json.dumps({"about": "slow"})))
    assert refused["code"] == "upstream"
    assert await slow.start()


async def test_the_callers_bearer_goes_on_where_the_handler_says_so(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[RunRequest] = []
    run = fleet.kernel.run

    async def recording(request: RunRequest, *more: Any) -> Any:
        asked.append(request)
        return await run(request, *more)

    monkeypatch.setattr(fleet.kernel, "run", recording)
    who = Principal("token:ada")
    for agent in ("writer", "sender"):
        await fleet.kernel.run(RunRequest(agent, "plain/hello", principal=who, bearer="of-the-caller"))
    _, plain, _, forwarded = asked
    assert (plain.bearer, plain.principal, plain.sender, plain.depth) == (None, who, "writer", 1)
    assert (forwarded.bearer, forwarded.sender) == ("of-the-caller", "sender")


async def test_a_principal_reaches_through_a_handler_only_whom_it_may_run(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    # HC-14
    allowed = {ANONYMOUS.id: set(ENTRIES) - {"hidden"}, "token:ada": set(ENTRIES)}
    monkeypatch.setattr(type(fleet.grants), "may_run", lambda self, who, name: name in allowed[who.id])
    answer = await ask_agent(fleet, "writer", "hidden/hello", principal=Principal("token:ada"))
    assert answer == "plain had hello of token:ada"
    refused = await ask_agent(fleet, "writer", '{"about": "hidden/hello"}')
    absent = await ask_agent(fleet, "writer", '{"about": "nobody/hello"}')
    assert refused == absent
    assert json.loads(refused)["code"] == "routing"


async def test_agents_that_ask_each_other_for_ever_end(fleet: Fleet) -> None:
    with pytest.raises(Fault) as deep:
        await ask_agent(fleet, "plain", "hello", depth=MAX_DEPTH + 1)
    assert deep.value.type is FaultType.UPSTREAM
    assert await ask_agent(fleet, "writer", "plain/hello", depth=MAX_DEPTH - 2, sender="adder")
    refused = json.loads(
        await ask_agent(fleet, "writer", '{"about": "plain/x"}', depth=MAX_DEPTH - 1, sender="adder")
    )
    assert refused["code"] == "upstream"


async def test_a_handler_that_an_agent_asks_knows_who_that_is(fleet: Fleet, desk: Any) -> None:
    await ask_agent(fleet, "writer", "plain/hello", sender="poet", depth=1)
    assert desk.heard[0][1] == "poet"


async def test_no_caller_from_outside_can_say_who_it_is(fleet: Fleet, desk: Any) -> None:
    # HC-11
    async with client(fleet, "writer") as caller:
        for key in ("sender", "from_id", "depth"):
            await caller.call_tool("send_message", {"message": "plain/hello", key: "poet"})
    assert {each[1] for each in desk.heard} <= {"system.caller", "plain"}


async def test_what_models_used_for_handlers_is_what_the_run_used(fleet: Fleet) -> None:
    # HC-30
    result = await fleet.kernel.run(RunRequest("thinker", "the sea"))
    assert result.text == "a poem: rhyme the sea | a poem: a poem: rhyme the sea"
    used = fleet.llms.usage("thinker")
    assert result.usage.input_tokens == used.prompt > 0
    assert result.usage.output_tokens == used.completion > 0
    assert (await fleet.kernel.run(RunRequest("writer", "plain/x"))).usage.input_tokens is None


async def test_a_draining_fleet_lets_in_what_its_runs_ask_for(fleet: Fleet, desk: Any) -> None:
    run = asyncio.create_task(ask_agent(fleet, "writer", "plain/later"))
    await until(lambda: desk.held)
    fleet.kernel.refuse()
    try:
        with pytest.raises(Fault, match="draining"):
            await ask_agent(fleet, "writer", "plain/hello")
        desk.holding.set()
        assert await run == "plain had later of anonymous"
    finally:
        fleet.kernel._draining = False
        desk.holding.clear()
