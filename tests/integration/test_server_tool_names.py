"""Names of servers' tools that providers refuse: models get others, which lead back to the tools."""

import re
from pathlib import Path

import pytest
from support.live import agent_module, client, running, write_project
from support.providers import MODELS, Reply, in_turn, provider

SERVER = '''
from stdio_server import StdioServer

server = StdioServer("store")

@server.tool(name="look.up", structured_output=False)
def look_up(what: str) -> str:
    """Look it up."""
    return "looked up " + what

@server.tool(name="look_up", structured_output=False)
def look(what: str) -> str:
    """Look at it."""
    return "looked at " + what

@server.tool(name="look." + "x" * 80, structured_output=False)
def look_long(what: str) -> str:
    """Look for long."""
    return "looked long at " + what

@server.tool(name="sell.now", structured_output=False)
def sell(what: str) -> str:
    """Sell it."""
    return "sold"

server.run()
'''
STORE = {"mcp": {"servers": {"store": {"command": "python", "args": ["store.py"]}}}}


async def names_of(root: Path) -> tuple[str, ...]:
    """Start the fleet once; return the names that a model is sent, after it has called each."""
    lamp = {"what": "a lamp"}
    async with provider(lambda asked: Reply("seen")) as model:
        write_project(
            root,
            {"desk": agent_module("desk", ("store",), tools={"store": ["look*"]}, model=MODELS["chat"])},
            config={**model.config(MODELS["chat"]), **STORE},
            files={"store.py": SERVER},
        )
        async with running(root) as fleet, client(fleet, "desk") as caller:
            await caller.call_tool("send_message", {"message": "hello"})
            names = model.asked[0].tools
            model.answer = in_turn(Reply(calls=[(name, lamp) for name in names]), Reply("done"))
            await caller.call_tool("send_message", {"message": "look"})
    results = sorted(model.asked[-1].results)
    assert results == ["looked at a lamp", "looked long at a lamp", "looked up a lamp"]
    return names


@pytest.mark.slow
async def test_models_get_names_that_providers_take_and_the_same_at_each_start(tmp_path: Path) -> None:
    first = await names_of(tmp_path / "one")
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) for name in first)
    assert "store__look_up" in first
    assert await names_of(tmp_path / "two") == first
