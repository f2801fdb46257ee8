"""Typed handlers of a fleet, asked as MCP clients ask: what they get, what comes back, who is told what."""

import asyncio
import json
import re
import uuid
from pathlib import Path
from typing import Any

import pytest
from support.bridged import refused, tell
from support.live import ERAS, MODERN_FIRST, ask, ask_agent, client, module_fleet
from support.project_modules import module_at
from support.served import fault_in
from support.typed import typed_project
from support.virtual import virtual
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.model import AgentState, Fault, FaultType, Image, RunRequest

pytestmark = pytest.mark.asyncio(loop_scope="module")

DESK = '''
    import asyncio
    from dataclasses import dataclass, field, replace

    import others
    from pallas.contract import HandlerMetadata, HandlerResponse, SystemError, Text, scratch

    heard: list[tuple[str, object, HandlerMetadata]] = []

    @dataclass
    class Greeting:
        """Who is greeted, and how loud."""

        name: str
        times: int = 1

    @dataclass
    class Shout:
        text: str
        times: int = 1

    @dataclass
    class Loud:
        text: str

    @dataclass
    class Number:
        value: int

    @dataclass
    class Facts:
        """What a handler was told."""

        own_name: str | None
        from_id: str
        thread_id: str
        is_self_call: bool
        usage: str

    async def greeter(payload, metadata):
        heard.append(("greeter", payload, metadata))
        if isinstance(payload, Greeting):
            return HandlerResponse(Shout(f"hello {payload.name}", payload.times), to="shouter")
        return HandlerResponse.respond(payload)

    async def shouter(payload, metadata):
        heard.append(("shouter", payload, metadata))
        return HandlerResponse(Loud(" ".join([payload.text.upper()] * payload.times)), to=metadata.from_id)

    async def silent(payload, metadata):
        heard.append(("silent", payload, metadata))

    async def counter(payload, metadata):
        heard.append(("counter", payload, metadata))
        if payload.value > 0:
            return HandlerResponse(Number(payload.value - 1), to="counter")
        return HandlerResponse.respond(Text("counted"))

    async def facts(payload, metadata):
        heard.append(("facts", payload, metadata))
        told = Facts(
            metadata.own_name, metadata.from_id, metadata.thread_id, metadata.is_self_call,
            metadata.usage_instructions,
        )
        metadata.from_id, metadata.thread_id = "somebody", "else"
        return HandlerResponse.respond(told)

    async def knowing(payload, metadata):
        return await facts(payload, metadata)

    async def hop(payload, metadata, to):
        heard.append((metadata.own_name, payload, metadata))
        if isinstance(payload, Greeting):
            return HandlerResponse(payload, to=to)
        return HandlerResponse.respond(payload)

    async def hop_one(payload, metadata):
        return await hop(payload, metadata, "hop.two")

    async def hop_two(payload, metadata):
        return await hop(payload, metadata, "hop.three")

    async def hop_three(payload, metadata):
        return await hop(payload, metadata, "facts")

    async def tally(payload, metadata):
        """Adds in its frame's own storage, a message at a time, beside others who do the same."""
        heard.append(("tally", payload, metadata))
        kept = scratch()
        kept["sum"] = kept.get("sum", 0) + payload.value
        kept["threads"] = {*kept.get("threads", ()), metadata.thread_id}
        await asyncio.sleep(0)
        if payload.value % 10:
            return HandlerResponse(Number(payload.value - 1), to="tally")
        return HandlerResponse.respond(Text(f"{kept['sum']} {' '.join(kept['threads'])}"))

    async def asker(payload, metadata):
        heard.append(("asker", payload, metadata))
        if isinstance(payload, Greeting):
            return HandlerResponse(Text("who?"), to="stranger")
        return HandlerResponse.respond(Text(type(payload).__name__))

    async def stranger(payload, metadata):
        heard.append(("stranger", payload, metadata))
        return HandlerResponse.respond(others.Unheard("of"))

    async def price(payload, metadata):
        heard.append((metadata.own_name, payload, metadata))
        return HandlerResponse.respond(Text(metadata.own_name))

    async def buyer(payload, metadata):
        """Asks all that share a name, and answers when two have."""
        if isinstance(payload, Greeting):
            return HandlerResponse(payload, to="prices")
        heard.append(("buyer", payload, metadata))
        said = scratch().setdefault("said", [])
        said.append(payload.text)
        if len(said) == 2:
            return HandlerResponse.respond(Text(" ".join(sorted(said))))

    async def broken(payload, metadata):
        raise ValueError("the password is swordfish")

    async def odd(payload, metadata):
        return "just text"

    async def leaver(payload, metadata):
        raise SystemExit(3)

    async def sleeper(payload, metadata):
        heard.append(("sleeper", payload, metadata))
        await asyncio.Event().wait()

    async def holder(payload, metadata):
        heard.append(("holder", payload, metadata))
        await asyncio.Event().wait()

    async def hurt(payload, metadata):
        """Asks the one of that name, and answers what came."""
        if isinstance(payload, Greeting):
            return HandlerResponse(Greeting("x"), to=payload.name)
        return HandlerResponse.respond(payload)

    def sync(payload, metadata):
        heard.append(("sync", payload, metadata))
        return HandlerResponse.respond(payload)

    async def alone(payload):
        heard.append(("alone", payload, None))
'''
OTHERS = """
    from dataclasses import dataclass

    @dataclass
    class Unheard:
        what: str
"""
GREETING = {"payload": "Greeting"}
NUMBER = {"payload": "Number"}
ENTRIES: dict[str, dict[str, Any]] = {
    "greeter": {**GREETING, "agent": True, "peers": ["shouter"]},
    "shouter": {"payload": "Shout"},
    "silent": GREETING,
    "counter": {**NUMBER, "agent": True},
    "facts": GREETING,
    "knowing": {**GREETING, "agent": True, "peers": ["shouter"]},
    "hop.one": {**GREETING, "agent": True, "peers": ["hop.two"]},
    "hop.two": {**GREETING, "agent": True, "peers": ["hop.three"]},
    "hop.three": {**GREETING, "agent": True, "peers": ["facts"]},
    "tally": NUMBER,
    "asker": {**GREETING, "peers": ["stranger"]},
    "stranger": {"payload": "pallas.contract:Text"},
    "buyer": {**GREETING, "peers": ["prices"]},
    "prices": {**GREETING, "handler": "desk:price", "agent": True, "broadcast": True},
    "prices.2": {
        **GREETING,
        "handler": "desk:price",
        "agent": True,
        "broadcast": True,
        "group": "prices",
    },
    "broken": GREETING,
    "odd": GREETING,
    "leaver": GREETING,
    "sleeper": {**GREETING, "timeout": 0.2},
    "holder": GREETING,
    "hurt": {**GREETING, "agent": True, "peers": ["broken", "odd", "sleeper", "leaver"]},
    "sync": GREETING,
    "alone": GREETING,
}


