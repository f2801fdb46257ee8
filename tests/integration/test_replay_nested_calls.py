"""Equal questions that are put to one agent at once get each its own answer again in a replay."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.live import agent_module
from support.offline import offline_project
from support.replayed import assert_same, recorded, replaying

from pallas.fleet.replay_fleet import ReplayOutcome
from pallas.model import Recording
from pallas.recordings.run_diff import diff

SCRIPT = """
rules:
  - when: {last: user, text: three cards}
    call:
      - {tool: ASK, arguments: {message: "a card"}}
      - {tool: ASK, arguments: {message: "a card"}}
      - {tool: ASK, arguments: {message: "a card"}}
  - when: {last: user}
    call:
      - {tool: deck__draw, arguments: {}}
  - when: {last: tool}
    say: "{{ result }}"
"""
DECK = '''
from itertools import count
from pathlib import Path

from stdio_server import StdioServer

server = StdioServer("deck")


@server.tool()
def draw() -> str:
    """Draw a card that no other process has drawn."""
    for number in count(1):
        try:
            Path(__file__).with_name(f"card-{number}").touch(exist_ok=False)
        except FileExistsError:
            continue
        return f"card {number}"


server.run()
'''
REPLAYS = 10
ASKED_AS = {"peer": "dealer", "mcp": "dealer__send_message", "legacy mcp": "elder_dealer__send_message"}


def dealing(root: Path, way: str, *, is_isolated: bool = False) -> Path:
    """An agent that asks another one for three cards at once: as its peer, or over MCP."""
    ask = ASKED_AS[way]
    server, is_server, _ = ask.partition("__")
    keys: dict[str, dict[str, Any]] = {"plain": {}, "dealer": {}}
    if not is_server:
        keys["plain"]["peers"] = ["dealer"]
    if is_isolated:
        for each in keys.values():
            each["isolation"] = "process"
    return offline_project(
        root,
        {
            "plain": agent_module("plain", (server,) if is_server else ()),
            "dealer": agent_module("dealer", ("deck",)),
        },
        SCRIPT.replace("ASK", ask),
        peers=("dealer",) if way == "mcp" else (),
        elders=("dealer",) if way == "legacy mcp" else (),
        keys=keys,
        config={"mcp": {"servers": {"deck": {"command": "python", "args": ["deck.py"]}}}},
        files={"deck.py": DECK},
    )


def cards(recording: Recording) -> dict[str, str]:
    """The result of each question by the id that the model gave the call."""
    return {
        each.step.tool_use_id: json.loads(each.response)["content"][0]["text"]
        for each in recording.first.steps
        if each.step.kind != "model"
    }


def dealt(recording: Recording) -> dict[str, str]:
    """The answer of the run that each question led to, by the same id."""
    return {
        each.step.tool_use_id: run.answer
        for each in recording.first.steps
        for run in recording.led_to(recording.first, each.step.number)
    }


def in_reverse(recording: Recording) -> Recording:
    """The recording with the runs of the other agent in the other order: the last one began first."""
    first, *others = recording.runs
    return replace(recording, runs=(first, *reversed(others)))


def assert_as_recorded(outcome: ReplayOutcome, recording: Recording) -> None:
    """The replay is the same, and each question got its own answer."""
    assert_same(outcome)
    assert dealt(outcome.recording) == dealt(recording)
    assert cards(outcome.recording) == cards(recording)
    assert diff(recording, outcome.recording).is_same


@pytest.mark.slow
@pytest.mark.usefixtures("forked_children")
@pytest.mark.parametrize(
    ("way", "is_isolated"), [("peer", False), ("mcp", False), ("peer", True), ("mcp", True)]
)
async def test_equal_questions_at_once_get_their_own_answers_in_every_replay(
    tmp_path: Path, way: str, is_isolated: bool
) -> None:
    root = dealing(tmp_path / "p", way, is_isolated=is_isolated)
    recording = await recorded(root, "plain", "three cards")
    drawn = dealt(recording)
    assert len(drawn) == len(set(drawn.values())) == 3
    for each in (recording, in_reverse(recording)):
        async with replaying(root, each) as fleet:
            for _ in range(REPLAYS):
                assert_as_recorded(await fleet.replay(), each)
    assert len(list(root.glob("card-*"))) == 3


@pytest.mark.slow
@pytest.mark.usefixtures("forked_children")
async def test_equal_questions_at_once_over_one_session_get_their_own_answers(tmp_path: Path) -> None:
    root = dealing(tmp_path / "p", "legacy mcp")
    recording = await recorded(root, "plain", "three cards")
    assert len(set(dealt(recording).values())) == 3
    for each in (recording, in_reverse(recording)):
        async with replaying(root, each) as fleet:
            assert_as_recorded(await fleet.replay(), each)
