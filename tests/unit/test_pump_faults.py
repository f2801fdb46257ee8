"""What fails is told to the caller in few words, in time, and the fleet goes on."""

import asyncio
import logging
from typing import Any

import pytest
from support.pumped import Answer, Ask, Handler, World, echo, forever, respond, to, until

from pallas.contract import HandlerMetadata, HandlerResponse, SystemError, Text
from pallas.messaging import handler_work
from pallas.messaging.messaging_port import Delivery, HandlerReply
from pallas.model import Fault, FaultType, ToolEvent
from pallas.payloads import PayloadType


async def tells(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
    """Calls ``peer``, and says what came of it; after an error it asks ``echo``."""
    if isinstance(payload, SystemError):
        assert metadata.from_id == "peer"
        return to("echo", payload.code) if payload.code == "timeout" else respond(str(payload))
    return to("peer") if isinstance(payload, Ask) else respond(f"{metadata.from_id}: {payload.text}")


async def test_what_a_handler_raises_is_told_without_its_text() -> None:
    # HC-22, X12
    async def fails(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        raise RuntimeError("password is swordfish")

    world = World(Handler("tells", tells, peers=["peer"]), Handler("peer", fails))
    answer = await world.send("tells", Ask())
    assert answer.text == str(SystemError("upstream", "The target could not complete the request.", False))
    with pytest.raises(Fault) as raised:
        await world.send("peer", Ask())
    assert raised.value.type is FaultType.UPSTREAM
    assert "swordfish" not in raised.value.message + str(world.events) + str(world.pump.envelopes("run-1"))
    assert await world.send("tells", Ask())  # it goes on
    assert world.clean()


async def test_an_endpoint_that_breaks_is_a_fault_and_its_traceback_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # HC-22
    class Broken(Handler):
        async def invoke(self, delivery: Delivery) -> HandlerReply:
            raise ValueError("inside of it")

    world = World(Broken("broken", echo), Handler("tells", tells, peers=["peer"]), Broken("peer", echo))
    with caplog.at_level(logging.ERROR), pytest.raises(Fault) as raised:
        await world.send("broken", Ask())
    assert raised.value.type is FaultType.UPSTREAM
    assert "inside of it" not in raised.value.message
    assert "inside of it" in str(caplog.records[0].exc_info)
    assert "upstream" in (await world.send("tells", Ask())).text


async def test_who_returns_something_else_is_a_fault_for_its_caller() -> None:
    # HC-22
    async def wrong(payload: Any, metadata: HandlerMetadata) -> str:
        return "just text"

    world = World(Handler("tells", tells, peers=["peer"]), Handler("peer", wrong))
    assert "upstream" in (await world.send("tells", Ask())).text
    with pytest.raises(Fault, match="returned what is no answer"):
        await world.send("peer", Ask())


async def test_a_handler_that_takes_too_long_is_a_timeout_and_the_thread_lives() -> None:
    # HC-32
    world = World(
        Handler("tells", tells, peers=["peer", "echo"]),
        Handler("peer", forever, timeout=0.01),
        Handler("echo", echo),
    )
    assert await world.send("tells", Ask()) == Answer("echo: timeout")
    assert world["tells"].got[1] == SystemError(
        "timeout", "The target did not answer in time. Please try again later.", True
    )
    assert len({each.thread_id for each in world["tells"].seen}) == 1
    assert world["peer"].over == [world["peer"].seen[0].thread_id]
    assert world["peer"].running == 0
    told = [each.phase for each in world.events if isinstance(each, ToolEvent) and each.server == "peer"]
    assert told == ["started", "failed"]
    with pytest.raises(Fault) as raised:
        await world.send("peer", Ask())
    assert (raised.value.type, raised.value.retryable) == (FaultType.TIMEOUT, True)
    assert world.clean()


async def test_a_handler_that_will_not_be_cancelled_is_left_behind(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # HC-32: nobody waits for it, and its place is free
    monkeypatch.setattr(handler_work, "GRACE", 0.02)
    let_go = asyncio.Event()

    async def stubborn(payload: Any, metadata: HandlerMetadata) -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    world = World(Handler("peer", stubborn, timeout=0.01), Handler("tells", tells, peers=["peer", "echo"]),
                  Handler("echo", echo))  # fmt: skip
    with caplog.at_level(logging.WARNING):
        assert await world.send("tells", Ask()) == Answer("echo: timeout")
    assert world.clean()
    assert any(
        "peer" in line and "is still handled though it was cancelled" in line for line in caplog.messages
    )
    let_go.set()
    await until(lambda: not world["peer"].running)


async def test_a_handler_that_cancels_itself_is_a_fault() -> None:
    async def quits(payload: Any, metadata: HandlerMetadata) -> None:
        raise asyncio.CancelledError

    world = World(Handler("quits", quits))
    with pytest.raises(Fault, match="cancelled its own work"):
        await world.send("quits", Ask())


async def test_faults_of_other_kinds_reach_the_handler_by_their_type() -> None:
    # UN-4: the same fault, said to a handler
    async def busy(text: str) -> str:
        raise Fault(FaultType.AUTH, "401 of provider.example with key sk-…")

    async def broken(text: str) -> str:
        raise KeyError("inside")

    async def huge(text: str) -> str:
        return "x" * 2_000_000

    for asked, code in ((busy, "auth"), (broken, "upstream"), (huge, "upstream")):
        world = World(Handler("tells", tells, peers=["peer"]), others={"peer": asked})
        answer = await world.send("tells", Ask())
        assert answer.text == str(SystemError(code, "The target could not complete the request.", False))


async def test_control_characters_of_a_foreign_answer_are_made_visible() -> None:
    async def odd(text: str) -> str:
        return "a\x00\x1b[31m\ud800b"

    async def passes(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        return to("peer") if isinstance(payload, Ask) else HandlerResponse.respond(payload)

    world = World(Handler("passes", passes, peers=["peer"]), others={"peer": odd})
    assert await world.send("passes", Ask()) == Text("a\\x00␛[31m\\ud800b")


async def test_the_same_mistake_for_ever_ends_the_frame() -> None:
    # Rule 5: eight refusals in a row
    async def loops(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        return to("nobody")

    world = World(Handler("loops", loops), Handler("tells", tells, peers=["peer"]), Handler("peer", loops))
    with pytest.raises(Fault, match="8 messages in a row"):
        await world.send("loops", Ask())
    assert len(world["loops"].got) == 8
    assert "upstream" in (await world.send("tells", Ask())).text
    assert world.clean()


async def test_a_delivered_message_starts_the_count_anew() -> None:
    async def mends(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        count = len(world["mends"].got)
        if count == 30:
            return respond("done")
        return to("mends") if count % 7 == 0 else to("nobody")

    world = World(Handler("mends", mends))
    assert await world.send("mends", Ask()) == Answer("done")


async def test_a_message_that_is_too_large_is_told_to_its_sender() -> None:
    # HC-24
    from pallas.config.kinds import PumpLimits

    async def large(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        return respond(payload.code) if isinstance(payload, SystemError) else to("large", "x" * 2_000)

    world = World(Handler("large", large), limits=PumpLimits(bytes=1_024))
    assert await world.send("large", Ask()) == Answer("validation")
    with pytest.raises(Fault, match="at most 1024"):
        await world.send("large", PayloadType.of(Ask).pack(Ask("x" * 1_024)))
