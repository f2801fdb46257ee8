"""Calls, answers, self-calls and silence: what handlers say to each other arrives as they mean it."""

import logging
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest
from support.pumped import Answer, Ask, Handler, World, echo, knows, respond, to

from pallas.contract import Document, HandlerMetadata, HandlerResponse, SystemError, Text
from pallas.messaging.delivery import CALLER
from pallas.model import Fault, FaultType, ToolEvent


@knows
@dataclass
class Sum:
    """Two numbers."""

    a: int
    b: int


@knows
@dataclass
class Total:
    """Their sum."""

    value: int


async def add(payload: Sum, metadata: HandlerMetadata) -> HandlerResponse:
    """The pure tool of the seed: it answers whoever called by name."""
    return HandlerResponse(Total(payload.a + payload.b), metadata.from_id)


def adder(name: str = "add") -> Handler:
    return Handler(name, add, takes=Sum)


async def asks_then_tells(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
    if isinstance(payload, Ask):
        return HandlerResponse(Sum(2, 3), "add")
    return respond(f"{payload.value} from {metadata.from_id}")


async def test_a_message_reaches_its_target_from_its_sender_and_the_answer_comes_back() -> None:
    # HC-3, HC-4, HC-6, HC-7, HC-16, X4: the caller takes Ask, and is answered a Total
    world = World(Handler("ask", asks_then_tells, peers=["add"]), adder())
    assert await world.send("ask", Ask("go")) == Answer("5 from add")
    assert world["add"].got == [Sum(2, 3)]
    [below] = world["add"].seen
    assert below.from_id == "ask"
    first, second = world["ask"].seen
    assert (first.from_id, second.from_id) == (CALLER, "add")
    assert first.thread_id == second.thread_id != below.thread_id
    for each in (first, below):
        assert str(UUID(each.thread_id)) == each.thread_id
    assert world.clean()


async def test_what_a_handler_is_told_without_peers_and_without_being_an_agent() -> None:
    # HC-8
    world = World(Handler("plain", echo), Handler("named", echo, agent=True))
    await world.send("plain", Ask("x"))
    await world.send("named", Ask("x"))
    [plain], [named] = world["plain"].seen, world["named"].seen
    assert plain == HandlerMetadata(plain.thread_id, CALLER, None, False, "")
    assert named == HandlerMetadata(named.thread_id, CALLER, "named", False, "")


async def test_silence_ends_the_run_with_nothing() -> None:
    # HC-5
    async def silent(payload: Any, metadata: HandlerMetadata) -> None:
        return None

    async def calls(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        return to("silent")

    world = World(Handler("silent", silent), Handler("calls", calls, peers=["silent"]))
    assert await world.send("silent", Ask()) is None
    assert await world.send("calls", Ask()) is None
    assert world["silent"].got == [Ask(), Ask()]
    assert world.clean()
    assert [each.left for each in world.messages(route="end", run_id="run-2")] == [
        world["silent"].seen[1].thread_id,
        world["calls"].seen[0].thread_id,
    ]


async def test_self_calls_iterate_in_one_frame_and_then_answer_the_caller() -> None:
    # HC-9, X3, X10: peers are declared and lack the handler itself
    async def counts(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        if isinstance(payload, Total):
            return respond("never asked")
        if len(payload.text) < 3:
            return to("counts", payload.text + "x")
        return respond(payload.text)

    async def calls(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        return to("counts") if isinstance(payload, Ask) else respond(f"{metadata.from_id}: {payload.text}")

    world = World(
        Handler("counts", counts, peers=["add"]), adder(), Handler("calls", calls, peers=["counts"])
    )
    assert await world.send("calls", Ask()) == Answer("counts: xxx")
    seen = world["counts"].seen
    assert [each.is_self_call for each in seen] == [False, True, True, True]
    assert [each.from_id for each in seen] == ["calls", "counts", "counts", "counts"]
    assert len({each.thread_id for each in seen}) == 1
    assert [each.route for each in world.messages()] == [
        "call", "call", "self", "self", "self", "respond", "result",
    ]  # fmt: skip


async def test_an_agent_may_call_its_caller_where_that_is_its_peer() -> None:
    async def top(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        if isinstance(payload, Answer):
            return respond(f"done: {payload.text}")
        return respond("asked back") if payload.text == "back" else to("below")

    async def below(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        return to("top", "back") if isinstance(payload, Ask) else respond(payload.text)

    agent = World(Handler("top", top, peers=["below"]), Handler("below", below, peers=["top"], agent=True))
    assert await agent.send("top", Ask()) == Answer("done: asked back")
    assert len({each.thread_id for each in agent["top"].seen}) == 2
    # HC-16: of one that is no agent the same is an answer
    tool = World(Handler("top", top, peers=["below"]), Handler("below", below, peers=["top"]))
    assert await tool.send("top", Ask()) == Answer("asked back")
    assert len({each.thread_id for each in tool["top"].seen}) == 1


async def test_names_with_dots_call_answer_and_end() -> None:
    # HC-20, X5: a name that begins like another one
    async def calls(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        if isinstance(payload, Ask):
            return HandlerResponse(Sum(1, 2), "calc.add")
        return respond(f"{payload.value} from {metadata.from_id}")

    async def wrong(payload: Any, metadata: HandlerMetadata) -> None:
        raise AssertionError("nobody calls it")

    world = World(
        Handler("con.sole", calls, peers=["calc.add"]), adder("calc.add"), Handler("calc", wrong, takes=Sum)
    )
    assert await world.send("con.sole", Ask()) == Answer("3 from calc.add")
    assert world["calc"].got == []
    assert world["calc.add"].over == [world["calc.add"].seen[0].thread_id]
    assert world.clean()


async def test_agents_of_other_kinds_are_asked_in_text_and_answer_in_text() -> None:
    # HC-3, UN-1: in a run of its own, below the frame's span, with the frame for its conversation
    async def shout(text: str) -> str:
        return text.upper()

    async def calls(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        if isinstance(payload, Ask):
            return HandlerResponse(Text(payload.text) if payload.text == "hi" else Sum(1, 2), "model")
        assert isinstance(payload, Text)
        return respond(f"{metadata.from_id} said {payload.text}")

    world = World(Handler("calls", calls, peers=["model"]), others={"model": shout})
    assert await world.send("calls", Ask("hi")) == Answer("model said HI")
    assert await world.send("calls", Ask("numbers")) == Answer('model said {"A": 1, "B": 2}')
    asked = world.peers.asked[0]
    assert (asked.agent, asked.text, asked.sender, asked.asker.agent) == ("model", "hi", "calls", "calls")
    told = [each for each in world.events if isinstance(each, ToolEvent) and each.run_id == "run-1"]
    assert [(each.server, each.tool, each.phase) for each in told] == [
        ("model", "send_message", "started"), ("model", "send_message", "completed"),
    ]  # fmt: skip
    assert asked.asker.trace is not None
    assert (told[0].call_id, told[0].span_id) == (asked.thread, asked.asker.trace.span_id)
    assert asked.asker.trace.trace_id == "1" * 32


async def test_text_to_a_typed_handler_is_read_like_a_message_from_outside() -> None:
    async def calls(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        if isinstance(payload, Ask):
            return HandlerResponse(Text(payload.text), "add")
        return respond(payload.message if isinstance(payload, SystemError) else str(payload.value))

    world = World(Handler("calls", calls, peers=["add"]), adder())
    assert await world.send("calls", Ask('{"a": 4, "b": 5}')) == Answer("9")
    assert await world.send("calls", Ask("<Sum><a>1</a><b>1</b></Sum>")) == Answer("2")
    refused = await world.send("calls", Ask("one and two"))
    assert "expected JSON such as" in refused.text
    assert len(world["add"].got) == 2


async def test_a_group_gets_each_message_and_each_member_answers() -> None:
    async def calls(payload: Any, metadata: HandlerMetadata) -> HandlerResponse | None:
        if isinstance(payload, Ask):
            return to("prices", "gold")
        answers.append((metadata.from_id, payload.text))
        return respond("both") if len(answers) == 2 else None

    async def price(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        return HandlerResponse(Answer(f"{payload.text} for {metadata.from_id}"), metadata.from_id)

    answers: list[tuple[str, str]] = []
    world = World(
        Handler("calls", calls, peers=["prices"]),
        Handler("prices", price),
        Handler("prices.2", price, shown="prices"),
    )
    assert await world.send("calls", Ask()) == Answer("both")
    assert answers == [("prices", "gold for calls")] * 2
    assert world["prices"].seen[0].thread_id != world["prices.2"].seen[0].thread_id


async def test_the_first_frame_gets_the_thread_of_its_conversation() -> None:
    # HC-25: an external UUID is kept for its own conversation, and for no other at the same time
    mine = str(uuid4())
    world = World(Handler("echo", echo))
    await world.send("echo", Ask(), thread=mine)
    await world.send("echo", Ask(), thread="no uuid")
    first, second = world["echo"].seen
    assert first.thread_id == mine
    assert str(UUID(second.thread_id)) == second.thread_id != mine
    assert {each.parent for each in world.messages(route="call")} == {world.pump.root}


async def test_nobody_is_there_to_take_the_first_message() -> None:
    world = World(Handler("echo", echo))
    with pytest.raises(Fault, match="ghost takes no messages"):
        await world.send("ghost", Ask())
    with pytest.raises(Fault) as raised:
        await world.send("echo", Total(1))
    assert raised.value.system_code == "validation"
    assert world["echo"].got == []
    world.peers.down["echo"] = Fault(FaultType.TRANSPORT, "echo is stopped")
    with pytest.raises(Fault, match="echo is stopped"):
        await world.send("echo", Ask())
    assert world.clean()


async def test_a_newer_version_of_a_handler_takes_what_comes_next() -> None:
    # An answer comes after the handler was reloaded: the frame goes on with the new one.
    async def old(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        world.peers.handlers["calls"] = newer
        return HandlerResponse(Sum(1, 1), "add")

    async def new(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        return respond(f"new: {payload.value}")

    older, newer = Handler("calls", old, peers=["add"]), Handler("calls", new, peers=["add"])
    world = World(older, adder())
    assert await world.send("calls", Ask()) == Answer("new: 2")
    assert older.over == newer.over == [older.seen[0].thread_id]


async def test_an_answer_of_a_class_that_nobody_knows_is_a_document(caplog: pytest.LogCaptureFixture) -> None:
    # HC-7: whatever class it is of
    @dataclass
    class Odd:
        what: str

    async def odd(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        return HandlerResponse.respond(Odd("thing"))

    world = World(Handler("odd", odd))
    with caplog.at_level(logging.WARNING):
        assert await world.send("odd", Ask()) == Document("Odd", "<Odd><what>thing</what></Odd>")
    assert not caplog.records