@module_fleet()
def fleet(folder: Path) -> Path:
    return typed_project(folder / "project", DESK, ENTRIES, files={"others.py": OTHERS})


@pytest.fixture(autouse=True)
def desk(fleet: Fleet) -> Any:
    """The handlers' module; what they heard is forgotten before each test."""
    module = module_at(fleet.project.root, "desk")
    module.heard.clear()
    return module


@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_a_message_goes_from_one_to_the_other_and_its_answer_back(
    fleet: Fleet, desk: Any, era: str
) -> None:
    # HC-3, HC-4, HC-6, HC-7, HC-16
    async with client(fleet, "greeter", era=era) as caller:
        assert json.loads(await ask(caller, '{"name": "Ann", "times": 2}')) == {"text": "HELLO ANN HELLO ANN"}
        assert await ask(caller, "<Greeting><name>a &amp; b</name></Greeting>") == (
            "<Loud><text>HELLO A &amp; B</text></Loud>"
        )
        assert await ask(caller, "Carl") == "HELLO CARL"
    first, shout, back = desk.heard[:3]
    assert (first[0], first[1], first[2].from_id) == ("greeter", desk.Greeting("Ann", 2), "system.caller")
    assert (shout[0], shout[1], shout[2].from_id) == ("shouter", desk.Shout("hello Ann", 2), "greeter")
    assert (back[0], back[1], back[2].from_id) == ("greeter", desk.Loud("HELLO ANN HELLO ANN"), "shouter")
    assert first[2].thread_id == back[2].thread_id != shout[2].thread_id


