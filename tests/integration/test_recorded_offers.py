"""What MCP servers offered is recorded whole, is what a replay offers, and is asked again after a change."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.counted import HANDSHAKE, MODERN
from support.live import agent_module
from support.offline import offline_project
from support.projects import edited
from support.recording_files import assert_fits
from support.replayed import FOLDER, assert_same, recorded, replayed
from support.surfaces import command

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
    ("protocol", "isolation"), [("auto", "none"), ("legacy", "none"), ("auto", "process")]
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
    # A program that is slow to start is asked by the handshake.
    assert offer.protocol in ((HANDSHAKE,) if protocol == "legacy" else (MODERN, HANDSHAKE))
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
    ("protocol", "isolation"), [("auto", "none"), ("legacy", "none"), ("auto", "process")]
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


MORE = '''

@server.tool()
def sell(what: str) -> str:
    """Sell a thing."""
    note("sell")
    return "sold"


server.run()
'''


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_a_changed_server_is_asked_and_what_it_lost_is_named(tmp_path: Path, protocol: str) -> None:
    root = shop(tmp_path / "p", protocol=protocol)
    recording = await recorded(root, "plain", "lamps")
    for old, new, said in (
        ("def find(", "def seek(", "shop offers no shop__find any more: it is shop__seek now"),
        ("@server.tool()\ndef buy(", "def buy(", "shop offers no shop__buy any more"),
        ("def buy(what: str, count: int", "def buy(what: str, count: str", "shop offers another shop__buy ("),
        ("Then buy.", "Then pay.", "shop has other instructions"),
        ("\n\nserver.run()\n", MORE, "shop offers shop__sell too"),
    ):
        with edited(root / "shop.py", old, new):
            outcome = await replayed(root, recording)
            assert outcome.is_miss
            assert not outcome.is_same
            assert outcome.fault.startswith(f"replay: {said}")
            assert "is not in the recording" in outcome.fault
    with edited(root / "shop.py", "Path(__file__)", "Path(__file__).absolute()"):  # offers the same
        assert_same(await replayed(root, recording))
    assert_same(await replayed(root, recording))
    assert called(root) == ["find"]


@pytest.mark.slow
async def test_a_server_whose_entry_changed_is_asked_and_one_that_cannot_be_asked_is_not_the_same(
    tmp_path: Path,
) -> None:
    root = shop(tmp_path / "p", env={"SHOP_KEY": "${SHOP_KEY:one}"})
    recording = await recorded(root, "plain", "lamps")
    config = root / "fastagent.config.yaml"
    with edited(config, "SHOP_KEY:one", "SHOP_KEY:two"):  # a value is not what it is made of
        (root / "shop.py").rename(root / "kept.py")
        (root / "shop.py").symlink_to("kept.py")
        assert_same(await replayed(root, recording))
    (root / "shop.py").unlink()
    outcome = await replayed(root, recording)
    assert (outcome.is_same, outcome.is_miss) == (False, True)
    said = "replay: shop was changed and cannot be asked what it offers now: its program ended with exit"
    assert outcome.fault.startswith(said)
    with edited(config, "- shop.py", "- kept.py"):
        assert_same(await replayed(root, recording))
    with edited(config, "command: python", "command: no-such-program"):
        outcome = await replayed(root, recording)
        assert "no-such-program cannot be started" in outcome.fault
    assert called(root) == ["find"]


def kept(root: Path, recording: Recording, name: str) -> Path:
    """A test of the project that has the recording."""
    path = root / "tests" / "agents" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    write(recording, path.with_suffix(".recording"))
    entry = {"agent": "plain", "ask": "lamps", "recording": f"{name}.recording"}
    path.write_text(yaml.safe_dump({**entry, "expect": {"answer": {"contains": "lamps"}}}))
    return path.with_suffix(".recording")


@pytest.mark.slow
async def test_tests_and_replays_of_a_project_ask_a_changed_server(tmp_path: Path) -> None:
    root = shop(tmp_path / "p")
    place = kept(root, await recorded(root, "plain", "lamps"), "first")
    said = "shop offers no shop__find any more: it is shop__seek now"
    with edited(root / "shop.py", "def find(", "def seek("):
        status, out, _ = await command("test", "-p", str(root))
        assert (status, said in out) == (1, True), out
        status, out, _ = await command("replay", str(place), "-p", str(root))
        assert (status, said in out) == (1, True), out
    with edited(root / "shop.py", "server.run()", "server.run("):
        status, out, _ = await command("test", "-p", str(root))
        assert (status, "shop was changed and cannot be asked" in out) == (1, True), out
    with edited(root / "shop.py", "\n\nserver.run()\n", MORE):
        kept(root, await recorded(root, "plain", "lamps"), "second")
        status, out, _ = await command("test", "-p", str(root))
        assert (status, "passed   second" in out) == (1, True), out
        assert "shop offers shop__sell too" in out
    status, out, _ = await command("test", "first", "-p", str(root))
    assert (status, "passed   first" in out) == (0, True), out
    assert called(root) == ["find", "find"]  # when they were recorded


@pytest.mark.slow
async def test_the_lock_says_what_a_changed_server_offers(tmp_path: Path) -> None:
    root = shop(tmp_path / "p")
    await command("lock", "--yes", "-p", str(root))
    recording = await recorded(root, "plain", "lamps")
    with edited(root / "shop.py", "def find(", "def seek("):
        assert_same(await replayed(root, recording))
        with edited(root / "agents.yaml", "agents:\n", "tools_lock: warn\nagents:\n"):
            assert "shop offers no shop__find any more" in (await replayed(root, recording)).fault
    assert called(root) == ["find"]
