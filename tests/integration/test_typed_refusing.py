"""Classes with rules of their own, and names that are nobody's: told alike in either kind of process."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from support.live import ask_agent, module_fleet
from support.typed import typed_project

from pallas.fleet.fleet import Fleet
from pallas.model import Fault, FaultType

pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]

DESK = '''
    from dataclasses import dataclass

    from pallas.contract import HandlerResponse, SystemError, Text

    @dataclass
    class Even:
        """A class with a rule that no schema has."""

        number: int

        def __post_init__(self):
            if self.number % 2:
                raise ValueError("an odd swordfish")

    @dataclass
    class Signed:
        """A class that changes what it is given, and so does not take that again."""

        text: str

        def __post_init__(self):
            if self.text.endswith("!"):
                raise ValueError("signed already")
            self.text += "!"

    @dataclass
    class Order:
        to: str
        number: int = 0

    async def halves(payload, metadata):
        return HandlerResponse.respond(Text(str(payload.number // 2)))

    async def signs(payload, metadata):
        return HandlerResponse.respond(Signed("mine"))

    async def asks(payload, metadata):
        if not isinstance(payload, Order):
            return HandlerResponse.respond(Text(f"{metadata.from_id} {payload!r}"))
        if payload.to == "signs":
            return HandlerResponse(payload, "signs")
        if payload.to == "long":
            return HandlerResponse(payload, "x" * 10_000)
        made = Even(2)
        made.number = payload.number
        return HandlerResponse(made, payload.to)
'''
APART = {"isolation": "process"}
ASKS = {"payload": "Order", "handler": "desk:asks", "agent": True, "peers": ["near", "far", "signs"]}
ENTRIES: dict[str, dict[str, Any]] = {
    "near": {"payload": "Even", "handler": "desk:halves"},
    "far": {"payload": "Even", "handler": "desk:halves", **APART},
    "signs": {"payload": "Order"},
    "asks": ASKS,
    "away": {**ASKS, **APART},
}


@module_fleet()
def fleet(folder: Path) -> Path:
    return typed_project(folder / "project", DESK, ENTRIES)


async def typed_answer(fleet: Fleet, agent: str, **message: Any) -> str:
    return str(json.loads(await ask_agent(fleet, agent, json.dumps(message)))["text"])


@pytest.mark.parametrize("who", ["near", "far"])
async def test_a_caller_is_told_that_the_class_refuses_it_and_the_log_why(
    fleet: Fleet, who: str, caplog: pytest.LogCaptureFixture
) -> None:
    # HC-2, HC-22
    with caplog.at_level(logging.WARNING), pytest.raises(Fault) as told:
        await typed_answer(fleet, who, number=3)
    assert (told.value.type, told.value.retryable) == (FaultType.PROTOCOL, False)
    assert told.value.message == "Even does not take these values"
    (why,) = [each for each in caplog.records if "odd swordfish" in each.getMessage()]
    assert getattr(why, "agent", "") == who
    assert await typed_answer(fleet, who, number=4) == "2"


@pytest.mark.parametrize("who", ["asks", "away"])
@pytest.mark.parametrize("whom", ["near", "far"])
async def test_a_handler_is_told_so_by_whom_it_asked(fleet: Fleet, who: str, whom: str) -> None:
    # HC-2, HC-22
    words = "SystemError(code='validation', message='Even does not take these values', retry_allowed=True)"
    assert await typed_answer(fleet, who, to=whom, number=3) == f"{whom} {words}"
    assert await typed_answer(fleet, who, to=whom, number=4) == f"{whom} Text(text='2')"


@pytest.mark.parametrize("who", ["asks", "away"])
async def test_an_answer_that_its_class_does_not_take_again_is_a_document(fleet: Fleet, who: str) -> None:
    # HC-7
    document = "Document(tag='Signed', xml='<Signed><text>mine!</text></Signed>')"
    assert await typed_answer(fleet, who, to="signs") == f"signs {document}"


@pytest.mark.parametrize("who", ["asks", "away"])
async def test_a_name_of_any_length_is_just_nobodys(fleet: Fleet, who: str) -> None:
    # HC-14
    pids = [each.executor.pid for each in fleet.agents if each.executor is not None]
    told = await typed_answer(fleet, who, to="long")
    assert told.startswith("system SystemError(code='routing', message='Message could not be delivered.")
    assert [each.executor.pid for each in fleet.agents if each.executor is not None] == pids