@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_what_is_no_message_reaches_no_handler_and_its_sender_is_told_what_is(
    fleet: Fleet, desk: Any, era: str
) -> None:
    # HC-2
    async with client(fleet, "counter", era=era) as caller:
        for text, said in (
            ('{"value": "many"}', "value"),
            ('{"valeu": 3}', "valeu"),
            ("<Number><value>x</value></Number>", "value"),
            ("<Number><value>1</value>", "Number"),
            ("<Other><value>1</value></Other>", "Number"),
            ("how many are there?", '{"value"'),
            ('<!DOCTYPE x [<!ENTITY e "1">]><Number><value>&e;</value></Number>', "Number"),
        ):
            fault = fault_in(await caller.call_tool("send_message", {"message": text}))
            assert fault["data"]["type"] == "PROTOCOL"
            assert said in fault["error"]
    assert not desk.heard


async def test_a_message_that_does_not_fit_leaves_a_session_of_the_bridge_as_it_is(fleet: Fleet) -> None:
    # HC-2: the handler never saw it, so nothing is wrong with the next one.
    async with virtual(fleet, "/mcp", era=ERAS[0]) as door:
        session = (await tell(door, "sessions_create", agentId="shouter"))["sessionId"]
        for wrong in ('{"text": "hi", "times": "many"}', "<Shout><text>hi</text", '{"times": 2}'):
            error = await refused(door, "sessions_prompt", sessionId=session, prompt=wrong)
            assert (error["data"]["type"], error["data"]["sessionValid"]) == ("PROTOCOL", True)
        said = await tell(door, "sessions_prompt", sessionId=session, prompt='{"text": "hi"}')
        assert json.loads(said["text"]) == {"text": "HI"}
        # One that breaks on a message fails its session, as every other agent.
        broken = (await tell(door, "sessions_create", agentId="broken"))["sessionId"]
        error = await refused(door, "sessions_prompt", sessionId=broken, prompt='{"name": "Ada"}')
        assert (error["data"]["type"], error["data"]["sessionValid"]) == ("UPSTREAM", False)


async def test_one_that_handles_as_many_messages_as_it_may_is_busy(fleet: Fleet, desk: Any) -> None:
    # DR-31, HC-31
    def availability() -> str:
        return next(each.availability for each in fleet.snapshot().agents if each.name == "holder")

    assert availability() == "ready"
    runs = [asyncio.create_task(ask_agent(fleet, "holder", '{"name": "Ada"}')) for _ in range(5)]
    try:
        await until(lambda: len(desk.heard) == 5)
        assert availability() == "busy"
    finally:
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)
    await until(lambda: availability() == "ready")


@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_nothing_returned_is_an_empty_answer(fleet: Fleet, desk: Any, era: str) -> None:
    # HC-5
    async with client(fleet, "silent", era=era) as caller:
        async with asyncio.timeout(30):
            assert await ask(caller, '{"name": "Ann"}') == ""
    assert [each[0] for each in desk.heard] == ["silent"]


async def test_who_sends_to_itself_goes_on_in_its_frame_until_it_responds(fleet: Fleet, desk: Any) -> None:
    # HC-9
    assert await ask_agent(fleet, "counter", '{"value": 3}') == '{"text": "counted"}'
    told = [each[2] for each in desk.heard]
    assert [each[1].value for each in desk.heard] == [3, 2, 1, 0]
    assert [each.is_self_call for each in told] == [False, True, True, True]
    assert [each.from_id for each in told] == ["system.caller", "counter", "counter", "counter"]
    assert len({each.thread_id for each in told}) == 1


async def test_metadata_say_what_they_may(fleet: Fleet, desk: Any) -> None:
    # HC-8
    told = json.loads(await ask_agent(fleet, "facts", '{"name": "Ann"}'))
    assert told["own_name"] is None
    assert (told["from_id"], told["is_self_call"], told["usage"]) == ("system.caller", False, "")
    assert str(uuid.UUID(told["thread_id"])) == told["thread_id"]
    told = json.loads(await ask_agent(fleet, "knowing", '{"name": "Ann"}'))
    assert told["own_name"] == "knowing"
    assert "shouter" in told["usage"]
    assert "Shout" in told["usage"]


