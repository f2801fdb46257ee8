"""A model's peers are its tools: one tree of runs through models and handlers, in whichever process."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import httpx2
import psutil
import pytest
import pytest_asyncio
from support.live import ERAS, MODERN_FIRST, all_ready, ask, client, running
from support.offline import model_record
from support.peered import Tree, held, peered_project
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.model import (
    Event,
    Fault,
    LoopStopped,
    MessagePassed,
    RunFinished,
    RunRequest,
    RunStarted,
    StepStarted,
    TextDelta,
    ToolEvent,
)
from pallas.model.codec import decode_event

pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]
both_eras = pytest.mark.parametrize("era", MODERN_FIRST)
WHOLE = [
    ("desk", "", ""),
    ("office.clerk", "desk", "office.clerk/Task"),
    ("writer", "office.clerk", "writer/send_message"),
    ("adder", "writer", "adder/Add"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["none", "process"])
async def fleet(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Fleet]:
    folder = tmp_path_factory.mktemp(f"peers_{request.param}")
    root = peered_project(folder / "p", isolation=request.param)
    async with running(root, database=f"sqlite:///{folder}/ledger.sqlite3") as fleet:
        await until(lambda: all_ready(fleet), timeout=60)
        yield fleet


def since(fleet: Fleet, seq: int) -> tuple[Event, ...]:
    return fleet.hub.since(seq, 20_000).events


def tree(fleet: Fleet, seq: int) -> Tree:
    """The runs of whatever was asked first since then."""
    events = since(fleet, seq)
    first = next(event for event in events if isinstance(event, RunStarted))
    return Tree(events, first.trace_id)


def of(fleet: Fleet, name: str) -> Any:
    return next(agent for agent in fleet.agents if agent.name == name)


def shown(fleet: Fleet, agent: str) -> dict[str, dict[str, Any]]:
    """The tools that the agent's model was shown last."""
    for request in reversed(model_record(fleet).requests):
        if f"You are {agent}" in json.dumps(request["messages"][0]):
            return {each["function"]["name"]: each["function"] for each in request.get("tools") or ()}
    raise AssertionError(f"{agent} was not asked")


async def test_a_model_sees_its_peers_as_tools_with_the_schemas_of_what_they_take(fleet: Fleet) -> None:
    async with client(fleet, "desk") as desk:
        assert json.loads(await ask(desk, "add 2 3")) == {"total": 5, "says": "desk"}
    tools = shown(fleet, "desk")
    assert list(tools) == ["adder", "office_clerk", "writer", "teller"]
    adder = tools["adder"]
    assert adder["description"].startswith("Adds two numbers. (Agent adder.) It takes one Add. Example: {")
    schema = adder["parameters"]
    assert schema["required"] == ["a"]
    assert schema["properties"]["a"]["type"] == "integer"
    note, nothing = schema["properties"]["note"]["anyOf"]
    assert nothing == {"type": "null"}
    assert note["properties"]["loud"]["type"] == "boolean"
    assert schema["properties"]["more"]["items"] == note
    assert "$ref" not in json.dumps(tools)
    assert tools["writer"]["parameters"]["required"] == ["message"]
    assert "Agent office.clerk" in tools["office_clerk"]["description"]


async def test_optional_and_nested_fields_arrive_as_the_model_gave_them(fleet: Fleet) -> None:
    async with client(fleet, "desk") as desk:
        assert json.loads(await ask(desk, "add with notes")) == {"total": 3, "says": "one+two+three"}


async def test_a_model_is_told_what_to_correct_and_its_next_try_is_answered(fleet: Fleet) -> None:
    before = fleet.hub.seq
    async with client(fleet, "desk") as desk:
        assert json.loads(await ask(desk, "add badly"))["total"] == 42
    calls = [(each.server, each.tool, each.phase) for each in tree(fleet, before).calls]
    assert calls == [("adder", "Add", phase) for phase in ("started", "failed", "started", "completed")]
    said = json.dumps(model_record(fleet).requests[-1]["messages"])
    assert "Error (PROTOCOL, validation): Add.a is" in said
    assert "Correct the arguments and call it again." in said


