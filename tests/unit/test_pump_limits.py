"""Limits hold under load, and what is cancelled leaves nothing behind."""

import asyncio
import logging
from typing import Any

import pytest
from support.pumped import Answer, Ask, Handler, World, echo, forever, respond, to, until

from pallas.config.kinds import PumpLimits
from pallas.contract import HandlerMetadata, HandlerResponse, SystemError
from pallas.messaging.messaging_port import MessageSender
from pallas.model import Fault, FaultType


@pytest.mark.parametrize(("agents", "fleet"), [(8, 20), (3, 15)])
async def test_an_agent_and_the_fleet_handle_so_many_at_once(agents: int, fleet: int) -> None:
    # HC-31: 5 by one agent, 20 in the fleet, with many more waiting
    async def busy(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        nonlocal most
        most = max(most, world.pump.handling)
        for _ in range(3):
            await asyncio.sleep(0)
        return respond(payload.text)

    most = 0
    names = [f"busy.{n}" for n in range(agents)]
    world = World(*(Handler(name, busy) for name in names))
    answers = await asyncio.gather(
        *(world.send(names[n % agents], Ask(str(n)), nested=True) for n in range(400))
    )
    assert [each.text for each in answers] == [str(n) for n in range(400)]
    assert most == fleet
    assert max(world[name].most for name in names) == min(5, -(-fleet // agents))
    assert world.clean()


async def test_one_busy_agent_does_not_hold_up_the_others() -> None:
    # HC-31
    world = World(
        Handler("slow", forever), Handler("quick", echo), limits=PumpLimits(per_agent=2, handlers=3)
    )
    waiting = [asyncio.create_task(world.send("slow", Ask())) for _ in range(10)]
    await until(lambda: world["slow"].running == 2)
    assert await world.send("quick", Ask("x")) == Answer("x")
    assert world.pump.waiting == 8
    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)
    assert world.clean()


async def test_so_many_runs_at_once_and_nested_ones_do_not_wait() -> None:
    # HC-31: 50 pipelines
    let_go = asyncio.Event()

    async def waits(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        await let_go.wait()
        return respond()

    world = World(
        Handler("waits", waits), Handler("echo", echo), limits=PumpLimits(handlers=90, per_agent=80)
    )
    runs = [asyncio.create_task(world.send("waits", Ask())) for _ in range(60)]
    await until(lambda: world["waits"].running == 50)
    assert world.pump.waiting == 10
    assert await world.send("echo", Ask("in"), nested=True) == Answer("in")
    runs[59].cancel()
    runs[0].cancel()
    await until(lambda: world.pump.waiting == 8)
    let_go.set()
    done = await asyncio.gather(*runs, return_exceptions=True)
    assert sum(each == Answer() for each in done) == 58
    assert world["waits"].most == 50
    assert world.clean()


async def test_what_waits_is_bounded_and_told_so() -> None:
    # HC-31
    async def asks(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        return respond(str(payload)) if isinstance(payload, SystemError) else to("slow")

    limits = PumpLimits(pipelines=4, per_agent=1, queue=3)
    world = World(Handler("slow", forever), Handler("asks", asks, peers=["slow"]), limits=limits)
    runs = [asyncio.create_task(world.send("slow", Ask())) for _ in range(4)]
    await until(lambda: world.pump.open_frames == 4)
    with pytest.raises(Fault) as raised:
        await world.send("slow", Ask())
    assert raised.value.message.startswith("Server overloaded")
    assert (raised.value.type, raised.value.retryable) == (FaultType.TRANSPORT, True)
    # A message of a handler that finds no room is told to it; what it has to be told always finds some.
    answer = await world.send("asks", Ask(), nested=True)
    assert answer.text == str(SystemError("transport", "The target could not complete the request.", True))
    for each in runs:
        each.cancel()
    await asyncio.wait(runs)
    assert world.clean()


async def test_limits_are_those_of_now() -> None:
    let_go = asyncio.Event()

    async def waits(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        await let_go.wait()
        return respond()

    world = World(Handler("waits", waits), limits=PumpLimits(per_agent=1))
    first = asyncio.create_task(world.send("waits", Ask()))
    await until(lambda: world["waits"].running)
    world.peers.limits = PumpLimits(per_agent=2)
    second = asyncio.create_task(world.send("waits", Ask()))
    await until(lambda: world["waits"].running == 2)
    let_go.set()
    await asyncio.gather(first, second)


async def test_an_agent_may_have_a_limit_of_its_own() -> None:
    # HC-31
    world = World(Handler("one", forever), Handler("many", forever), Handler("usual", forever))
    world.peers.own_limits = {"one": 1, "many": 8}
    sent = [
        asyncio.create_task(world.send(name, Ask())) for name in ("one", "many", "usual") for _ in range(10)
    ]
    await until(lambda: [world[name].running for name in ("one", "many", "usual")] == [1, 8, 5])
    assert world.pump.waiting == 16
    for each in sent:
        each.cancel()
    await asyncio.wait(sent)
    assert world.clean()


async def test_a_run_that_never_ends_is_ended() -> None:
    # HC-31
    async def again(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        return to("again")

    world = World(Handler("again", again), limits=PumpLimits(per_run=100))
    with pytest.raises(Fault, match="More than 100 messages") as raised:
        await world.send("again", Ask())
    assert raised.value.type is FaultType.UPSTREAM
    assert len(world["again"].got) == 101
    assert world.clean()


async def test_frames_below_each_other_have_an_end() -> None:
    async def deeper(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        if isinstance(payload, Ask):
            return to("b" if metadata.own_name == "a" else "a")
        return respond(payload.code if isinstance(payload, SystemError) else payload.text)

    world = World(
        Handler("a", deeper, peers=["b"], agent=True), Handler("b", deeper, peers=["a"], agent=True)
    )
    assert await world.send("a", Ask()) == Answer("upstream")
    assert len({each.thread_id for name in "ab" for each in world[name].seen}) == 32
    with pytest.raises(Fault, match="More than 32"):
        await world.send("a", Ask(), asker=MessageSender("deep", "a", depth=32))
    assert world.clean()


async def test_waiting_for_a_peer_holds_no_place() -> None:
    # HC-31: with one place in the whole fleet a chain of agents comes to its end
    async def passes(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        if isinstance(payload, Answer):
            return respond(payload.text)
        n = int((metadata.own_name or "").removeprefix("n"))
        return to(f"n{n + 1}") if n < 5 else respond("end")

    handlers = [Handler(f"n{n}", passes, peers=[f"n{n + 1}"], agent=True) for n in range(6)]
    world = World(*handlers, limits=PumpLimits(handlers=1, per_agent=1))
    answers = await asyncio.gather(*(world.send("n0", Ask()) for _ in range(10)))
    assert answers == [Answer("end")] * 10


async def test_cancelling_a_run_cancels_all_that_works_for_it() -> None:
    # UN-2
    async def model(text: str) -> str:
        nonlocal asked
        asked += 1
        try:
            await asyncio.Event().wait()
        finally:
            asked -= 1
        return ""

    async def fans_out(payload: Any, metadata: HandlerMetadata) -> Any:
        return (
            b"<slow.ask><text/></slow.ask><slow.ask><text/></slow.ask><model.text><text>x</text></model.text>"
        )

    asked = 0
    world = World(
        Handler("fans", fans_out, peers=["slow", "model"]), Handler("slow", forever), others={"model": model}
    )
    with pytest.warns(DeprecationWarning):
        run = asyncio.create_task(world.send("fans", Ask()))
        await until(lambda: asked and world["slow"].running == 2)
    assert world.pump.open_frames == 4
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert (asked, world["slow"].running) == (0, 0)
    assert world.clean()
    left = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
    assert left == []


async def test_a_fleet_that_stops_ends_its_runs_and_takes_no_more() -> None:
    world = World(Handler("slow", forever), limits=PumpLimits(pipelines=2))
    runs = [asyncio.create_task(world.send("slow", Ask())) for _ in range(4)]
    await until(lambda: world["slow"].running == 2)
    await world.pump.close()
    done = await asyncio.gather(*runs, return_exceptions=True)
    assert all(isinstance(each, Fault) and each.type is FaultType.TRANSPORT for each in done)
    with pytest.raises(Fault, match="stopping"):
        await world.send("slow", Ask())
    assert world.clean()
    assert world["slow"].running == 0


async def test_an_event_that_nobody_can_hear_ends_the_run_and_not_the_pump(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def calls(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        return to("echo")

    class Deaf(list[Any]):
        def append(self, event: Any) -> None:
            super().append(event)
            if len(self) == 2:
                raise RuntimeError("deaf")

    world = World(Handler("calls", calls, peers=["echo"]), Handler("echo", echo))
    world.events = Deaf()
    with caplog.at_level(logging.ERROR), pytest.raises(Fault) as raised:
        await world.send("calls", Ask())
    assert raised.value.type is FaultType.INTERNAL
    assert world.clean()
