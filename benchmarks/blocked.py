"""A project whose agent blocks its whole event loop, for ``keys``: all other agents stand still then."""

from pathlib import Path

from .programs import free_ports

QUESTION = "doze"
LINGER = "linger"
_MODULE = """
import asyncio
import time
from pathlib import Path

from fast_agent import FastAgent

fast = FastAgent("sleeper")


async def doze() -> str:
    '''Blocks the loop, as a careless library does, until it is woken.'''
    end = time.monotonic() + 60
    Path({asleep!r}).touch()
    while not Path({wake!r}).exists() and time.monotonic() < end:
        time.sleep(0.02)
    return "rested"


async def linger() -> str:
    '''Takes a minute, and lets the others work.'''
    await asyncio.sleep(60)
    return "stayed"


@fast.agent(name="sleeper", instruction="You doze.", function_tools=[doze, linger])
async def main() -> None: ...
"""
_SCRIPT = """
rules:
  - when: {last: user, regex: linger}
    call:
      - tool: linger
        arguments: {}
  - when: {last: user}
    call:
      - tool: doze
        arguments: {}
  - when: {last: tool}
    say: I am rested.
"""
_AGENTS = """
name: blocked
bind: 127.0.0.1
registry_port: {registry}
scripted: {{script: model.yaml, port: {model}}}
agents:
  sleeper: {{module: agents.sleeper, port: {port}}}
"""
_SETTINGS = """
default_model: generic.scripted
generic: {{base_url: "http://127.0.0.1:{model}/v1", api_key: offline}}
"""


def blocked_project(root: Path, asleep: Path, wake: Path) -> None:
    """Write the project into ``root``; ``sleeper`` blocks the fleet when told to doze.

    It creates the file ``asleep`` then, and goes on when the file ``wake`` is there.
    """
    registry, model, port = free_ports(3)
    (root / "agents").mkdir(parents=True)
    (root / "agents" / "__init__.py").touch()
    (root / "agents" / "sleeper.py").write_text(_MODULE.format(asleep=str(asleep), wake=str(wake)))
    (root / "model.yaml").write_text(_SCRIPT)
    (root / "agents.yaml").write_text(_AGENTS.format(registry=registry, model=model, port=port))
    (root / "fastagent.config.yaml").write_text(_SETTINGS.format(model=model))
