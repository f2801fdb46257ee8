"""A tool that the ``tools`` filter of an agent's definition leaves out is not called, whoever names it."""

from pathlib import Path

import pytest
from support.live import agent_module, client, running, write_project
from support.providers import MODELS, Reply, in_turn, provider

pytestmark = pytest.mark.usefixtures("forked_children")

SERVER = '''
from pathlib import Path
from mcp.server.mcpserver import MCPServer

server = MCPServer("store", instructions="Look before you sell.")

@server.tool()
def look(what: str) -> str:
    """Look at it."""
    Path("looked").touch()
    return "one lamp"

@server.tool()
def sell(what: str) -> str:
    """Sell it."""
    Path("sold").touch()
    return "sold"

server.run("stdio")
'''
STORE = {"mcp": {"servers": {"store": {"command": "python", "args": ["store.py"]}}}}
NAMES = {
    name: f"Tool '{name}' is not available. Available tools: store__look."
    for name in ("store__sell", "sell", "STORE__SELL")
}
"""How a model may name it, and what it gets."""


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_a_model_that_names_it_gets_an_error(tmp_path: Path, isolation: str) -> None:
    what = {"what": "lamp"}
    calls = [*((name, what) for name in NAMES), ("store__look", what)]
    async with provider(in_turn(Reply(calls=calls), Reply("done"))) as model:
        desk = agent_module("desk", ("store",), tools={"store": ["lo*"]}, model=MODELS["chat"])
        desk = desk.replace("You are desk.", "You are desk. {{serverInstructions}}")
        root = write_project(
            tmp_path,
            {"desk": desk},
            keys={"desk": {"isolation": isolation}},
            config={**model.config(MODELS["chat"]), **STORE},
            files={"store.py": SERVER},
        )
        async with running(root) as fleet, client(fleet, "desk") as caller:
            result = await caller.call_tool("send_message", {"message": "sell the lamp"})
    assert not result.is_error
    first, second = model.asked
    assert first.tools == ("store__look",)
    assert "Look before you sell." in first.system
    assert "store__look" in first.system
    assert "store__sell" not in first.system
    refused = [each for each in second.results if "one lamp" not in each]
    assert sorted(refused) == sorted(NAMES.values())
    assert len(second.results) == len(calls)
    assert (tmp_path / "looked").exists()
    assert not (tmp_path / "sold").exists()
