"""Equal calls that are made at once are recorded with the model's ids, and each gets its own result again."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.live import agent_module
from support.offline import offline_project
from support.replayed import assert_same, recorded, replaying

from pallas.model import Recording, StepDetail

SCRIPT = """
rules:
  - when: {last: user}
    call:
      - {tool: TOOL, arguments: {deck: "tarot"}}
      - {tool: TOOL, arguments: {deck: "tarot"}}
      - {tool: TOOL, arguments: {deck: "tarot"}}
  - when: {last: tool}
    say: "drawn"
"""
DECK = '''
from itertools import count
from pathlib import Path

from stdio_server import StdioServer

server = StdioServer("deck")
drawn = count(1)


@server.tool()
def draw(deck: str) -> str:
    """Draw a card."""
    number = next(drawn)
    with Path(__file__).with_name("drawn.txt").open("a") as file:
        file.write(f"{number}\\n")
    return f"card {number} of {deck}"


server.run()
'''
FUNCTION = '''
from itertools import count
from pathlib import Path

from fast_agent import FastAgent

fast = FastAgent("plain")
drawn = count(1)


def draw(deck: str) -> str:
    """Draw a card."""
    number = next(drawn)
    with Path("drawn.txt").open("a") as file:
        file.write(f"{number}\\n")
    return f"card {number} of {deck}"


@fast.agent(name="plain", instruction="You draw cards.", function_tools=[draw])
async def main() -> None: ...
'''


def drawing(root: Path, kind: str) -> Path:
    """An agent that draws three cards at once: from a server, or with a function of its own."""
    if kind == "function":
        return offline_project(root, {"plain": FUNCTION}, SCRIPT.replace("TOOL", "draw"))
    isolated = {"plain": {"isolation": "process"}} if kind == "process" else None
    return offline_project(
        root,
        {"plain": agent_module("plain", ("deck",))},
        SCRIPT.replace("TOOL", "deck__draw"),
        keys=isolated,
        config={"mcp": {"servers": {"deck": {"command": "python", "args": ["deck.py"]}}}},
        files={"deck.py": DECK},
    )


def cards(recording: Recording) -> dict[str, str]:
    """The result of each call by the id that the model gave it."""
    return {
        each.step.tool_use_id: json.loads(each.response)["content"][0]["text"]
        for each in recording.first.steps
        if each.step.kind == "tool"
    }


def asked_for(recording: Recording) -> list[str]:
    """The ids of the calls in the model's first answer."""
    answer = json.loads(recording.first.steps[0].response)
    return [each["id"] for each in answer["choices"][0]["message"]["tool_calls"]]


def in_reverse(recording: Recording) -> Recording:
    """The recording with its calls in the other order, as when another one of them had begun first."""
    first, *calls, last = recording.first.steps

    def numbered(detail: StepDetail, number: int) -> StepDetail:
        return replace(detail, step=replace(detail.step, number=number))

    turned = (numbered(each, number) for number, each in enumerate(reversed(calls), 2))
    return replace(recording, runs=(replace(recording.first, steps=(first, *turned, last)),))


@pytest.mark.slow
@pytest.mark.usefixtures("forked_children")
@pytest.mark.parametrize("kind", ["server", "process", "function"])
async def test_equal_calls_at_once_get_their_own_results_in_every_replay(tmp_path: Path, kind: str) -> None:
    root = drawing(tmp_path / "p", kind)
    recording = await recorded(root, "plain", "three cards")
    drawn = cards(recording)
    assert list(drawn) == asked_for(recording)
    assert len(set(drawn.values())) == 3
    turned = in_reverse(recording)
    assert cards(turned) == drawn
    for each in (recording, turned):
        async with replaying(root, each) as fleet:
            for _ in range(3):
                outcome = await fleet.replay()
                assert_same(outcome)
                assert cards(outcome.recording) == drawn
    assert sorted((root / "drawn.txt").read_text().split()) == ["1", "2", "3"]