async def test_nobody_learns_of_others_than_the_last_hop_and_its_own_peers(fleet: Fleet, desk: Any) -> None:
    # HC-17, HC-20
    told = json.loads(await ask_agent(fleet, "hop.one", '{"name": "Ann", "times": 2}'))
    assert told["from_id"] == "hop.three"
    assert [each[0] for each in desk.heard] == [
        "hop.one",
        "hop.two",
        "hop.three",
        "facts",
        "hop.three",
        "hop.two",
        "hop.one",
    ]
    assert len({each[2].from_id for each in desk.heard[:4]}) == 4
    allowed = {
        "hop.one": {"system.caller", "hop.one", "hop.two"},
        "hop.two": {"hop.one", "hop.two", "hop.three"},
        "hop.three": {"hop.two", "hop.three"},
        "facts": {"hop.three"},
    }
    for name, payload, metadata in desk.heard:
        if name == "facts" or isinstance(payload, desk.Greeting):  # the way back carries what was answered
            said = set(re.findall(r"(?:hop|system)[.](?!todo)\w+", f"{payload!r} {metadata!r}"))
            assert said <= allowed[name], (name, said)


async def test_twenty_conversations_with_one_agent_never_mix(fleet: Fleet, desk: Any) -> None:
    # HC-19
    async def one(number: int, connected: Any) -> tuple[int, int, str]:
        handle = str(uuid.uuid4()) if number % 2 else f"conversation {number}"
        answer = await ask(connected, f'{{"value": {number * 10 + 3}}}', conversation_id=handle)
        total, *threads = json.loads(answer)["text"].split()
        assert len(threads) == 1
        if number % 2:
            assert threads[0] == handle
        return number, int(total), threads[0]

    async with client(fleet, "tally") as connected:
        found = await asyncio.gather(*(one(number, connected) for number in range(20)))
    assert len({thread for _, _, thread in found}) == 20
    assert all(total == 4 * number * 10 + 6 for number, total, _ in found)
    assert len(desk.heard) == 80


async def test_a_conversation_has_the_same_thread_again_and_no_handle_tells_anothers(fleet: Fleet) -> None:
    # HC-25
    async def thread(agent: str, **more: Any) -> str:
        found: str = json.loads(await ask_agent(fleet, agent, '{"name": "Ann"}', **more))["thread_id"]
        return found

    assert await thread("facts", conversation="mine") == await thread("facts", conversation="mine")
    assert await thread("facts", conversation="mine") != await thread("knowing", conversation="mine")
    assert await thread("facts") != await thread("facts")
    own = str(uuid.uuid4())
    assert await thread("facts", conversation=own) == own


async def test_an_answer_of_a_class_that_the_caller_does_not_know_comes_as_its_senders(
    fleet: Fleet, desk: Any
) -> None:
    # HC-7
    assert await ask_agent(fleet, "asker", '{"name": "Ann"}') == '{"text": "Unheard"}'
    came = desk.heard[-1][1]
    assert isinstance(came, module_at(fleet.project.root, "others").Unheard)


@pytest.mark.parametrize("agent", ["broken", "odd", "leaver"])
async def test_a_handler_that_fails_says_nothing_of_it_to_others(
    fleet: Fleet, caplog: pytest.LogCaptureFixture, agent: str
) -> None:
    # HC-22
    async with client(fleet, agent) as caller:
        fault = fault_in(await caller.call_tool("send_message", {"message": '{"name": "Ann"}'}))
    assert (fault["data"]["type"], fault["code"]) == ("UPSTREAM", -32002)
    assert "swordfish" not in str(fault)
    assert "just text" not in str(fault)
    (record,) = [each for each in caplog.records if each.exc_info and agent in each.getMessage()]
    assert "desk.py:" in record.getMessage()
    error = json.loads(await ask_agent(fleet, "hurt", json.dumps({"name": agent})))
    assert error["code"] == "upstream"
    assert "swordfish" not in str(error)
    assert await ask_agent(fleet, "greeter", "Carl") == "HELLO CARL"


