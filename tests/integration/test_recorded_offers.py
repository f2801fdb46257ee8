"""What MCP servers offered is recorded whole, is what a replay offers, and is asked again after a change."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.counted import MODERN
from support.live import agent_module
from support.offline import offline_project
from support.recording_files import assert_fits
from support.replayed import FOLDER, assert_same, recorded, replayed

from pallas.model import Recording
from pallas.recordings.recording_folder import files_of, read, write

SCRIPT = """
rules:
  - when: {last: user}
    call: [{tool: shop__find, arguments: {what: "lamps"}}]
  - when: {last: tool}
    say: "so: {{ result }}"
"""
SHOP = '''
from pathlib import Path

from mcp.server import MCPServer
from mcp_types import ToolAnnotations
from pydantic import BaseModel

server = MCPServer("The shop", version="2.5", instructions="Find first.\\nThen buy.")


class Found(BaseModel):
    what: str
    count: int


def note(tool: str) -> None:
    with Path(__file__).with_name("called.txt").open("a") as file:
        file.write(tool + "\\n")


@server.tool(title="Find it", annotations=ToolAnnotations(read_only_hint=True))
def find(what: str) -> Found:
    """Find a thing."""
    note("find")
    return Found(what=what, count=3)


@server.tool()
def buy(what: str, count: int = 1) -> str:
    """Buy a thing."""
    note("buy")
    return "bought"


@server.prompt()
def greet() -> str:
    """Greet."""
    return "hello"


server.run()
'''


def shop(root: Path, *, protocol: str = "auto", isolation: str = "none", **entry: Any) -> Path:
    """An agent with a shop, whose instructions it quotes."""
    settings = {"command": "python", "args": ["shop.py"], "protocol_mode": protocol, **entry}
    module = agent_module("plain", ("shop",)).replace(
        "You are plain.", "You are plain. {{serverInstructions}}"
    )
    assert "serverInstructions" in module
    return offline_project(
        root,
        {"plain": module},
        SCRIPT,
        keys={"plain": {"isolation": "process"}} if isolation == "process" else None,
        config={"mcp": {"servers": {"shop": settings}}},
        files={"shop.py": SHOP},
    )


def called(root: Path) -> list[str]:
    """The tools that the server has executed."""
    path = root / "called.txt"
    return path.read_text().split() if path.exists() else []


def shown(recording: Recording) -> Any:
    """The first request to the model."""
    return json.loads(recording.first.steps[0].request)


@pytest.mark.slow
@pytest.mark.usefixtures("forked_children")
@pytest.mark.parametrize(
    ("protocol", "isolation"), [("modern", "none"), ("legacy", "none"), ("auto", "process")]
)
async def test_what_a_server_offered_is_recorded_whole(tmp_path: Path, protocol: str, isolation: str) -> None:
    root = shop(tmp_path / "p", protocol=protocol, isolation=isolation)
    recording = await recorded(root, "plain", "lamps")
    assert recording.missing == ()
    (name,) = recording.offers
    assert recording.first.offers == {"shop": name}
    offer = recording.offers[name]
    assert (offer.server, offer.name, offer.version) == ("shop", "The shop", "2.5")
    assert offer.instructions == "Find first.\nThen buy."
    assert (offer.protocol == MODERN) == (protocol != "legacy")
    assert "tools" in offer.capabilities
    assert offer.prompts == ("greet",)
    find, buy = offer.tools
    assert (find["name"], find["title"], find["description"]) == ("find", "Find it", "Find a thing.")
    assert find["annotations"]["readOnlyHint"] is True
    assert find["outputSchema"]["properties"]["count"]["type"] == "integer"
    assert buy["inputSchema"]["properties"]["count"]["default"] == 1
    files = files_of(recording)
    assert files == files_of(read(root / FOLDER))
    assert f"offers/{name}.yaml" in files
    write(recording, tmp_path / "copy")
    assert read(tmp_path / "copy") == recording
    assert_fits(recording)


@pytest.mark.slow
@pytest.mark.usefixtures("forked_children")
@pytest.mark.parametrize(
    ("protocol", "isolation"), [("modern", "none"), ("legacy", "none"), ("auto", "process")]
)
async def test_a_replay_offers_what_the_recording_has(tmp_path: Path, protocol: str, isolation: str) -> None:
    root = shop(tmp_path / "p", protocol=protocol, isolation=isolation)
    recording = await recorded(root, "plain", "lamps")
    assert "shop__buy" in json.dumps(shown(recording)["tools"])
    assert "Find first." in json.dumps(shown(recording)["messages"])
    outcome = await replayed(root, recording)
    assert_same(outcome)
    (was,), (now,) = recording.offers.values(), outcome.recording.offers.values()
    assert now.tools == was.tools
    assert (now.instructions, now.name, now.version) == (was.instructions, was.name, was.version)
    assert outcome.recording.first.steps[1].response == recording.first.steps[1].response
    assert "structuredContent" in recording.first.steps[1].response
    assert called(root) == ["find"]
