"""A project whose agent blocks its whole event loop, for ``keys``: all other agents stand still then."""

from pathlib import Path

from .programs import free_ports

SECONDS = 5
QUESTION = "doze"
LINGER = "linger"
_MODULE = """
import asyncio
import time

from fast_agent import FastAgent

fast = FastAgent("sleeper")


async def doze() -> str:
    '''Blocks the loop, as a careless library does.'''
    time.sleep({seconds})
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


def blocked_project(root: Path, seconds: float = SECONDS) -> None:
    """Write the project into ``root``; ``sleeper`` blocks the fleet that long when told to doze."""
    registry, model, port = free_ports(3)
    (root / "agents").mkdir(parents=True)
    (root / "agents" / "__init__.py").touch()
    (root / "agents" / "sleeper.py").write_text(_MODULE.format(seconds=seconds))
    (root / "model.yaml").write_text(_SCRIPT)
    (root / "agents.yaml").write_text(_AGENTS.format(registry=registry, model=model, port=port))
    (root / "fastagent.config.yaml").write_text(_SETTINGS.format(model=model))