async def test_a_handler_that_takes_too_long_is_cancelled_and_its_caller_goes_on(fleet: Fleet) -> None:
    # HC-32
    with pytest.raises(Fault) as late:
        await ask_agent(fleet, "sleeper", '{"name": "Ann"}')
    assert (late.value.type, late.value.retryable) == (FaultType.TIMEOUT, True)
    error = json.loads(await ask_agent(fleet, "hurt", '{"name": "sleeper"}'))
    assert (error["code"], error["retry_allowed"]) == ("timeout", True)


async def test_what_cannot_be_a_handler_is_told_with_its_place_and_never_run(fleet: Fleet, desk: Any) -> None:
    # HC-1
    agents = {each.name: each for each in fleet.agents}
    lines = (fleet.project.root / "desk.py").read_text("utf-8").splitlines()
    for name, line, said in (
        ("sync", "def sync(payload, metadata):", "is not asynchronous"),
        ("alone", "async def alone(payload):", "takes only payload and no metadata"),
    ):
        assert agents[name].state is AgentState.ERROR
        assert agents[name].reason.startswith(
            f"desk.py:{lines.index(line) + 1}: handler desk:{name} of {name}"
        )
        assert said in agents[name].reason
        with pytest.raises(Fault):
            await ask_agent(fleet, name, '{"name": "Ann"}')
    assert not desk.heard
    assert agents["greeter"].state is AgentState.READY


async def test_those_that_share_a_name_are_all_asked(fleet: Fleet, desk: Any) -> None:
    assert await ask_agent(fleet, "buyer", "Ann") == "prices prices.2"
    back = [metadata for who, _, metadata in desk.heard if who == "buyer"]
    assert {each.from_id for each in back} == {"prices"}
    assert {each[0] for each in desk.heard} == {"prices", "prices.2", "buyer"}


async def test_pictures_are_refused(fleet: Fleet, desk: Any) -> None:
    with pytest.raises(Fault) as refused:
        await ask_agent(fleet, "greeter", "Carl", images=(Image("aGk=", "image/png"),))
    assert "image" in refused.value.message
    assert not desk.heard


@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_clients_are_told_what_a_message_has_to_be(fleet: Fleet, era: str) -> None:
    async with client(fleet, "greeter", era=era) as caller:
        tools = {each.name: each for each in (await caller.list_tools()).tools}
    said = tools["send_message"].description or ""
    assert said.startswith("Send a message to greeter: Takes messages as greeter.\n\n")
    assert "The message is Greeting as JSON, for example {" in said
    assert "or the text of `name` alone" in said


async def test_what_a_handler_takes_and_whom_it_asks_can_be_looked_up(fleet: Fleet) -> None:
    found = await fleet.describe("greeter")
    assert found.payload is not None
    assert found.payload.name == "Greeting"
    assert set(json.loads(found.payload.input_schema)["properties"]) == {"name", "times"}
    assert found.payload.example.startswith("<Greeting>")
    assert found.peers == ("shouter",)
    assert found.defined.startswith("desk.py:")
    assert next(each for each in fleet.snapshot().agents if each.name == "greeter").kind == "handler"


async def test_every_message_of_a_run_is_kept_for_operators(fleet: Fleet) -> None:
    result = await fleet.kernel.run(RunRequest("greeter", "Carl"))
    kept = fleet.messages.envelopes(result.run_id)
    assert [(each.sender, each.to, each.route) for each in kept] == [
        ("system.caller", "greeter", "call"),
        ("greeter", "shouter", "call"),
        ("shouter", "greeter", "respond"),
        ("greeter", "system.caller", "result"),
    ]
    assert "hello Carl" in kept[1].xml
    assert fleet.messages.envelopes(result.run_id, after=3) == kept[3:]
    (step,) = await fleet.kernel.step_reader.list(result.run_id)
    assert (step.kind, step.name, step.state, step.parent) == ("agent", "shouter", "done", 0)
    assert fleet.messaging.open_frames == 0
