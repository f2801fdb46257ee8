"""Remote agents at servers that differ from the protocol in one thing, which costs that thing only."""

from random import Random
from typing import Any

import pytest
from support.fake_downstreams import serving
from support.odd_http import OddHttp
from support.odd_servers import Transport, build
from support.remotes import Talk, remote

QUESTION = {"type": "object", "properties": {"question": {"type": "string"}}, "required": ["question"]}
ODD_TOOLS: dict[str, dict[str, Any]] = {
    "a tool without an input schema": {"inputSchema": ...},
    "an output schema that is a list": {"outputSchema": []},
    "annotations that are a text": {"annotations": "none"},
}
ODD_ANSWERS: dict[str, dict[str, Any]] = {
    "a media type of plain text": {"media_type": "text/plain"},
    "a byte order mark": {"start": "\ufeff"},
}


async def asked(transport: Transport, tool: dict[str, Any], wire: dict[str, Any]) -> str:
    """What the remote agent answers whose server has that tool besides the one to be asked."""
    rng = Random(1)
    server = build("1", transport, [], rng)
    server.wire.update(wire)
    server.add(rng, **tool)
    wanted = server.add(rng, inputSchema=QUESTION)
    http = OddHttp()
    http.add(server.name, transport, server.spec())
    async with serving(http) as origin, remote(f"{origin}/{server.name}/mcp", tool=wanted.name) as executor:
        (text,) = (await Talk(executor).say("what now")).texts
    assert text == f"{wanted.key} answers"
    return text


@pytest.mark.parametrize("transport", ["http-json", "http-sse", "http-modern"])
@pytest.mark.parametrize("odd", ODD_TOOLS)
async def test_an_odd_tool_beside_the_one_that_is_asked_costs_nothing(transport: Transport, odd: str) -> None:
    assert await asked(transport, ODD_TOOLS[odd], {})


@pytest.mark.parametrize("transport", ["http-json", "http-modern"])
@pytest.mark.parametrize("odd", ODD_ANSWERS)
async def test_odd_answers_are_read(transport: Transport, odd: str) -> None:
    assert await asked(transport, {}, ODD_ANSWERS[odd])