async def test_a_handler_that_breaks_is_an_error_without_its_own_words(fleet: Fleet) -> None:
    async with client(fleet, "desk") as desk:
        said = await ask(desk, "add 13 1")
    assert said.startswith("Error (UPSTREAM): ")
    assert "secret reason" not in said


@both_eras
async def test_a_run_through_models_and_handlers_is_one_tree_in_events_and_in_the_ledger(
    fleet: Fleet, era: str
) -> None:
    before = fleet.hub.seq
    async with client(fleet, "desk", era=era) as desk:
        assert "clerk has: " in await ask(desk, "have it written 5")
    found = tree(fleet, before)
    assert found.shape == WHOLE
    assert {run.surface for run in found.started} == {"mcp", "peer", "handler"}
    assert {run.principal for run in found.started} == {found.started[0].principal}
    assert [run.caller for run in found.started][1:] == [
        "agent desk",
        "handler office.clerk",
        "agent writer",
    ]
    assert [end.outcome for end in found.finished] == ["ok"] * 4
    # What the ledger keeps of each run says the same.
    ledger = fleet.ledger
    assert ledger is not None
    kept: list[Event] = []
    for run in found.started:
        rows: list[Any] = []
        async with asyncio.timeout(30):
            while not rows or (record := await ledger.runs.get(run.run_id)) is None:
                rows = list(await ledger.runs.events(run.run_id))
                await asyncio.sleep(0.02)
        assert (record.agent, record.status) == (run.agent, "ok")
        kept += [event for _, body in rows if (event := decode_event(body)) is not None]
    assert Tree(kept, found.started[0].trace_id).shape == WHOLE


@both_eras
async def test_a_caller_hears_the_calls_of_all_frames_below(fleet: Fleet, era: str) -> None:
    lines: list[str] = []

    async def progress(_: float, __: float | None, message: str | None) -> None:
        lines.append(message or "")

    async with client(fleet, "desk", era=era) as desk:
        result = await desk.call_tool(
            "send_message", {"message": "have it written 5"}, progress_callback=progress
        )
        assert not result.is_error
    calls = [line for line in lines if "/" in line]
    assert calls == [
        "office.clerk/Task: started",
        "writer/send_message: started",
        "adder/Add: started",
        "adder/Add: completed",
        "writer/send_message: completed",
        "office.clerk/Task: completed",
    ]
    assert {"desk step 1 (llm)", "writer step 1 (llm)"} <= set(lines)


async def test_a_caller_that_hears_text_hears_that_of_peers_under_their_names(fleet: Fleet) -> None:
    heard: list[Event] = []
    result = await fleet.kernel.run(RunRequest("desk", "ask the writer 9", stream_text=True), heard.append)
    said: dict[str, str] = {}
    for event in heard:
        if isinstance(event, TextDelta):
            said[event.actor] = said.get(event.actor, "") + event.text
    assert said == {"": result.text, "writer": result.text, "adder": result.text}
    quiet: list[Event] = []
    await fleet.kernel.run(RunRequest("desk", "ask the writer 9"), quiet.append)
    assert {each.actor for each in quiet if isinstance(each, TextDelta)} == {""}


@both_eras
async def test_a_cancelled_call_cancels_all_runs_below_it(fleet: Fleet, era: str) -> None:
    before, told = fleet.hub.seq, f"hold {era}"
    async with client(fleet, "desk", era=era) as desk:
        call = asyncio.create_task(desk.call_tool("send_message", {"message": told}))
        await until(lambda: [each for each in held(fleet) if each[0] == "begun" and told in each[1]])
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call
        await until(lambda: not len(fleet.kernel.in_flight))
        assert [each[0] for each in held(fleet) if told in each[1]] == ["begun", "cancelled"]
        found = tree(fleet, before)
        assert found.shape == [*WHOLE[:3], ("holder", "writer", "holder/Task")]
        assert {each.agent: each.outcome for each in found.finished} == dict.fromkeys(
            ("desk", "office.clerk", "writer", "holder"), "cancelled"
        )
        assert (await ask(desk, "hello")) == "just hello"


