"""The first message, and the root above all others."""

import asyncio
import logging
from typing import Any
from uuid import UUID

import pytest
from support.pumped import Answer, Ask, Handler, World, echo, respond, to, until

from pallas.contract import Boot, HandlerMetadata, HandlerResponse
from pallas.model import MessagePassed


async def test_boot_is_the_first_message_and_the_root_is_there_before() -> None:
    # HC-25
    async def boots(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        return to("echo", f"{payload.project} {payload.agents}") if isinstance(payload, Boot) else respond()

    world = World(Handler("boots", boots, takes=Boot, peers=["echo"]), Handler("echo", echo))
    root = world.pump.root
    assert str(UUID(root)) == root
    await world.pump.boot(world.events.append)
    await until(world.clean)
    assert await world.send("echo", Ask("after")) == Answer("after")
    assert world["boots"].got == [Boot("tests", 2), Answer("tests 2")]
    first, *others = [each for each in world.events if isinstance(each, MessagePassed)]
    assert (first.route, first.sender, first.to, first.parent) == ("boot", "system", "boots", root)
    assert first.run_id == first.frame == world["boots"].seen[0].thread_id
    assert world["boots"].seen[0].from_id == "system"
    outside = [each for each in others if each.sender == "system.caller"]
    assert {each.parent for each in outside} == {root}
    assert world.pump.root == root


async def test_a_handler_that_fails_at_boot_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(payload: Any, metadata: HandlerMetadata) -> None:
        raise RuntimeError("secret")

    world = World(Handler("fails", fails, takes=Boot), Handler("echo", echo))
    with caplog.at_level(logging.WARNING):
        await world.pump.boot(world.events.append)
        await until(lambda: caplog.messages)
    assert caplog.messages == ["fails: boot failed: fails failed; the log says why"]
    assert await world.send("echo", Ask()) == Answer()


async def test_what_follows_of_boot_goes_on_until_the_fleet_stops() -> None:
    # HC-25: the fleet does not wait for it
    async def lasts(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        if metadata.is_self_call:
            await asyncio.Event().wait()
        return HandlerResponse(payload, "lasts")

    world = World(Handler("lasts", lasts, takes=Boot))
    await asyncio.wait_for(world.pump.boot(world.events.append), 60)
    await until(lambda: world["lasts"].running and world.pump.open_frames == 1)
    await world.pump.close()
    assert world["lasts"].running == 0
    assert world.clean()


async def test_nobody_takes_boot() -> None:
    world = World(Handler("echo", echo))
    await world.pump.boot(world.events.append)
    assert world.events == []
