"""A message that fits its schema, and that the code of its class refuses: whose mistake that is (HC-2)."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from support.pumped import Ask, Handler, World, forever, knows, respond, until

from pallas.config.kinds import PumpLimits
from pallas.contract import HandlerMetadata, HandlerResponse, SystemError
from pallas.model import Fault, FaultType
from pallas.payloads import NotTaken, PayloadType


@knows
@dataclass
class Even:
    """A class with a rule that no schema has."""

    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("swordfish")


def odd() -> Even:
    """One that was even when it was made."""
    made = Even(2)
    made.number = 3
    return made


async def halves(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
    """Answers what it got, or what it was told."""
    return respond(payload.code if isinstance(payload, SystemError) else str(payload.number // 2))


async def test_a_caller_outside_is_told_that_its_message_is_wrong() -> None:
    world = World(Handler("halves", halves, takes=Even))
    with pytest.raises(NotTaken) as told:
        await world.send("halves", PayloadType.of(Even).pack(odd()))
    assert (told.value.type, told.value.retryable) == (FaultType.PROTOCOL, False)
    assert told.value.message == "Even does not take these values"
    assert world["halves"].got == []
    assert world.clean()


async def test_a_handler_that_sent_it_is_told_so_by_whom_it_asked_and_its_thread_lives() -> None:
    threads = []

    async def asks(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        threads.append(metadata.thread_id)
        match payload:
            case Ask():
                return HandlerResponse(odd(), "halves")
            case SystemError():
                told.append((payload, metadata.from_id))
                return HandlerResponse(Even(8), "halves")
        return respond(payload.text)

    told: list[Any] = []
    world = World(Handler("asks", asks, peers=["halves"]), Handler("halves", halves, takes=Even))
    assert (await world.send("asks", Ask())).text == "4"
    # HC-22: not what the class said
    assert told == [
        (SystemError("validation", "Even does not take these values", retry_allowed=True), "halves")
    ]
    assert len(set(threads)) == 1
    assert world.clean()


async def test_one_that_sent_it_to_itself_is_told_so_and_goes_on() -> None:
    async def counts(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        if isinstance(payload, SystemError):
            return respond(f"{payload.code} from {metadata.from_id}")
        return HandlerResponse(odd(), "counts")

    world = World(Handler("counts", counts, takes=Even))
    assert (await world.send("counts", Even(2))).text == "validation from system"


async def test_nobody_is_blamed_for_an_answer_that_somebody_further_down_gave() -> None:
    # HC-17
    async def tells(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        return HandlerResponse.respond(odd())

    async def asks(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        return HandlerResponse(Ask(), "tells")

    world = World(Handler("asks", asks, takes=Even, peers=["tells"]), Handler("tells", tells))
    with pytest.raises(Fault) as told:
        await world.send("asks", Even(2))
    assert told.value.type is FaultType.UPSTREAM
    assert world.clean()


async def test_a_run_whose_turn_comes_as_the_fleet_stops_is_not_begun() -> None:
    world = World(Handler("slow", forever), limits=PumpLimits(pipelines=1))
    first = asyncio.create_task(world.send("slow", Ask()))
    await until(lambda: world["slow"].running == 1)
    second = asyncio.create_task(world.send("slow", Ask()))
    await until(lambda: world.pump.waiting == 1)
    first.cancel()
    await until(lambda: world.pump.waiting == 0)  # its turn has come, and it has not begun
    await world.pump.close()
    with pytest.raises(Fault, match="stopping"):
        await second
    assert len(world["slow"].got) == 1
    assert world.clean()
