"""A small fleet of a model and two typed handlers, to be talked to at a prompt."""

import asyncio
from pathlib import Path
from typing import Any

from pallas.console.console_session import hold
from pallas.fleet.fleet import Fleet
from pallas.model import Event

from .live import agent_module
from .offline import offline_project

CODE = """
import asyncio
from dataclasses import dataclass
from pathlib import Path

from pallas.contract import HandlerResponse


@dataclass
class Add:
    a: int
    b: int


@dataclass
class Sum:
    value: int


seen = []


async def add(payload, metadata):
    print("adding", payload.a)
    seen.append((metadata.thread_id, metadata.from_id))
    if payload.a < 0:
        return None
    if payload.b == 777:
        Path(__file__).with_name("waits").touch()
        await asyncio.Event().wait()
    return HandlerResponse(Sum(payload.a + payload.b), to=metadata.from_id)


async def fail(payload, metadata):
    raise ValueError("the reason stays here")
"""
SCRIPT = """
rules:
  - {when: {last: user}, say: "you said {{ last }}"}
"""


def project(root: Path, **top: Any) -> Path:
    """``desk`` is a model, ``add`` adds and has no answer for less than nothing, ``fail`` raises.

    What is 777 more ``add`` never finds out: there is a file ``waits`` in the project then.
    """
    handler = {"module": None, "kind": "handler", "payload": "code_of:Add"}
    return offline_project(
        root,
        {"desk": agent_module("desk"), "add": None, "fail": None},
        SCRIPT,
        keys={
            "add": {**handler, "handler": "code_of:add", "description": "Adds two numbers"},
            "fail": {**handler, "handler": "code_of:fail"},
        },
        files={"code_of.py": CODE},
        top=top,
    )


class Scripted:
    """A person who types these lines, whatever comes."""

    def __init__(self, *lines: str | None) -> None:
        self.lines = list(lines)
        self.shown: list[tuple[str, str]] = []
        self.asked: list[str] = []

    async def show(self, output: str, source: str) -> None:
        """Read it."""
        self.shown.append((source, output))

    async def read(self, to: str) -> str | None:
        """Type the next line."""
        self.asked.append(to)
        return self.lines.pop(0) if self.lines else None


async def held(fleet: Fleet, desk: Scripted, stop: asyncio.Event | None = None) -> list[Event]:
    """A whole conversation, and the events of it."""
    heard: list[Event] = []
    unlisten = fleet.hub.listen(heard.append)
    try:
        async with asyncio.timeout(60):
            await hold(fleet, desk, greeting="hello", stop=stop)
    finally:
        unlisten()
    return heard
