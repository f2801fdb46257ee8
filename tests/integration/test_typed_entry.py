"""What callers write to typed handlers, over MCP: another class's XML, a DOCTYPE, empty lists."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.live import MODERN_FIRST, client, module_fleet
from support.typed import typed_project

from pallas.fleet.fleet import Fleet

pytestmark = pytest.mark.asyncio(loop_scope="module")
DESK = """
    from dataclasses import dataclass, field

    from pallas.contract import Document, HandlerResponse

    heard = []

    @dataclass
    class Note:
        text: str

    @dataclass
    class Line:
        sku: str

    @dataclass
    class Order:
        id: int
        lines: list[Line] = field(default_factory=list)
        prices: list[float] = field(default_factory=list)

    @dataclass
    class Heard:
        count: int

    async def notes(payload, metadata):
        heard.append(payload.text)
        return HandlerResponse.respond(Heard(len(heard)))

    async def orders(payload, metadata):
        return HandlerResponse.respond(payload)
"""


@module_fleet()
def fleet(folder: Path) -> Path:
    entries = {"notes": {"payload": "Note"}, "orders": {"payload": "Order"}}
    return typed_project(folder, DESK, entries)


async def said(fleet: Fleet, agent: str, era: str, message: str) -> tuple[bool, str]:
    async with client(fleet, agent, era=era) as caller:
        result: Any = await caller.call_tool("send_message", {"message": message})
    return result.is_error, "".join(block.text for block in result.content)


@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_xml_that_is_no_message_of_a_text_handler_never_reaches_it(fleet: Fleet, era: str) -> None:
    # HC-2, HC-24
    before = int(json.loads((await said(fleet, "notes", era, '{"text": "a"}'))[1])["count"])
    for wrong, problem in (
        ("<Order><id>1</id></Order>", "Note is asked for, and the element is"),
        ('<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>', "has a DOCTYPE"),
        ('<!DOCTYPE Note [<!ENTITY x "xx">]><Note><text>&x;</text></Note>', "has a DOCTYPE"),
    ):
        is_error, text = await said(fleet, "notes", era, wrong)
        assert is_error and problem in text, text
        assert json.loads(text)["data"]["type"] == "PROTOCOL"
        assert "root:" not in text
    is_error, text = await said(fleet, "notes", era, "<b>plain</b> text")
    assert json.loads(text) == {"count": before + 1}


@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_an_empty_list_is_left_out_of_xml_and_there_in_json(fleet: Fleet, era: str) -> None:
    # HC-23: of dataclasses and numbers as of texts
    assert await said(fleet, "orders", era, "<Order><id>1</id></Order>") == (
        False,
        "<Order><id>1</id></Order>",
    )
    _, text = await said(fleet, "orders", era, '{"id": 1}')
    assert json.loads(text) == {"id": 1, "lines": [], "prices": []}
