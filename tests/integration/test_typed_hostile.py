"""Typed handlers that try what they may not: in the fleet's own process, by all that Python lets them do."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from support.live import module_fleet
from support.offline import offline_model
from support.project_modules import module_at
from support.typed import typed_project
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.model import Fault, FaultType, RunRequest

pytestmark = pytest.mark.asyncio(loop_scope="module")

DESK = """
    import asyncio
    from dataclasses import dataclass

    from pallas.contract import HandlerResponse, SystemError, Text
    from pallas.llm import BudgetExhausted, complete
    from pallas.model import Fault, FaultType

    heard, left = [], {}
    go = asyncio.Event()

    @dataclass
    class Try:
        what: str

    @dataclass
    class Ends:
        what: str

        def __post_init__(self):
            raise KeyboardInterrupt("swordfish")

    class Name(str):
        # Equal to a peer whenever somebody asks, and to the one that is meant the next time.
        def __new__(cls, *names):
            made = str.__new__(cls, names[-1])
            made.names = list(names)
            return made

        def __eq__(self, other):
            return other in self.names

        def __hash__(self):
            return hash(self.names.pop(0) if len(self.names) > 1 else self.names[0])

    class Said(bytes):
        def __bytes__(self):
            return b"<Text><text>another</text></Text>"

    async def sly(payload, metadata):
        if isinstance(payload, Text) and payload.text == "spent" and len(heard) < 50:
            return HandlerResponse(Try("spend"), to="asks")
        if not isinstance(payload, Try):
            return HandlerResponse.respond(Text(getattr(payload, "code", "") or payload.text))
        if payload.what == "hello":
            return HandlerResponse.respond(Text("hello"))
        if payload.what == "fault":
            odd = {"o": object(), "inf": float("inf"), "long": "x" * 9_000, "kept": [1, "two"]}
            raise Fault(FaultType.UPSTREAM, "no luck", data={**odd, "system": "routing", "type": "AUTH"})
        if payload.what == "thread":
            return HandlerResponse.respond(Text(metadata.thread_id))
        if payload.what == "spend":
            return HandlerResponse(payload, to="asks")
        if payload.what == "name":
            return HandlerResponse(Try("hello"), to=Name("peer", "hidden"))
        if payload.what == "bytes":
            return Said(b"<Text><text>what it holds</text></Text>")
        if payload.what == "interrupt":
            raise KeyboardInterrupt("swordfish")
        if payload.what == "leave":
            left["asks"] = asyncio.create_task(complete(messages=[{"role": "user", "content": "slow"}]))
            left["later"] = asyncio.create_task(later())
            await asyncio.sleep(0)
            return HandlerResponse.respond(Text("left"))
        if payload.what == "stay":
            left["stays"] = asyncio.create_task(stays())
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await left["stays"]

    async def stays():
        try:
            await go.wait()
            await complete(messages=[{"role": "user", "content": "x"}])
        except Exception as error:
            left["said"] = str(error)

    async def later():
        await go.wait()
        return await complete(messages=[{"role": "user", "content": "late"}])

    async def peer(payload, metadata):
        heard.append("peer")
        return HandlerResponse.respond(Text("peer"))

    async def asks(payload, metadata):
        try:
            await complete(messages=[{"role": "user", "content": "word " * 100}])
        except BudgetExhausted:
            return HandlerResponse.respond(Text("exhausted"))
        heard.append("spent")
        return HandlerResponse.respond(Text("spent"))

    async def hidden(payload, metadata):
        heard.append("hidden")
        return HandlerResponse.respond(Text("hidden"))

    async def ends(payload, metadata):
        heard.append("ends")
"""
ENTRIES: dict[str, dict[str, Any]] = {
    "sly": {"payload": "Try", "agent": True, "peers": ["peer", "asks"]},
    "peer": {"payload": "Try"},
    "asks": {"payload": "Try"},
    "hidden": {"payload": "Try"},
    "ends": {"payload": "Ends"},
}
MODEL = """
    rules:
      - when: {text: slow}
        say: "slow"
        delay: 60
      - say: "a model: {{ user }}"
