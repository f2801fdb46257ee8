"""A project whose runs are judged on each save: agents, a function, a skill, and a server that counts."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

from pallas.agent_tests.kept_test import keep

from .offline import offline_project
from .reloading import module
from .replayed import FOLDER, recorded

LEAD = '''
from fast_agent import FastAgent

fast = FastAgent("lead")


async def price(item: str) -> str:
    """What an item costs."""
    with open("executed", "a") as file:
        file.write("price\\n")
    return f"{item}: 9"


@fast.agent(name="lead", instruction="You are lead.", servers=["clerk"], function_tools=[price])
async def main() -> None: ...
'''
CLERK = """
from fast_agent import FastAgent

fast = FastAgent("clerk")


INSTRUCTION = "You are clerk.\\n{{agentSkills}}"


@fast.agent(name="clerk", instruction=INSTRUCTION, servers=["shelf"], skills=["skills"])
async def main() -> None: ...
"""
SHELF = '''
from stdio_server import StdioServer

server = StdioServer("shelf")


@server.tool()
def find(what: str) -> str:
    """Find a thing on the shelf."""
    with open("executed", "a") as file:
        file.write("find\\n")
    return f"three {what}"


server.run()
'''
SKILL = """---
name: counting
description: How to count things.
---
Count twice.
"""
_SCRIPT = """
rules:
  - when: {last: tool, system: clerk. Be brief}
    say: "3 lamps"
  - when: {last: user, system: clerk. Sell}
    call: [{tool: shelf__find, arguments: {what: "chairs"}}]
  - when: {last: tool, system: clerk. Look twice}
    say: "three lamps, seen"
  - when: {last: user, system: clerk. Look twice}
    call:
      - {tool: shelf__find, arguments: {what: "lamps"}}
      - {tool: shelf__find, arguments: {what: "lamps"}}
  - when: {system: clerk. Break}
    error: {status: 429, message: "too many lamps", retry_after: 600}
  - when: {system: clerk. Refuse}
    error: {status: 400, message: "no such lamps"}
  - when: {system: clerk. Wait}
    delay: 600
    say: "later"
  - when: {last: user, system: lead. Guess}
    say: "All in all: some lamps"
  - when: {last: user, system: You are chief}
    call: [{tool: lead__send_message, arguments: {message: "How many?"}}]
  - when: {last: tool, system: You are chief}
    say: "Chief: {{ result }}"
  - when: {last: user, system: You are lead}
    call:
      - {tool: clerk__send_message, arguments: {message: "find lamps"}}
      - {tool: keeper, arguments: {message: "count lamps"}}
      - {tool: price, arguments: {item: "lamps"}}
  - when: {last: user, text: find lamps}
    call: [{tool: shelf__find, arguments: {what: "lamps"}}]
  - when: {last: tool, system: You are clerk}
    say: "three lamps, seen"
  - when: {last: user, text: count lamps}
    say: "I keep nine lamps"
  - when: {last: tool}
    say: "All in all: {{ result }}"
  - when: {last: user}
    say: "turn {{ turns }}"
"""


async def judged_project(
    root: Path, gate: str = "warn", tests: int = 1, *, chief: bool = False, **top: Any
) -> Path:
    """The agents ``lead``, which asks ``clerk`` by its URL and ``keeper`` as a peer, and ``other``.

    The tests ``lamps``, ``lamps-1``, ... are one run of lead. Functions and tools that are executed add a
    line to the file ``executed``. With ``chief`` there is an agent that asks lead, and the test ``deep`` of
    it. ``top`` are other keys of agents.yaml. With an instruction that goes on as one of the script says
    ("You are clerk. Be brief"), the model says something else.
    """
    above = {"chief": module("chief", "You are chief.", ("lead",))} if chief else {}
    offline_project(
        root,
        {
            **above,
            "lead": LEAD,
            "clerk": CLERK,
            "keeper": module("keeper", "You are keeper."),
            "other": module("other", "You are other."),
            "probe": None,
        },
        _SCRIPT,
        peers=("clerk", "lead") if chief else ("clerk",),
        keys={"lead": {"peers": ["keeper"]}, "keeper": {"description": "Keeps things."}},
        top={"bind": "127.0.0.1", "verdict": {"gate": gate}, **top},
        config={"mcp": {"servers": {"shelf": {"command": "python", "args": ["shelf.py"]}}}},
        files={"shelf.py": SHELF, "skills/counting/SKILL.md": SKILL},
    )
    recording = await recorded(root, "lead", "How many?")
    for number in range(tests):
        await asyncio.to_thread(keep, recording, root, f"lamps-{number}" if number else "lamps")
    if chief:
        shutil.rmtree(root / FOLDER)
        deep = await recorded(root, "chief", "Ask lead.")
        await asyncio.to_thread(keep, deep, root, "deep")
    (root / "executed").unlink()
    return root


def executed(root: Path) -> list[str]:
    """Which functions and tools were executed since the tests were kept."""
    file = root / "executed"
    return file.read_text().split() if file.exists() else []


def entry(content: dict[str, Any], agent: str) -> dict[str, Any]:
    """The entry of an agent in ``agents.yaml``."""
    found: dict[str, Any] = content["agents"][agent]
    return found