async def test_a_peer_that_somebody_else_ends_is_an_error_and_the_model_goes_on(fleet: Fleet) -> None:
    before = fleet.hub.seq
    asking = asyncio.create_task(fleet.kernel.run(RunRequest("desk", "hold one")))
    await until(lambda: [each for each in held(fleet) if each[0] == "begun" and "hold one" in each[1]])
    held_run = next(run for run in tree(fleet, before).started if run.agent == "writer")
    assert fleet.kernel.cancel(held_run.run_id)
    result = await asking
    await until(lambda: not len(fleet.kernel.in_flight))  # those below it end by themselves
    assert "refused: upstream" in result.text
    outcomes = {each.agent: each.outcome for each in tree(fleet, before).finished}
    assert outcomes == {"desk": "ok", "office.clerk": "ok", "writer": "cancelled", "holder": "cancelled"}


@pytest.mark.slow
async def test_callers_at_once_each_get_their_own_answer(fleet: Fleet) -> None:
    before = fleet.hub.seq
    async with client(fleet, "desk", era=ERAS[0]) as one, client(fleet, "desk", era=ERAS[1]) as two:
        answers = await asyncio.gather(
            *(ask((one, two)[number % 2], f"have it written {number}") for number in range(100, 110))
        )
    for number, answer in zip(range(100, 110), answers, strict=True):
        assert f'\\"total\\": {number}' in answer
    events = since(fleet, before)
    traces = {event.trace_id for event in events if isinstance(event, RunStarted)}
    assert len(traces) == 10
    assert [Tree(events, trace).shape for trace in traces] == [WHOLE] * 10


async def test_calls_made_at_once_have_a_span_each(fleet: Fleet) -> None:
    before = fleet.hub.seq
    async with client(fleet, "desk") as desk:
        assert '"total": 2' in await ask(desk, "both at once")
    assert sorted(tree(fleet, before).shape) == sorted(
        [
            ("desk", "", ""),
            ("adder", "desk", "adder/Add"),
            ("writer", "desk", "writer/send_message"),
            ("adder", "writer", "adder/Add"),
        ]
    )


async def test_a_callers_bearer_goes_to_no_peer(fleet: Fleet) -> None:
    async with client(fleet, "desk", bearer="canary-bearer-0011223344") as desk:
        assert json.loads(await ask(desk, "bearer")) == {"text": "bearer None from desk"}


async def test_the_loop_guard_and_the_allowlist_hold_for_peers(fleet: Fleet) -> None:
    before = fleet.hub.seq
    result = await fleet.kernel.run(RunRequest("desk", "again and again"))
    assert "[Stopped: adder was called 3 times" in result.text
    assert [each.reason for each in since(fleet, before) if isinstance(each, LoopStopped)] == ["repeat"]
    before = fleet.hub.seq
    async with client(fleet, "desk") as desk:
        meta: Any = {"local.pallas/params": {"tools_allowlist": ["office.clerk"]}}
        answer = await desk.call_tool("send_message", {"message": "add 2 3"}, meta=meta)
    assert "adder was not called: it is not allowed in this turn" in answer.content[0].text  # type: ignore[union-attr]
    assert list(shown(fleet, "desk")) == ["office_clerk"]
    calls = [(each.server, each.tool, each.phase) for each in tree(fleet, before).calls]
    assert calls == [("adder", "Add", "started"), ("adder", "Add", "failed")]
    assert tree(fleet, before).shape == [("desk", "", "")]


@pytest.mark.slow
async def test_agents_that_ask_each_other_in_a_circle_come_to_an_end(fleet: Fleet) -> None:
    before = fleet.hub.seq
    async with asyncio.timeout(120):
        result = await fleet.kernel.run(RunRequest("desk", "round and round"))
    assert result.text.startswith("Error (UPSTREAM)")
    runs = [event for event in since(fleet, before) if isinstance(event, RunStarted)]
    assert len(runs) == 33
    await until(lambda: not len(fleet.kernel.in_flight))