"""


@module_fleet(ready=True)
def fleet(folder: Path) -> Path:
    more = offline_model(MODEL, top={"llm": {"max_tokens_per_thread": 1000}})
    return typed_project(folder / "project", DESK, ENTRIES, **more)


@pytest.fixture(autouse=True)
def desk(fleet: Fleet) -> Any:
    module = module_at(fleet.project.root, "desk")
    module.heard.clear()
    module.left.clear()
    module.go.clear()
    return module


async def tries(fleet: Fleet, what: str, agent: str = "sly", **more: Any) -> str:
    result = await fleet.kernel.run(RunRequest(agent=agent, text=json.dumps({"what": what}), **more))
    return result.text


async def test_a_name_that_equals_a_peers_goes_to_nobody_else(fleet: Fleet, desk: Any) -> None:
    # HC-12
    assert "routing" in await tries(fleet, "name")
    assert desk.heard == []


async def test_bytes_are_what_they_hold_whatever_their_class_says(fleet: Fleet) -> None:
    assert "what it holds" in await tries(fleet, "bytes")


@pytest.mark.parametrize("agent", ["sly", "ends"])
async def test_an_interrupt_that_a_handler_raises_ends_its_message_alone(
    fleet: Fleet, desk: Any, agent: str
) -> None:
    # HC-22
    with pytest.raises(Fault) as caught:
        await tries(fleet, "interrupt", agent)
    assert caught.value.type is FaultType.UPSTREAM
    assert "KeyboardInterrupt" in caught.value.cause
    assert "KeyboardInterrupt" not in caught.value.message
    assert "swordfish" not in caught.value.message
    assert "hello" in await tries(fleet, "hello")
    assert desk.heard == []


async def test_a_fault_that_a_handler_raises_says_only_what_can_be_passed_on(fleet: Fleet) -> None:
    with pytest.raises(Fault) as caught:
        await tries(fleet, "fault")
    assert caught.value.data == {"kept": [1, "two"]}
    assert caught.value.system_code == "upstream"


async def test_what_a_handler_leaves_behind_asks_no_model(fleet: Fleet, desk: Any) -> None:
    assert "left" in await tries(fleet, "leave")
    with pytest.raises(Fault, match="the message has been handled"):
        await asyncio.wait_for(desk.left["asks"], 30)
    desk.go.set()
    with pytest.raises(Fault, match="the message has been handled"):
        await asyncio.wait_for(desk.left["later"], 30)
    assert fleet.llms.usage("sly").total == 0


async def test_a_handler_that_goes_on_though_it_was_cancelled_asks_no_model(fleet: Fleet, desk: Any) -> None:
    run = asyncio.create_task(tries(fleet, "stay"))
    await until(lambda: "stays" in desk.left)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    desk.go.set()
    assert "the message has been handled" in await until(lambda: desk.left.get("said"))


async def test_frames_of_one_run_have_one_budget_without_a_conversation_as_well(
    fleet: Fleet, desk: Any
) -> None:
    # HC-33
    assert "exhausted" in await tries(fleet, "spend")
    assert 0 < len(desk.heard) <= 10
    desk.heard.clear()
    assert "exhausted" in await tries(fleet, "spend")
    assert 0 < len(desk.heard) <= 10


@pytest.mark.parametrize(
    "handle", ["00000000-0000-0000-0000-000000000000", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"]
)
async def test_a_handle_that_is_nobodys_uuid_has_a_thread_of_its_own_and_always_the_same(
    fleet: Fleet, handle: str
) -> None:
    # HC-8
    first = await tries(fleet, "thread", conversation=handle, new_conversation=True)
    assert first == await tries(fleet, "thread", conversation=handle)
    assert handle.lower() not in first