async def test_a_run_in_flight_may_ask_its_peers_while_the_fleet_drains(fleet: Fleet) -> None:
    def hear(event: Event) -> None:
        if isinstance(event, StepStarted):
            fleet.kernel.refuse()

    try:
        result = await fleet.kernel.run(RunRequest("desk", "have it written 5"), hear)
    finally:
        fleet.kernel._draining = False
    assert "clerk has" in result.text


async def test_the_tools_follow_the_fleet(fleet: Fleet) -> None:
    async with client(fleet, "desk") as desk:
        await of(fleet, "adder").stop("away")
        try:
            await ask(desk, "hello")
            assert list(shown(fleet, "desk")) == ["office_clerk", "writer", "teller"]
            assert "not available" in await ask(desk, "add 2 3")
        finally:
            await of(fleet, "adder").start()
        await until(lambda: all_ready(fleet))
        assert json.loads(await ask(desk, "add 2 3"))["total"] == 5
        assert sorted(shown(fleet, "desk")) == ["adder", "office_clerk", "teller", "writer"]


async def test_what_a_handler_asks_a_model_is_a_thread_of_that_model_for_the_one_who_began_it(
    fleet: Fleet,
) -> None:
    # UN-1
    before = fleet.hub.seq
    async with client(fleet, "office.clerk") as clerk:
        assert "clerk has" in await ask(clerk, json.dumps({"about": "number 5"}))
    events = since(fleet, before)
    passed = next(e for e in events if isinstance(e, MessagePassed) and e.to == "writer")
    run = next(e for e in events if isinstance(e, RunStarted) and e.agent == "writer")
    assert run.parent_span == passed.span_id
    # The events of that run are those of any run of this agent.
    kinds = {type(each) for each in events if getattr(each, "run_id", "") == run.run_id}
    assert {RunStarted, StepStarted, ToolEvent, RunFinished} <= kinds
    # The same thread, to whoever began it: over MCP by the frame's id, and over REST.
    async with client(fleet, "writer") as writer:
        await ask(writer, "and 6", conversation_id=passed.frame)
    base = fleet.registry_url.partition("/.well-known")[0] + "/api/v1"
    async with httpx2.AsyncClient(base_url=base, trust_env=False, timeout=30) as http:
        record = (await http.get(f"/runs/{run.run_id}")).json()
        runs = (await http.get("/runs", params={"thread": record["threadId"]})).json()["items"]
        answer = await http.get(f"/threads/{record['threadId']}/messages")
    assert answer.status_code == 200, answer.text
    rows = answer.json()["items"]
    assert [row["role"] for row in rows] == ["user", "assistant", "tool", "assistant"] * 2
    assert [row["content"] for row in rows if row["role"] == "user"] == ["write about number 5", "and 6"]
    assert {(each["agent"], each["surface"], each["status"]) for each in runs} == {
        ("writer", "handler", "ok"),
        ("writer", "mcp", "ok"),
    }


@pytest.mark.slow
async def test_a_process_that_dies_takes_what_it_asked_with_it(fleet: Fleet) -> None:
    desk = of(fleet, "desk")
    if desk.executor.pid is None:
        assert desk.config.isolation == "none"  # it can only die with the fleet
        return
    before = fleet.hub.seq
    asking = asyncio.create_task(fleet.kernel.run(RunRequest("desk", "hold dying")))
    await until(lambda: [each for each in held(fleet) if each[0] == "begun" and "hold dying" in each[1]])
    psutil.Process(desk.executor.pid).kill()
    with pytest.raises(Fault, match="its process ended by SIGKILL"):
        await asking
    await until(lambda: not len(fleet.kernel.in_flight))
    outcomes = {each.agent: each.outcome for each in tree(fleet, before).finished}
    assert outcomes == {
        "desk": "error",
        "office.clerk": "cancelled",
        "writer": "cancelled",
        "holder": "cancelled",
    }
    await until(lambda: all_ready(fleet), timeout=60)
    assert json.loads((await fleet.kernel.run(RunRequest("desk", "add 2 3"))).text)["total"] == 5
